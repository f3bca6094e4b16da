#pragma once

#include <memory>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// The streams of a CUDA device, which must be usable. Its calls may be made with any device current. Streams are
/// cudaStream_t, the default ones included.
/// Code::unsupported where the driver lacks a call or the device cannot wait for words in memory.
Result<std::unique_ptr<StreamDriver>> open_cuda_streams(int device);

}  // namespace strait::copy_engine
