#pragma once

#include <memory>

#include "base/error.hpp"
#include "executor/copy_engine/stream_driver.hpp"

namespace strait::copy_engine {

/// Opens the streams of a CUDA device, which must be usable. The driver's functions may be called with any device
/// current. Streams are of type cudaStream_t, including the default streams. Fails with Code::unsupported if the CUDA
/// driver lacks a call.
Result<std::unique_ptr<StreamDriver>> open_cuda_streams(int device);

}  // namespace strait::copy_engine
