#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transports/slots/segment_transport.hpp"

/// The loopback transport: ranks are threads of one process. The segment is private memory, which the ranks find by the
/// communicator's name. Every rank reads and writes the others' buffers at the same addresses.
namespace strait::loopback {

/// Opens `rank`'s transport. `name` must be the same on all ranks of the communicator, and unique among the
/// communicators of the process.
Result<std::unique_ptr<slots::SegmentTransport>> open(const std::string& name, const slots::Geometry& geometry,
                                                      std::uint32_t rank);

}  // namespace strait::loopback
