#include "builder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.hpp"

namespace strait::algorithms {
namespace {

std::uint64_t hash_of(const LinkEnd& end) {
  const std::uint64_t reader = end.readers.empty() ? 0 : end.readers.front() + 1;
  return mix(mix(std::uint64_t{end.writer} << 32 | reader) + end.tag * 2u + (end.sends ? 1 : 0));
}
std::uint64_t hash_of(const SignalEnd& end) {
  return mix(mix(std::uint64_t{end.from} << 32 | end.to) + end.tag * 2u + (end.signals ? 1 : 0));
}

/// Returns the index of an item, adding it if it is new; by hash, because plans for thousands of ranks have thousands
/// of ends.
template <class T>
std::uint16_t find_or_add(std::vector<T>& items, std::unordered_multimap<std::uint64_t, std::uint16_t>& places,
                          T item) {
  const std::uint64_t hash = hash_of(item);
  const auto [begin, end] = places.equal_range(hash);
  for (auto place = begin; place != end; ++place)
    if (items[place->second] == item) return place->second;
  const auto index = static_cast<std::uint16_t>(items.size());
  places.emplace(hash, index);
  items.push_back(std::move(item));
  return index;
}

/// Moves an operand to lane `lane` of `lanes`: to that share of its chunk, and to that lane's links.
void move_to_lane(Operand& operand, std::uint32_t lane, std::uint32_t lanes, std::size_t links) {
  operand.chunk = operand.chunk * lanes + lane;
  if (operand.kind == Operand::Kind::send || operand.kind == Operand::Kind::receive)
    operand.link = static_cast<std::uint16_t>(operand.link + lane * links);
}

/// Repeats the lanes of a plan `lanes` times. Chunk c is divided into chunks c * lanes to c * lanes + lanes - 1.
RankPlan spread(const RankPlan& plan, std::uint32_t lanes) {
  RankPlan wide = plan;
  wide.chunks_per_block *= lanes;
  wide.scratch_chunks *= lanes;
  wide.links.clear();
  wide.signals.clear();
  wide.lanes.clear();
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    for (LinkEnd end : plan.links) {
      end.tag = static_cast<std::uint16_t>(end.tag * lanes + lane);
      wide.links.push_back(std::move(end));
    }
    for (SignalEnd end : plan.signals) {
      end.tag = static_cast<std::uint16_t>(end.tag * lanes + lane);
      wide.signals.push_back(end);
    }
    for (Lane steps : plan.lanes) {
      for (Step& step : steps.steps) {
        for (auto& wait : step.waits) wait = static_cast<std::uint16_t>(wait + lane * plan.signals.size());
        for (auto& signal : step.signals) signal = static_cast<std::uint16_t>(signal + lane * plan.signals.size());
        for (Operand& source : step.sources) move_to_lane(source, lane, lanes, plan.links.size());
        for (Operand& destination : step.destinations) move_to_lane(destination, lane, lanes, plan.links.size());
      }
      wide.lanes.push_back(std::move(steps));
    }
  }
  return wide;
}

/// Returns how often the lanes are repeated: once for collectives that have no chunks whose lengths all ranks know.
std::uint32_t lanes_of(const PlanRequest& request) {
  const bool has_chunks = request.collective != Collective::all_to_all_v &&
                          request.collective != Collective::send_recv && request.collective != Collective::barrier;
  return has_chunks ? std::max(1U, request.lanes) : 1;
}

}  // namespace

Operands joined(std::initializer_list<Operands> lists) {
  Operands all;
  for (const Operands& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

PlanBuilder::PlanBuilder(const PlanRequest& request, std::uint32_t rank, std::uint32_t chunks_per_block)
    : rank_(rank), ranks_(request.ranks), lanes_(lanes_of(request)), multicast_(request.multicast) {
  plan_.collective = request.collective;
  plan_.rank = rank;
  plan_.ranks = request.ranks;
  plan_.root = request.root;
  plan_.chunks_per_block = chunks_per_block;
  plan_.lanes.emplace_back();
}

std::uint32_t PlanBuilder::around(std::int64_t distance) const {
  const auto n = static_cast<std::int64_t>(ranks_);
  return static_cast<std::uint32_t>(((rank_ + distance) % n + n) % n);
}

Ranks PlanBuilder::others() const {
  Ranks others;
  for (std::uint32_t distance = 1; distance < ranks_; ++distance) others.push_back(around(distance));
  return others;
}

Ranks PlanBuilder::everyone() const {
  Ranks everyone(ranks_);
  std::iota(everyone.begin(), everyone.end(), 0U);
  return everyone;
}

Ranks PlanBuilder::all_readers(std::uint32_t writer) const {
  if (!multicast_) return {rank_};
  Ranks readers = everyone();
  readers.erase(readers.begin() + writer);
  return readers;
}

void PlanBuilder::next_lane() {
  flush_waits();
  if (!plan_.lanes.back().steps.empty()) plan_.lanes.emplace_back();
}

void PlanBuilder::add(Step step) {
  step.waits = std::exchange(pending_waits_, {});
  plan_.lanes.back().steps.push_back(std::move(step));
  const Step& added = plan_.lanes.back().steps.back();
  for (const auto* list : {&added.sources, &added.destinations})
    for (const Operand& operand : *list)
      if (operand.buffer == Buffer::scratch) plan_.scratch_chunks = std::max(plan_.scratch_chunks, operand.chunk + 1);
}

void PlanBuilder::copy(Operand source, Operands destinations) {
  Step step;
  step.sources = {source};
  step.destinations = std::move(destinations);
  add(std::move(step));
}

void PlanBuilder::reduce_partial(Operands sources, Operands destinations) {
  Step step;
  step.sources = std::move(sources);
  step.destinations = std::move(destinations);
  step.reduces = true;
  add(std::move(step));
}

void PlanBuilder::reduce_final(Operands sources, Operands destinations) {
  reduce_partial(std::move(sources), std::move(destinations));
  plan_.lanes.back().steps.back().final = true;
}

std::uint16_t PlanBuilder::link(LinkEnd end) {
  std::sort(end.readers.begin(), end.readers.end());
  return find_or_add(plan_.links, link_places_, std::move(end));
}

std::uint16_t PlanBuilder::signal_end(SignalEnd end) { return find_or_add(plan_.signals, signal_places_, end); }

Operands PlanBuilder::send(Ranks readers, Operand region, std::uint16_t tag) {
  Operands destinations;
  region.kind = Operand::Kind::send;
  if (readers.empty()) return destinations;
  if (multicast_) {
    region.link = link({.sends = true, .tag = tag, .writer = rank_, .readers = std::move(readers)});
    destinations.push_back(region);
    return destinations;
  }
  for (const std::uint32_t reader : readers) {
    region.link = link({.sends = true, .tag = tag, .writer = rank_, .readers = {reader}});
    destinations.push_back(region);
  }
  return destinations;
}

Operand PlanBuilder::receive(std::uint32_t writer, Ranks readers, Operand region, std::uint16_t tag) {
  region.kind = Operand::Kind::receive;
  region.link =
      link({.sends = false, .tag = tag, .writer = writer, .readers = multicast_ ? std::move(readers) : Ranks{rank_}});
  return region;
}

Operands PlanBuilder::contributions(Operand mine) {
  Operands sources;
  for (const std::uint32_t from : everyone()) sources.push_back(from == rank_ ? mine : receive(from, mine));
  return sources;
}

void PlanBuilder::gather_outputs(std::uint16_t tag) {
  for (const std::uint32_t from : others()) copy(receive(from, all_readers(from), output(from), tag), output(from));
}

Operand PlanBuilder::at(std::uint32_t rank, Operand operand) const {
  if (rank == rank_) return operand;
  operand.kind = Operand::Kind::peer;
  operand.peer = rank;
  return operand;
}

void PlanBuilder::signal(const Ranks& to, std::uint16_t tag) {
  flush_waits();
  auto& steps = plan_.lanes.back().steps;
  if (steps.empty()) steps.emplace_back();
  for (const std::uint32_t rank : to)
    steps.back().signals.push_back(signal_end({.signals = true, .tag = tag, .from = rank_, .to = rank}));
}

void PlanBuilder::wait(const Ranks& from, std::uint16_t tag) {
  for (const std::uint32_t rank : from)
    pending_waits_.push_back(signal_end({.signals = false, .tag = tag, .from = rank, .to = rank_}));
}

void PlanBuilder::flush_waits() {
  if (!pending_waits_.empty()) add({});
}

RankPlan PlanBuilder::finish() {
  flush_waits();
  if (plan_.lanes.back().steps.empty()) plan_.lanes.pop_back();
  return lanes_ == 1 ? std::move(plan_) : spread(plan_, lanes_);
}

}  // namespace strait::algorithms
