#pragma once

#include <map>
#include <string>

namespace strait::nccl {

/// Returns the settings in NCCL's configuration files (lines such as NCCL_DEBUG=WARN): the file that NCCL_CONF_FILE
/// names, otherwise ~/.nccl.conf; then /etc/nccl.conf. If both files contain a setting, the first file takes
/// precedence; the environment takes precedence over both. The files are read once, at the first call, which must come
/// before other threads change the environment.
const std::map<std::string, std::string>& settings_of_files();

/// Returns the value of an NCCL setting from the environment, otherwise from the files; "" if it is set nowhere.
std::string nccl_setting(const char* name);

}  // namespace strait::nccl
