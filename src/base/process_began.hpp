#pragma once

#include <cstdint>

namespace strait {

/// Returns when this process was started, in microseconds since 1970, to about 10 ms and never too late; 0 if the
/// system does not tell. With host and pid it names a process even where pids come again, as in containers.
std::int64_t process_began_unix_us();

}  // namespace strait
