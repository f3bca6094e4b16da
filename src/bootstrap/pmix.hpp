#pragma once

#include <functional>

#include "bootstrap/socket.hpp"
#include "bootstrap/unique_id.hpp"

namespace strait {

struct PmixMeeting {
  UniqueId id;
  int ranks = 0;
};

/// Exchanges a unique id through the launcher's PMIx server: rank 0 makes it by `make_id` and puts it into the server's
/// store, or the error if that fails, which is then all ranks'. libpmix is loaded at run time. Collective over all
/// ranks of the job.
Result<PmixMeeting> meet_through_pmix(int rank, const std::function<Result<UniqueId>()>& make_id, const Wait& wait);

}  // namespace strait
