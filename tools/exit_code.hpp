#pragma once

#include "base/error.hpp"

/// Exit codes of the subcommands; those of `strait doctor` are its own.
namespace strait::tools {

inline constexpr int failed = 1;       ///< or the results are wrong
inline constexpr int usage_error = 2;  ///< what was asked for makes no sense

/// Of an error of what the command line asks for. One of the environment or of a file that is read is
/// Code::invalid_usage or Code::system_error.
inline int exit_code_of(const Error& error) {
  return error.code == Code::invalid_argument || error.code == Code::unsupported ? usage_error : failed;
}

}  // namespace strait::tools
