#pragma once

#include <atomic>
#include <string>

/// GPU ranks of no GPU: they carry nothing out, and fail on demand.
namespace strait::testing {

struct FakeGpu {
  std::string launch_error;  ///< of the next launches; "": they succeed
  std::atomic<bool> captures{false};
  std::atomic<int> idle{-1};  ///< 1, 0, or -1: unknown
  std::atomic<int> launches{0};
};
inline FakeGpu fake_gpu;

}  // namespace strait::testing
