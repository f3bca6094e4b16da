#pragma once

#include <string>
#include <vector>

#include "nccl/nccl_abi.h"

namespace strait::nccl {

/// Reads a program's configuration, which may be shorter or longer than ours and of an older version: what it does not
/// know keeps its default. `config` may be NULL. On an error `problem` says what is wrong.
ncclResult_t read_config(const ncclConfig_t* config, ncclConfig_t& out, std::string& problem);

/// Thread blocks of an operation, as max_sms of Strait's configuration; 0: it says nothing.
int max_sms_of(const ncclConfig_t& config);

/// The fields that the program has set and that mean nothing here (docs/nccl.md), by name.
std::vector<const char*> ignored_fields(const ncclConfig_t& config);

}  // namespace strait::nccl
