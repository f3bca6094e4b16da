#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "doctor/measure.hpp"
#include "doctor/measure_rate.hpp"
#include "doctor/team.hpp"
#include "executor/host/reduce.hpp"
#include "plan/clock_memory.hpp"
#include "select/calibration.hpp"

namespace strait::doctor {
namespace {

constexpr std::size_t piece_bytes = 64 << 10;  // the size of a slice
constexpr int repeats = 25;

/// Copies from `source` to `destination` piece by piece. The shorter of the two is used again and again.
void copy_through(const Bytes& destination, const Bytes& source, bool streaming = false) {
  const std::size_t total = std::max(destination.size(), source.size());
  for (std::size_t at = 0; at < total; at += piece_bytes) {
    const std::array to{ReduceDestination{destination.data() + at % destination.size(), streaming}};
    copy(to, source.data() + at % source.size(), std::min(piece_bytes, total - at));
  }
}

struct Buffers {
  Bytes source, second, destination, other;
};

/// Returns buffers for each thread of the team.
std::vector<Buffers> buffers_for(const Team& team, std::size_t source, std::size_t second, std::size_t destination,
                                 std::size_t other) {
  std::vector<Buffers> all;
  for (int thread = 0; thread < team.size(); ++thread)
    all.push_back({Bytes(source), Bytes(second), Bytes(destination), Bytes(other)});
  return all;
}

void measure_own_cache(Team& team, HostRates& rates) {
  static constexpr std::size_t rounds = 16;
  const std::size_t bytes = std::min(piece_bytes, rates.memory.core_cache_bytes / 8);
  const std::vector<Buffers> all = buffers_for(team, bytes, bytes, bytes, bytes);
  const auto repeated = [&](auto work) {
    return rate_of(team, rounds * bytes, repeats, [&all, work](int thread) {
      for (std::size_t i = 0; i < rounds; ++i) work(all[static_cast<std::size_t>(thread)]);
    });
  };
  rates.copy_gbps = repeated([=](const Buffers& mine) {
    copy(std::array{ReduceDestination{mine.destination.data()}}, mine.source.data(), bytes);
  });
  rates.memory.two_copies_gbps = repeated([=](const Buffers& mine) {
    copy(std::array{ReduceDestination{mine.destination.data()}, ReduceDestination{mine.other.data()}},
         mine.source.data(), bytes);
  });
  rates.reduce_gbps = 2 * repeated([=](const Buffers& mine) {
                        const std::array sources{ReduceSource{mine.source.data()}, ReduceSource{mine.second.data()}};
                        const std::array to{ReduceDestination{mine.destination.data()}};
                        reduce({.sources = sources, .destinations = to, .count = bytes / sizeof(float)});
                      });
}

struct BetweenCores {
  double fetch_gbps = 0;
  double replace_gbps = 0;
  double replace_beside_gbps = 0;
};

/// Every thread writes its buffer and then copies its neighbour's. So a thread fetches what another core has just
/// written, and writes over what another core has just read. Every other time it writes a second, private buffer as
/// well.
BetweenCores between_cores(Team& team) {
  const auto threads = static_cast<std::size_t>(team.size());
  const std::vector<Buffers> all = buffers_for(team, piece_bytes, piece_bytes, piece_bytes, piece_bytes);
  std::vector<std::vector<double>> fetches(threads), replaces(threads), both(threads);
  team.run([&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    const Buffers& mine = all[index];
    const Buffers& neighbour = all[(index + 1) % threads];
    const std::array shared{ReduceDestination{mine.other.data()}};
    const std::array beside{ReduceDestination{mine.second.data()}, ReduceDestination{mine.other.data()}};
    for (int i = 0; i < 4 * repeats; ++i) {
      const bool alone = i % 2 == 0;
      team.meet();
      double began = now_us();
      copy(alone ? std::span<const ReduceDestination>(shared) : beside, mine.source.data(), piece_bytes);
      (alone ? replaces : both)[index].push_back(now_us() - began);
      team.meet();
      began = now_us();
      copy(std::array{ReduceDestination{mine.destination.data()}}, neighbour.other.data(), piece_bytes);
      fetches[index].push_back(now_us() - began);
    }
  });
  const auto rate = [](const std::vector<std::vector<double>>& by_thread) {
    double slowest_us = 0;
    for (const auto& times_us : by_thread) slowest_us = std::max(slowest_us, quick_quarter(times_us));
    return piece_bytes / (slowest_us * bytes_per_us);
  };
  return {rate(fetches), rate(replaces), rate(both)};
}

void measure_shared_cache(Team& team, HostRates& rates) {
  const auto threads = static_cast<std::size_t>(team.size());
  const std::size_t share = rates.cache_bytes / 4 / threads;
  const std::size_t bytes = std::min(8 * rates.memory.core_cache_bytes, share) / piece_bytes * piece_bytes;
  if (bytes < 2 * rates.memory.core_cache_bytes) {  // the shared cache is not much larger than the own caches
    rates.memory.shared_read_gbps = rates.memory.shared_write_gbps = rates.copy_gbps;
    return;
  }
  const std::vector<Buffers> all = buffers_for(team, bytes, 0, piece_bytes, 0);
  rates.memory.shared_read_gbps = rate_of(team, bytes, repeats, [&](int thread) {
    const Buffers& mine = all[static_cast<std::size_t>(thread)];
    copy_through(mine.destination, mine.source);
  });
  rates.memory.shared_write_gbps = rate_of(team, bytes, repeats, [&](int thread) {
    const Buffers& mine = all[static_cast<std::size_t>(thread)];
    copy_through(mine.source, mine.destination);
  });
}

/// Measures a rate of DRAM for long messages. Machines, above all virtual ones, are faster in the first moments, so
/// this waits until they are over.
double lasting_rate_of(Team& team, std::size_t bytes, const std::function<void(int)>& work) {
  constexpr double settle_us = 3e4;
  const double began = now_us();
  int passes = 0;
  for (; passes < 4 || now_us() - began < settle_us; ++passes) team.run(work);
  return rate_of(team, bytes, std::max(4, passes / 2), work);
}

/// Measures copies between two halves of `total_bytes`, divided among all threads. Returns the rate per thread, in
/// GB/s.
double copy_rate_of(Team& team, std::size_t total_bytes, bool streaming = false) {
  const std::size_t half = std::max(piece_bytes, total_bytes / 2 / static_cast<std::size_t>(team.size()));
  const std::vector<Buffers> all = buffers_for(team, half, 0, half, 0);
  return lasting_rate_of(team, half, [&](int thread) {
    const Buffers& mine = all[static_cast<std::size_t>(thread)];
    copy_through(mine.destination, mine.source, streaming);
  });
}

void measure_dram(Team& team, HostRates& rates) {
  const Bytes small(piece_bytes);
  const std::size_t bytes = std::max<std::size_t>(3 * rates.cache_bytes, 64 << 20) / piece_bytes * piece_bytes;
  {
    Team alone({usable_cores().front()});
    const Bytes large(bytes);
    rates.memory.dram_read_gbps = lasting_rate_of(alone, bytes, [&](int) { copy_through(small, large); });
    rates.memory.dram_write_gbps = lasting_rate_of(alone, bytes, [&](int) { copy_through(large, small); });
    rates.memory.stream_gbps = lasting_rate_of(alone, bytes, [&](int) { copy_through(large, small, true); });
  }
  const auto threads = static_cast<double>(team.size());
  const std::size_t share =
      std::max(bytes / static_cast<std::size_t>(team.size()) / piece_bytes, std::size_t{1}) * piece_bytes;
  const std::vector<Buffers> all = buffers_for(team, share, 0, piece_bytes, 0);
  const auto rate_of_all = [&](auto work) {
    return threads * lasting_rate_of(team, share, [&](int thread) { work(all[static_cast<std::size_t>(thread)]); });
  };
  const double read = rate_of_all([](const Buffers& mine) { copy_through(mine.destination, mine.source); });
  const double write = rate_of_all([](const Buffers& mine) { copy_through(mine.source, mine.destination); });
  const double stream = threads * copy_rate_of(team, 2 * bytes, true);
  rates.dram_copy_gbps = threads * copy_rate_of(team, 2 * bytes);
  // Collectives read and write at the same time, so only the ratio of the rates of reading alone and writing alone is
  // used.
  constexpr double least = 0.05, most = 0.95;
  rates.memory.dram_read_part = std::clamp(write / (read + write), least, most);
  rates.memory.dram_stream_part =
      std::clamp(rates.dram_copy_gbps / stream - rates.memory.dram_read_part, least, 1 - rates.memory.dram_read_part);
}

/// Returns how much of a cache of `nominal` bytes serves this machine's copies. Caches are not perfect, and other
/// virtual machines may use a part. Copies within u bytes get slower once u exceeds the effective size. The result is
/// the size that best explains the measured times if share_beyond(size, u) of the bytes come from beyond the cache.
std::size_t effective_bytes(Team& team, std::size_t nominal, std::size_t users, double cached_gbps,
                            double beyond_gbps) {
  if (beyond_gbps >= cached_gbps) return nominal;  // the cache makes no difference
  const auto whole = static_cast<double>(nominal);
  std::vector<std::pair<double, double>> beyond;  // bytes used, and the share of them that came from beyond the cache
  for (const double part : {0.5, 0.75, 1.0, 1.25, 1.5, 2.0}) {
    const double gbps = copy_rate_of(team, users * static_cast<std::size_t>(part * whole));
    const double share = (1 / gbps - 1 / cached_gbps) / (1 / beyond_gbps - 1 / cached_gbps);
    beyond.emplace_back(part * whole, std::clamp(share, 0.0, 1.0));
  }
  double least_error = std::numeric_limits<double>::infinity();
  double best = whole;
  for (int percent = 20; percent <= 100; ++percent) {
    const double size = whole * percent / 100;
    double error = 0;
    for (const auto& [used, share] : beyond) error += std::pow(share - share_beyond(size, used), 2);
    if (error > least_error) continue;
    least_error = error;
    best = size;
  }
  return static_cast<std::size_t>(best);
}

void measure_cache_sizes(Team& team, HostRates& rates) {
  const auto cores = static_cast<std::size_t>(team.size());
  const std::size_t own = rates.memory.core_cache_bytes;
  const double own_gbps = copy_rate_of(team, cores * own / 4);
  const double shared_gbps = copy_rate_of(team, std::min(cores * own * 4, rates.cache_bytes / 2));
  rates.memory.core_cache_bytes = effective_bytes(team, own, cores, own_gbps, shared_gbps);
  const double dram_gbps = rates.dram_copy_gbps / static_cast<double>(cores);
  rates.cache_bytes = effective_bytes(team, rates.cache_bytes, 1, shared_gbps, dram_gbps);
}

}  // namespace

/// Takes the best result of several sets of buffers: if two buffers happen to collide in the first-level caches, rates
/// are halved.
void measure_between_cores(Team& team, HostRates& rates) {
  const bool alone = team.size() < 2;
  rates.memory.fetch_gbps = rates.memory.replace_gbps = alone ? rates.copy_gbps : 0;
  rates.memory.replace_beside_gbps = alone ? rates.memory.two_copies_gbps : 0;
  for (int attempt = 0; team.size() > 1 && attempt < 5; ++attempt) {
    const BetweenCores found = between_cores(team);
    rates.memory.fetch_gbps = std::max(rates.memory.fetch_gbps, found.fetch_gbps);
    rates.memory.replace_gbps = std::max(rates.memory.replace_gbps, found.replace_gbps);
    rates.memory.replace_beside_gbps = std::max(rates.memory.replace_beside_gbps, found.replace_beside_gbps);
  }
}

HostRates measure_memory() {
  HostRates rates;
  const CacheSizes caches = cache_sizes();
  rates.memory.core_cache_bytes = caches.core_bytes;
  rates.cache_bytes = caches.shared_bytes;
  Team team(usable_cores());
  measure_own_cache(team, rates);
  measure_between_cores(team, rates);
  measure_shared_cache(team, rates);
  measure_dram(team, rates);
  measure_cache_sizes(team, rates);
  return rates;
}

}  // namespace strait::doctor
