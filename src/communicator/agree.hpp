#pragma once

#include <string>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "bootstrap/channel.hpp"

namespace strait {

/// Returns success if `own` is success on all ranks; otherwise this rank's own error, or that of the first rank that
/// failed, as "rank 1 (...) cannot <what>: ...". Collective.
Status agree(Channel& channel, const Status& own, const std::string& what, const Deadline& deadline);

}  // namespace strait
