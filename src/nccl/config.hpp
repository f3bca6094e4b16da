#pragma once

#include <string>
#include <vector>

#include "nccl/nccl_abi.h"

namespace strait::nccl {

/// Reads a program's configuration into `out`. It may be of another version, and so shorter or longer than ncclConfig_t
/// here: fields that it does not contain keep their defaults. `config` may be NULL. On an error, `problem` describes
/// it.
ncclResult_t read_config(const ncclConfig_t* config, ncclConfig_t& out, std::string& problem);

/// Returns the number of thread blocks that an operation may use, in the form of `max_sms` of straitConfig_t; 0 if the
/// configuration sets no bound.
int max_sms_of(const ncclConfig_t& config);

/// Returns the names of the fields that the program has set but that have no effect in Strait (docs/nccl.md).
std::vector<const char*> ignored_fields(const ncclConfig_t& config);

}  // namespace strait::nccl
