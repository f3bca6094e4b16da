#include "bootstrap/pmix.hpp"

namespace strait {

Result<PmixMeeting> meet_through_pmix(int, const std::function<Result<UniqueId>()>&, const Wait&) {
  return fail(Code::unsupported,
              "the ranks would meet through the launcher's PMIx, for which this Strait was built without pmix.h: set "
              "STRAIT_ROOT and STRAIT_KEY on all ranks");
}

}  // namespace strait
