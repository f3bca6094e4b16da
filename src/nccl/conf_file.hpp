#pragma once

#include <map>
#include <string>

namespace strait::nccl {

/// What NCCL's files of settings say, lines such as NCCL_DEBUG=WARN: NCCL_CONF_FILE, or else ~/.nccl.conf and then
/// /etc/nccl.conf. Read once, before other threads change the environment. What an earlier file says wins, and what the
/// environment says comes before both.
const std::map<std::string, std::string>& settings_of_files();

/// The value of an NCCL setting: of the environment, or else of the files. "": there is none.
std::string their_setting(const char* name);

}  // namespace strait::nccl
