#pragma once

#include <iostream>

#include "base/error.hpp"

/// Exit codes of the subcommands; those of `strait doctor` are its own.
namespace strait::tools {

inline constexpr int failed = 1;       ///< or the results are wrong
inline constexpr int usage_error = 2;  ///< what was asked for makes no sense

/// Prints a subcommand's error, if there is one, and returns the exit code. An error of what the command line
/// asks for is a usage error; one of the environment or of a file that is read is Code::invalid_usage or
/// Code::system_error.
inline int report_and_exit_code(const char* subcommand, const Status& status) {
  if (status) return 0;
  std::cerr << "strait " << subcommand << ": " << status.error().message << "\n";
  const Code code = status.error().code;
  return code == Code::invalid_argument || code == Code::unsupported ? usage_error : failed;
}

}  // namespace strait::tools
