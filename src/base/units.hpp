#pragma once

namespace strait {

/// One GB/s, in bytes per microsecond.
inline constexpr double bytes_per_us = 1e3;

}  // namespace strait
