#pragma once

#include <span>
#include <string>

#include "base/error.hpp"

namespace strait {

/// Whether NVLink (and no PCIe) joins this process's `device` with every GPU of `bus_ids`, itself among them. The
/// difference matters: over NVLink a line of 128 bytes arrives whole, over PCIe no more than 16 bytes are sure to.
/// An error names the first GPU that it does not reach so.
Status check_nvlink(int device, std::span<const std::string> bus_ids);

}  // namespace strait
