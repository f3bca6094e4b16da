#pragma once

#include <string>

#include "base/error.hpp"

/// `strait run`: has Strait's libnccl.so.2 serve a program.
namespace strait::tools::run {

/// Where the library is: `given`, or beside this program (build and install trees alike). An absolute path,
/// without links where it can be preloaded.
Result<std::string> find_library(const std::string& given);
/// The NCCL version that the library says it is, such as 22809, once it is loaded here. The loader only warns of a
/// preload that it cannot load, and lets another NCCL serve: so this is tried first.
Result<int> try_library(const std::string& path);
/// Sets the environment by which the loader, and programs that look for NCCL by themselves, take the library.
Status set_environment(const std::string& path);

}  // namespace strait::tools::run
