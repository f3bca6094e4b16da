#include <strait/strait.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "command.hpp"

namespace strait::tools {
namespace {

std::string dotted(int major, int minor, int patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

std::string versions() {
  int library = 0;
  straitGetVersion(&library);  // refuses NULL alone
  return "strait " + dotted(STRAIT_MAJOR, STRAIT_MINOR, STRAIT_PATCH) + ", library " +
         dotted(library / 10000, library / 100 % 100, library % 100) +
         (STRAIT_BUILT_WITH_CUDA ? "" : ", without GPU support (built without nvcc)");
}

}  // namespace

void add_version(CLI::App& app) {
  const char* what = "Print the versions of this command and of the library it loads";
  app.add_subcommand("version", what)->callback([] { std::cout << versions() << "\n"; });
  app.set_version_flag("--version", versions, what);
}

}  // namespace strait::tools
