#include <sched.h>
#include <strait/strait.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "doctor/for_now.hpp"
#include "doctor/measure.hpp"
#include "doctor/team.hpp"

namespace strait::doctor {
namespace {

constexpr int turns = 2000;
constexpr int repeats = 15;

struct alignas(64) Word {
  std::atomic<std::uint64_t> value{0};
};

struct CommDestroyer {
  void operator()(straitComm_t comm) const { straitCommDestroy(comm); }
};

/// A communicator of this thread alone: a call on it is a copy, in slices.
Result<double> call_us(straitComm_t comm, std::size_t bytes) {
  std::vector<std::byte> send(bytes), receive(bytes);
  std::vector<double> times;
  for (int i = 0; i < 2 * repeats; ++i) {
    constexpr int calls = 200;
    const double began = now_us();
    for (int c = 0; c < calls; ++c)
      if (straitAllGather(send.data(), receive.data(), bytes, straitUint8, comm, nullptr) != straitSuccess)
        return fail(Code::system_error, std::string("a call on one rank failed: ") + straitGetLastError(comm));
    times.push_back((now_us() - began) / calls);
  }
  return quick_quarter(std::move(times));
}

}  // namespace

double handover_us(Team& pair, bool yields) {
  Word words[2];
  std::vector<double> times;
  pair.run([&](int thread) {
    std::uint64_t turn = 0;
    for (int i = 0; i < repeats; ++i) {
      const double began = now_us();
      for (int t = 0; t < turns; ++t) {
        ++turn;
        const auto wait = [&] {
          while (words[1 - thread].value.load(std::memory_order_acquire) < turn)
            if (yields) sched_yield();
        };
        if (thread == 1) wait();
        words[thread].value.store(turn, std::memory_order_release);
        if (thread == 0) wait();
      }
      if (thread == 0) times.push_back((now_us() - began) / (2 * turns));
    }
  });
  return quick_quarter(std::move(times));
}

Status measure_overheads(HostRates& rates) {
  const std::vector<int> cores = usable_cores();
  Team together({cores.front(), cores.front()});
  rates.switch_us = handover_us(together, true);
  rates.latency_us = rates.switch_us;
  if (cores.size() > 1) {
    Team apart({cores.front(), cores.back()});
    rates.latency_us = handover_us(apart, false);
  }

  constexpr int slice_bytes = 64;
  constexpr int slices = 64;
  const ForNow small_slices("STRAIT_SLICE_BYTES", std::to_string(slice_bytes));
  const ForNow no_warnings("STRAIT_DEBUG", "off");  // that these slices are too small is known
  straitUniqueId id;
  straitComm_t comm = nullptr;
  if (straitGetUniqueId(&id) != straitSuccess || straitCommInitRank(&comm, 1, &id, 0, nullptr) != straitSuccess)
    return fail(Code::system_error, std::string("one rank cannot start: ") + straitGetLastError(nullptr));
  const std::unique_ptr<straitComm, CommDestroyer> owner(comm);
  STRAIT_ASSIGN(const double one_us, call_us(comm, slice_bytes));
  STRAIT_ASSIGN(const double many_us, call_us(comm, slices * slice_bytes));
  const double bytes_us = slices * slice_bytes / (rates.copy_gbps * 1e3);
  rates.step_us = std::max((many_us - one_us - bytes_us) / (slices - 1), 1e-3);
  rates.call_us = std::max(one_us - rates.step_us, 1e-3);
  return {};
}

}  // namespace strait::doctor
