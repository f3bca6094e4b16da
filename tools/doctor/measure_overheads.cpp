#include <strait/strait.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "doctor/for_now.hpp"
#include "doctor/measure.hpp"
#include "doctor/team.hpp"
#include "owned_comm.hpp"

namespace strait::doctor {
namespace {

constexpr int call_repeats = 30;

/// Returns the time of a call on a communicator of one rank, which is a copy in slices.
Result<double> call_us(straitComm_t comm, std::size_t bytes) {
  std::vector<std::byte> send(bytes), receive(bytes);
  std::vector<double> times;
  for (int i = 0; i < call_repeats; ++i) {
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
  const ForNow no_warnings("STRAIT_DEBUG", "off");  // no warning that these slices are too small, which is intended
  straitUniqueId id;
  straitComm_t comm = nullptr;
  if (straitGetUniqueId(&id) != straitSuccess || straitCommInitRank(&comm, 1, &id, 0, nullptr) != straitSuccess)
    return fail(Code::system_error, std::string("one rank cannot start: ") + straitGetLastError(nullptr));
  const tools::OwnedComm owner(comm);
  STRAIT_ASSIGN(const double one_us, call_us(comm, slice_bytes));
  STRAIT_ASSIGN(const double many_us, call_us(comm, slices * slice_bytes));
  const double bytes_us = slices * slice_bytes / (rates.copy_gbps * bytes_per_us);
  rates.step_us = std::max((many_us - one_us - bytes_us) / (slices - 1), 1e-3);
  rates.call_us = std::max(one_us - rates.step_us, 1e-3);
  return {};
}

}  // namespace strait::doctor
