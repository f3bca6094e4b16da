#include "executor/copy_engine/options.hpp"

namespace strait::staged {

Result<StagedOptions> staged_options(const Environment& environment) {
  StagedOptions options;
  STRAIT_ASSIGN(const auto reducers, environment.integer("STRAIT_CPU_REDUCERS"));
  options.reducers = static_cast<std::uint32_t>(reducers);
  return options;
}

}  // namespace strait::staged
