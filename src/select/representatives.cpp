#include "select/representatives.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/hash.hpp"
#include "base/units.hpp"

namespace strait {
namespace {

constexpr std::uint32_t most_island = 8;         // most ranks of a finest island that are all walked
constexpr std::size_t most_island_steps = 8192;  // most steps of their plans together
constexpr std::size_t most_steps = 96 << 10;     // most steps of all ranks, if all are walked
// Most ranks whose plans depend on the shape, because building each of these looks through all islands.
constexpr std::uint32_t most_shape_walks = 256;

/// Identifies a link or signal, equally at both ends. Nearly all have one reader, which is kept outside the vector.
struct Name {
  bool signal = false;
  std::uint16_t tag = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;                ///< the first reader
  std::vector<std::uint32_t> further;  ///< the other readers, ascending
  friend bool operator==(const Name&, const Name&) = default;

  static Name of(const LinkEnd& end) {
    return {false, end.tag, end.writer, end.readers.front(), {end.readers.begin() + 1, end.readers.end()}};
  }
  static Name of(const SignalEnd& end) { return {true, end.tag, end.from, end.to, {}}; }
};
struct NameHash {
  std::size_t operator()(const Name& name) const {
    std::uint64_t hash = (std::uint64_t{name.from} << 17) + name.tag * 2u + (name.signal ? 1 : 0);
    hash = mix(hash) ^ name.to;
    for (const std::uint32_t rank : name.further) hash = mix(hash) ^ rank;
    return mix(hash);
  }
};

double us_per_byte(const Step& step, const RankPlan& plan, const LevelModel& machine) {
  if (step.sources.empty()) return 0;
  const ClockModel& rank_costs = machine.rank_costs;
  const auto path_from = [&](std::uint32_t from) {
    const double gbps = machine.levels[machine.level_between(from, plan.rank)].gbps;
    return gbps > 0 ? 1 / (gbps * bytes_per_us) : 0;
  };
  double cost = rank_costs.move_us(step, 1);
  const Writes writes = step.destinations.size() > 1 ? Writes::beside : Writes::alone;
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const Operand& operand : *operands) {
      if (operand.kind == Operand::Kind::receive)
        cost += rank_costs.extra_us(1, rank_costs.memory.fetch_gbps) + path_from(plan.links[operand.link].writer);
      if (operand.kind == Operand::Kind::send) cost += rank_costs.replace_us_per_byte(writes);
      if (operand.kind == Operand::Kind::peer) cost += path_from(operand.peer);
    }
  return cost;
}

/// Returns the chunk whose bytes a step moves; all its operands are equally long.
std::uint32_t chunk_of(const Step& step) {
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const Operand& operand : *operands)
      if (operand.buffer != Buffer::scratch) return operand.chunk;
  return Representatives::Step::no_chunk;
}

}  // namespace

/// Which ranks are walked, 0 ... island - 1, and which of them represents each rank.
struct Representatives::Symmetry {
  const LevelModel& machine;
  std::uint32_t island = 1;  ///< if this is the number of all ranks, each represents itself

  std::uint32_t stand_in(std::uint32_t rank) const { return island > 1 ? rank % island : 0; }

  /// Returns `name` with the writer replaced by its representative and the readers moved along, in one of three ways in
  /// which plans repeat: rotation of all ranks (0), exclusive-or of rank numbers, as in halving and doubling (1), or
  /// rotation within each level (2).
  Name moved(Name name, int way) const {
    const std::uint32_t to = stand_in(name.from);
    name.to = moved(name.to, name.from, to, way);
    for (std::uint32_t& rank : name.further) {
      rank = moved(rank, name.from, to, way);
      if (rank < name.to) std::swap(rank, name.to);
    }
    std::sort(name.further.begin(), name.further.end());
    name.from = to;
    return name;
  }
  static constexpr int ways = 3;

 private:
  std::uint32_t moved(std::uint32_t rank, std::uint32_t from, std::uint32_t to, int way) const {
    const std::uint32_t ranks = machine.ranks();
    if (way == 0) return (rank + ranks - from + to) % ranks;
    if (way == 1) return rank ^ from ^ to;
    std::uint32_t place = 0;
    for (std::size_t level = 0; level < machine.levels.size(); ++level) {
      const std::uint32_t unit = machine.finer_ranks(level);
      const std::uint32_t size = machine.levels[level].ranks / unit;
      const auto coordinate = [&](std::uint32_t of) { return of / unit % size; };
      place += (coordinate(rank) + size - coordinate(from) + coordinate(to)) % size * unit;
    }
    return place;
  }
};

/// State while the ranks are built: the names of channels, and the name of the channel that each taker reads.
struct Representatives::Draft {
  std::unordered_map<Name, std::uint32_t, NameHash> channels;
  std::vector<Name> taken;  ///< by taker

  /// Adds an end. Returns the channel if this end gives, else the number of the taker.
  std::uint32_t add(Name name, bool gives, std::uint32_t channel) {
    if (gives) {
      channels.emplace(std::move(name), channel);
      return channel;
    }
    taken.push_back(std::move(name));
    return static_cast<std::uint32_t>(taken.size() - 1);
  }
};

Representatives::Representatives(const Algorithm& algorithm, const PlanRequest& request, const LevelModel& machine)
    : algorithm_(algorithm), request_(request), machine_(machine) {
  plan_ = algorithm.build(request, 0);
}

Representatives::Step Representatives::described(const strait::Step& step, const RankPlan& plan) const {
  const auto count = [](const std::vector<Operand>& operands, Operand::Kind kind) {
    return std::count_if(operands.begin(), operands.end(), [&](const Operand& o) { return o.kind == kind; });
  };
  Step described;
  described.us_per_byte = static_cast<float>(us_per_byte(step, plan, machine_));
  described.chunk = chunk_of(step);
  described.takes = static_cast<std::uint16_t>(step.waits.size() + count(step.sources, Operand::Kind::receive));
  described.gives = static_cast<std::uint16_t>(step.signals.size() + count(step.destinations, Operand::Kind::send));
  return described;
}

void Representatives::clear() {
  ranks_ = takers_ = 0;
  lanes_.clear();
  steps_.clear();
  ends_.clear();
  channels_.clear();
  crossings_.clear();
}

/// Adds the steps of a rank. Until build() resolves them, End::channel is an index into the plan's links or, beyond
/// these, into its signals.
void Representatives::add_steps(const RankPlan& plan, std::uint32_t rank) {
  const auto add_links = [&](const std::vector<Operand>& operands, Operand::Kind kind) {
    for (const Operand& operand : operands)
      if (operand.kind == kind) ends_.push_back({operand.link});
  };
  const auto add_signals = [&](const std::vector<std::uint16_t>& signals) {
    for (const std::uint16_t signal : signals)
      ends_.push_back({static_cast<std::uint32_t>(plan.links.size()) + signal});
  };
  for (const strait::Lane& lane : plan.lanes) {
    const auto begin = static_cast<std::uint32_t>(steps_.size());
    for (const strait::Step& step : lane.steps) {
      steps_.push_back(described(step, plan));
      steps_.back().begin = static_cast<std::uint32_t>(ends_.size());
      add_signals(step.waits);
      add_links(step.sources, Operand::Kind::receive);
      add_links(step.destinations, Operand::Kind::send);
      add_signals(step.signals);
    }
    lanes_.push_back({rank, begin, static_cast<std::uint32_t>(steps_.size())});
  }
}

void Representatives::add_crossings(const RankPlan& plan, std::uint32_t rank) {
  for (const strait::Lane& lane : plan.lanes)
    for (const strait::Step& step : lane.steps)
      for (const auto* operands : {&step.sources, &step.destinations})
        for (const Operand& operand : *operands) {
          if (operand.kind != Operand::Kind::receive && operand.kind != Operand::Kind::peer) continue;
          const std::uint32_t from =
              operand.kind == Operand::Kind::peer ? operand.peer : plan.links[operand.link].writer;
          const std::size_t level = machine_.level_between(from, rank);
          if (from != rank && machine_.levels[level].island_gbps > 0 && chunk_of(step) != Step::no_chunk)
            crossings_.push_back({chunk_of(step), static_cast<std::uint32_t>(level), from, rank});
        }
}

double Representatives::own_work_us(const Layout& layout, std::size_t element_bytes) const {
  const ClockModel& model = machine_.rank_costs;
  double all = 0, longest = 0;
  std::size_t next = 0;  // the steps of the first rank come first
  for (const strait::Lane& lane : plan_.lanes) {
    double one = 0;
    for (const strait::Step& planned : lane.steps) {
      const Step step = steps_.empty() ? described(planned, plan_) : steps_[next++];
      const double bytes =
          step.chunk == Step::no_chunk ? 0 : static_cast<double>(layout.chunk(step.chunk).count * element_bytes);
      one += step.overhead_us(model) * layout.slices + step.us_per_byte * bytes;
    }
    all += one;
    longest = std::max(longest, one);
  }
  return model.lanes_at_once == 1 ? all : longest;
}

bool Representatives::is_alike(const RankPlan& a, const RankPlan& b) const {
  const auto same = [](const strait::Step& x, const strait::Step& y) {
    const auto kinds = [](const std::vector<Operand>& p, const std::vector<Operand>& q) {
      return std::equal(p.begin(), p.end(), q.begin(), q.end(), [](const Operand& m, const Operand& n) {
        const auto is_peer = [](const Operand& o) {
          return o.kind == Operand::Kind::peer || o.kind == Operand::Kind::local;
        };
        return m.kind == n.kind ||
               (is_peer(m) &&
                is_peer(n));  // contributions come in rank order, so a rank's own is at another place on each rank
      });
    };
    return x.reduces == y.reduces && x.waits.size() == y.waits.size() && x.signals.size() == y.signals.size() &&
           x.sources.size() == y.sources.size() && kinds(x.destinations, y.destinations);
  };
  return std::equal(a.lanes.begin(), a.lanes.end(), b.lanes.begin(), b.lanes.end(),
                    [&](const strait::Lane& x, const strait::Lane& y) {
                      return std::equal(x.steps.begin(), x.steps.end(), y.steps.begin(), y.steps.end(), same);
                    });
}

Status Representatives::complete() {
  if (ranks_ > 0) return {};
  const std::uint32_t all = machine_.ranks();
  const std::uint32_t finest = machine_.levels.front().ranks;
  const std::size_t steps = plan_.steps();
  const bool each = machine_.levels.size() > 1 && finest <= most_island && steps * finest <= most_island_steps;
  const std::uint32_t island = each ? finest : 1;
  if (island < all && !has_root(request_.collective) &&
      is_alike(plan_, algorithm_.build(request_, island == 1 ? all / 2 : island)) &&
      build(island, Symmetry{machine_, island})) {
    stand_for_all_ = true;
    return {};
  }
  PlanRequest plain = request_;
  plain.shape = {};
  const bool costly = !algorithm_.supports(plain) && all > most_shape_walks;
  const std::size_t others = all > 1 ? algorithm_.build(request_, all / 2).steps() : 0;
  if (costly || steps + (all - 1) * others > most_steps)
    return fail(Code::unsupported, "the plan '" + std::string(algorithm_.name) + "' of " + std::to_string(all) +
                                       " ranks has too many steps to walk, and no few ranks stand for all");
  return build(all, Symmetry{machine_, all});
}

Status Representatives::build(std::uint32_t count, const Symmetry& symmetry) {
  clear();
  Draft draft;
  std::vector<std::uint32_t> places;       // by end, over all ranks: the channel if the end gives, else the taker
  std::vector<std::uint32_t> first_place;  // index in places of a rank's first end
  for (std::uint32_t index = 0; index < count; ++index) {
    const RankPlan built = index == 0 ? RankPlan() : algorithm_.build(request_, index);
    const RankPlan& plan = index == 0 ? plan_ : built;
    add_steps(plan, index);
    add_crossings(plan, index);
    first_place.push_back(static_cast<std::uint32_t>(places.size()));
    const auto add = [&](const auto& end, bool gives, Channel channel) {
      places.push_back(draft.add(Name::of(end), gives, static_cast<std::uint32_t>(channels_.size())));
      if (gives) channels_.push_back(channel);
    };
    for (const LinkEnd& end : plan.links) add(end, end.sends, {});
    for (const SignalEnd& end : plan.signals) add(end, end.signals, {0, true});
  }
  std::vector<std::uint32_t> channel_of_taken;
  channel_of_taken.reserve(draft.taken.size());
  for (const Name& name : draft.taken) {
    auto found = draft.channels.end();
    for (int way = 0; way < Symmetry::ways && found == draft.channels.end(); ++way)
      found = draft.channels.find(symmetry.moved(name, way));
    if (found == draft.channels.end()) {
      clear();
      return fail(Code::unsupported, "the plan '" + std::string(algorithm_.name) + "' differs from rank to rank");
    }
    channel_of_taken.push_back(found->second);
  }
  for (const Lane& lane : lanes_)
    for (std::uint32_t step = lane.begin; step < lane.end; ++step)
      for (std::uint32_t i = 0; i < std::uint32_t{steps_[step].takes} + steps_[step].gives; ++i) {
        End& end = ends_[steps_[step].begin + i];
        const std::uint32_t place = places[first_place[lane.rank] + end.channel];
        if (i >= steps_[step].takes) {
          end.channel = place;
          ++channels_[place].gives;
          continue;
        }
        end.channel = channel_of_taken[place];
        end.taker = place;
        const std::size_t level = machine_.level_between(draft.taken[place].from, lane.rank);
        end.latency_us = static_cast<float>(machine_.levels[level].latency_us);
      }
  ranks_ = count;
  takers_ = static_cast<std::uint32_t>(draft.taken.size());
  return {};
}

}  // namespace strait
