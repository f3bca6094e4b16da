#pragma once

#include <string>

#include "base/error.hpp"

/// `strait run`: lets Strait's libnccl.so.2 serve a program instead of NVIDIA's.
namespace strait::tools::run {

/// Finds the library: `given`, or the one beside this program, in a build tree as well as in an installation. Returns
/// an absolute path, with symbolic links resolved if LD_PRELOAD can take the result.
Result<std::string> find_library(const std::string& given);
/// Loads the library in this process and returns the NCCL version that it reports, such as 22809. This check is
/// necessary because the loader only warns of a preload that it cannot load, and then another NCCL would serve.
Result<int> try_library(const std::string& path);
/// Sets the environment variables by which the loader, and programs that search for NCCL themselves, find the library.
Status set_environment(const std::string& path);

}  // namespace strait::tools::run
