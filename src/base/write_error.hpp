#pragma once

#include <string>

#include "base/error.hpp"

namespace strait {

/// Of a file that cannot be written, with what helps against that: "<what>: <strerror(errno_value)>. <remedy>".
tl::unexpected<Error> fail_to_write(std::string what, int errno_value);

}  // namespace strait
