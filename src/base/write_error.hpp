#pragma once

#include <string>

#include "base/error.hpp"

namespace strait {

/// Returns the error of a file that cannot be written, with a remedy that fits errno: "<what>: <strerror(errno_value)>.
/// <remedy>".
tl::unexpected<Error> fail_to_write(std::string what, int errno_value);

}  // namespace strait
