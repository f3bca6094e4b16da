#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "doctor/measure.hpp"
#include "doctor/team.hpp"
#include "executor/host/reduce.hpp"
#include "select/calibration.hpp"

namespace strait::doctor {
namespace {

constexpr std::size_t piece_bytes = 64 << 10;  // as large as a slice
constexpr int repeats = 25;
constexpr double bytes_per_us = 1e3;  // of one GB/s

using Bytes = std::vector<std::byte>;

/// Copies piece by piece through `source` and `destination`, the shorter of which is used again and again.
void copy_through(Bytes& destination, const Bytes& source, bool streaming = false) {
  const std::size_t total = std::max(destination.size(), source.size());
  for (std::size_t at = 0; at < total; at += piece_bytes) {
    const std::array to{ReduceDestination{destination.data() + at % destination.size(), false, streaming}};
    copy(to, source.data() + at % source.size(), std::min(piece_bytes, total - at));
  }
}

/// GB/s of each of the team's threads, all at it at once: `work` by thread moves `bytes`.
double rate_of(Team& team, std::size_t bytes, int times, const std::function<void(int)>& work) {
  std::vector<std::vector<double>> taken(static_cast<std::size_t>(team.size()));
  team.run([&](int thread) {
    work(thread);
    for (int i = 0; i < times; ++i) {
      team.meet();
      const double began = now_us();
      work(thread);
      taken[static_cast<std::size_t>(thread)].push_back(now_us() - began);
    }
  });
  double slowest_us = 0;
  for (auto& times_us : taken) slowest_us = std::max(slowest_us, quick_quarter(std::move(times_us)));
  return static_cast<double>(bytes) / (slowest_us * bytes_per_us);
}

struct Buffers {
  Bytes source, second, destination, other;
};

void measure_own_cache(Team& team, HostRates& rates) {
  static constexpr std::size_t rounds = 16;
  const std::size_t bytes = std::min(piece_bytes, rates.memory.core_cache_bytes / 8);
  const auto threads = static_cast<std::size_t>(team.size());
  std::vector<Buffers> all(threads, {Bytes(bytes), Bytes(bytes), Bytes(bytes), Bytes(bytes)});
  const auto repeated = [&](auto work) {
    return rate_of(team, rounds * bytes, repeats, [&all, work](int thread) {
      for (std::size_t i = 0; i < rounds; ++i) work(all[static_cast<std::size_t>(thread)]);
    });
  };
  rates.copy_gbps = repeated(
      [=](Buffers& mine) { copy(std::array{ReduceDestination{mine.destination.data()}}, mine.source.data(), bytes); });
  rates.memory.two_copies_gbps = repeated([=](Buffers& mine) {
    copy(std::array{ReduceDestination{mine.destination.data()}, ReduceDestination{mine.other.data()}},
         mine.source.data(), bytes);
  });
  rates.reduce_gbps = 2 * repeated([=](Buffers& mine) {
                        const std::array sources{ReduceSource{mine.source.data()}, ReduceSource{mine.second.data()}};
                        const std::array to{ReduceDestination{mine.destination.data()}};
                        reduce({.sources = sources, .destinations = to, .count = bytes / sizeof(float)});
                      });
}

/// Every thread writes its buffer, then copies its neighbour's: what is fetched was just written on another core, and
/// what is written was just read there.
void measure_between_cores(Team& team, HostRates& rates) {
  if (team.size() < 2) {
    rates.memory.fetch_gbps = rates.memory.replace_gbps = rates.copy_gbps;
    return;
  }
  const auto threads = static_cast<std::size_t>(team.size());
  std::vector<Buffers> all(threads, {Bytes(piece_bytes), {}, Bytes(piece_bytes), Bytes(piece_bytes)});
  std::vector<std::vector<double>> fetches(threads), replaces(threads);
  team.run([&](int thread) {
    const auto index = static_cast<std::size_t>(thread);
    Buffers& mine = all[index];
    const Buffers& neighbour = all[(index + 1) % threads];
    for (int i = 0; i < 8 * repeats; ++i) {
      team.meet();
      double began = now_us();
      copy(std::array{ReduceDestination{mine.other.data()}}, mine.source.data(), piece_bytes);
      replaces[index].push_back(now_us() - began);
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
  rates.memory.fetch_gbps = rate(fetches);
  rates.memory.replace_gbps = rate(replaces);
}

void measure_shared_cache(Team& team, HostRates& rates) {
  const auto threads = static_cast<std::size_t>(team.size());
  const std::size_t share = rates.cache_bytes / 4 / threads;
  const std::size_t bytes = std::min(8 * rates.memory.core_cache_bytes, share) / piece_bytes * piece_bytes;
  if (bytes < 2 * rates.memory.core_cache_bytes) {  // the caches are of one size
    rates.memory.shared_read_gbps = rates.memory.shared_write_gbps = rates.copy_gbps;
    return;
  }
  std::vector<Buffers> all(threads, {Bytes(bytes), {}, Bytes(piece_bytes), {}});
  rates.memory.shared_read_gbps = rate_of(team, bytes, repeats, [&](int thread) {
    Buffers& mine = all[static_cast<std::size_t>(thread)];
    copy_through(mine.destination, mine.source);
  });
  rates.memory.shared_write_gbps = rate_of(team, bytes, repeats, [&](int thread) {
    Buffers& mine = all[static_cast<std::size_t>(thread)];
    copy_through(mine.source, mine.destination);
  });
}

void measure_dram(Team& team, HostRates& rates) {
  constexpr int passes = 7;
  Bytes small(piece_bytes);
  const std::size_t bytes = std::max<std::size_t>(2 * rates.cache_bytes, 64 << 20) / piece_bytes * piece_bytes;
  {
    Team alone({usable_cores().front()});
    Bytes large(bytes);
    rates.memory.dram_read_gbps = rate_of(alone, bytes, passes, [&](int) { copy_through(small, large); });
    rates.memory.dram_write_gbps = rate_of(alone, bytes, passes, [&](int) { copy_through(large, small); });
    rates.memory.stream_gbps = rate_of(alone, bytes, passes, [&](int) { copy_through(large, small, true); });
  }
  const auto threads = static_cast<std::size_t>(team.size());
  const std::size_t share = std::max(bytes / threads / piece_bytes, std::size_t{1}) * piece_bytes;
  std::vector<Buffers> all(threads, {Bytes(share), {}, Bytes(share), {}});
  rates.dram_copy_gbps = static_cast<double>(threads) * rate_of(team, share, passes, [&](int thread) {
                           Buffers& mine = all[static_cast<std::size_t>(thread)];
                           copy_through(mine.destination, mine.source);
                         });
}

}  // namespace

void measure_memory(HostRates& rates) {
  const CacheSizes caches = cache_sizes();
  rates.memory.core_cache_bytes = caches.core_bytes;
  rates.cache_bytes = caches.shared_bytes;
  Team team(usable_cores());
  measure_own_cache(team, rates);
  measure_between_cores(team, rates);
  measure_shared_cache(team, rates);
  measure_dram(team, rates);
}

}  // namespace strait::doctor
