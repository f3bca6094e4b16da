#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transports/slots/segment_transport.hpp"

/// Loopback: ranks that are threads of one process. The segment is private memory that they find under the
/// communicator's name, and every rank reads and writes the others' buffers at the same addresses.
namespace strait::loopback {

/// `name` is the same on all ranks of the communicator and on no other communicator of the process.
Result<std::unique_ptr<slots::SegmentTransport>> open(const std::string& name, const slots::Geometry& geometry,
                                                      std::uint32_t rank);

}  // namespace strait::loopback
