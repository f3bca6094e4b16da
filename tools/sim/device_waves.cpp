#include "sim/device_waves.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace strait::sim {
namespace {

using Among = IslandStep::Among;

/// Returns a buffer address that is never accessed. Steps contain addresses within buffers, but nothing runs them here.
std::byte* nowhere() {
  return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);  // NOLINT(performance-no-int-to-ptr)
}

bool are_alike(const WireLaunch& a, const WireLaunch& b) {
  return a.kernel == b.kernel && a.pass.total_elements == b.pass.total_elements && a.pass.runs == b.pass.runs &&
         a.pass.run_bytes == b.pass.run_bytes && a.pass.sources == b.pass.sources;
}

bool are_alike(const Call& a, const Call& b) {
  return a.collective == b.collective && a.type == b.type && a.count == b.count && a.wire == b.wire &&
         (!has_root(a.collective) || a.root == b.root);
}

bool are_alike(const std::variant<WireLaunch, Call>& a, const std::variant<WireLaunch, Call>& b) {
  if (a.index() != b.index()) return false;
  if (const auto* call = std::get_if<Call>(&a)) return are_alike(*call, std::get<Call>(b));
  return are_alike(std::get<WireLaunch>(a), std::get<WireLaunch>(b));
}

/// Returns the mean length, in elements, of the messages between different ranks, rounded up. What a rank sends to
/// itself does not travel and is not counted.
std::size_t mean_count(const std::vector<const Call*>& calls) {
  std::size_t sum = 0, messages = 0;
  for (std::uint32_t rank = 0; rank < calls.size(); ++rank) {
    const Call& call = *calls[rank];
    const auto& counts = call.send_counts.empty() ? call.receive_counts : call.send_counts;
    if (counts.empty()) return call.count;
    for (std::uint32_t peer = 0; peer < counts.size(); ++peer) {
      if (peer == (has_root(call.collective) ? call.root : rank)) continue;
      sum += counts[peer];
      ++messages;
    }
  }
  return (sum + messages - 1) / messages;
}

/// Returns the exchange of bytes that stands for a call which is encoded as it is sent.
Call as_bytes(Call call) {
  call.count = wire::blocks_of(call.count) * wire::block_bytes(call.wire);
  call.type = DataType::uint8;
  call.op = ReduceOp::sum;
  return call;
}

void add(Wave& wave, WavePart part) {
  for (WavePart& other : wave)
    if (other.among == part.among && other.groups.front().size() == part.groups.front().size() &&
        are_alike(other.what, part.what)) {
      other.groups.push_back(std::move(part.groups.front()));
      return;
    }
  wave.push_back(std::move(part));
}

}  // namespace

DeviceWaves::DeviceWaves(std::uint32_t ranks, std::vector<Island> islands, std::size_t encoded_bytes)
    : ranks_(ranks), islands_(std::move(islands)), encoded_bytes_(encoded_bytes) {
  for (std::uint32_t rank = 0; rank < ranks && !islands_.empty(); ++rank)
    rules_.emplace_back(rank, islands_, nowhere(), DeviceIslands::scratch_bytes);
}

bool DeviceWaves::is_carried(const Call& call) const { return !rules_.empty() && rules_.front().carries(call); }

bool DeviceWaves::has_steps(const Call& call) const { return is_carried(call) || is_encoded(call, ranks_); }

bool DeviceWaves::encodes_on_the_way(const Call& call, std::uint32_t members) const {
  return buffer_sizes(call, 0, members).larger_bytes() >= encoded_bytes_;
}

/// Appends the steps of a call on one rank, as CudaRank carries it out.
void DeviceWaves::add_parts(std::uint32_t rank, const Call& call, Parts& parts) const {
  const auto add_encoded = [&](std::uint32_t place, std::uint32_t among, const Call& whole, auto&& exchange) {
    const DeviceQuantized rule(place, among, ranks_, nowhere(), DeviceQuantized::scratch_bytes, 0);
    for (QuantizedStep& step : rule.steps_of(whole))
      if (auto* launch = std::get_if<WireLaunch>(&step))
        parts.push_back({Among::all, *launch});
      else
        exchange(std::get<Call>(step));
  };
  if (!is_carried(call)) {
    if (!is_encoded(call, ranks_))
      parts.push_back({Among::all, call});
    else if (islands_.empty() && encodes_on_the_way(call, ranks_))
      parts.push_back({Among::all, as_bytes(call)});
    else
      add_encoded(rank, ranks_, call, [&](const Call& exchange) { add_parts(rank, exchange, parts); });
    return;
  }
  for (IslandStep& step : rules_[rank].steps_of(call)) {
    const auto members = static_cast<std::uint32_t>(islands_.size());
    if (step.among != Among::across || step.call.wire == WireFormat::off)
      parts.push_back({step.among, std::move(step.call)});
    else if (encodes_on_the_way(step.call, members))
      parts.push_back({step.among, as_bytes(std::move(step.call))});
    else
      add_encoded(place_of(islands_, rank).island, members, step.call, [&](Call& exchange) {
        parts.push_back({Among::across, std::move(exchange)});
      });
  }
}

Island DeviceWaves::group_of(std::uint32_t rank, Among among) const {
  Island group;
  if (among == Among::all) {
    group.resize(ranks_);
    std::iota(group.begin(), group.end(), 0);
    return group;
  }
  const auto [island, place] = place_of(islands_, rank);
  if (among == Among::island) return islands_[island];
  for (const Island& other : islands_) group.push_back(other[place]);
  return group;
}

Result<std::vector<Wave>> DeviceWaves::of(const Call& whole) const {
  Call call = whole;
  call.send = nowhere();
  call.receive = nowhere();
  std::vector<Parts> parts(ranks_);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) add_parts(rank, call, parts[rank]);
  std::vector<std::size_t> next(ranks_, 0);
  const auto at = [&](std::uint32_t rank) {
    return next[rank] < parts[rank].size() ? &parts[rank][next[rank]] : nullptr;
  };
  std::vector<Wave> waves;
  for (;;) {
    Wave wave;
    std::vector<std::uint32_t> moved;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const Part* part = at(rank);
      if (part == nullptr) continue;
      const bool trades = std::holds_alternative<Call>(part->what);
      Island group = trades ? group_of(rank, part->among) : Island{rank};
      const auto is_there = [&](std::uint32_t member) {
        const Part* other = at(member);
        return other != nullptr && other->among == part->among && are_alike(other->what, part->what);
      };
      if (group.front() != rank || !std::all_of(group.begin(), group.end(), is_there)) continue;
      moved.insert(moved.end(), group.begin(), group.end());
      auto what = part->what;
      if (trades) {
        std::vector<const Call*> calls;
        for (const std::uint32_t member : group) calls.push_back(&std::get<Call>(at(member)->what));
        std::get<Call>(what).count = mean_count(calls);
      }
      add(wave, {part->among, {std::move(group)}, std::move(what)});
    }
    for (const std::uint32_t rank : moved) ++next[rank];
    if (!wave.empty())
      waves.push_back(std::move(wave));
    else
      break;
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank)
    if (at(rank) != nullptr)
      return fail(Code::internal_error, "the steps of the ranks do not fit: rank " + std::to_string(rank) +
                                            " waits for others for ever at step " + std::to_string(next[rank]));
  return waves;
}

}  // namespace strait::sim
