#include <strait/strait.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "command.hpp"

namespace strait::tools {

void add_version(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("version", "Print the versions of this command and of the library it loads");
  command->callback([&exit_code] {
    int library = 0;
    if (const auto result = straitGetVersion(&library); result != straitSuccess) {
      std::cerr << "strait version: " << straitGetErrorString(result) << "\n";
      exit_code = 1;
      return;
    }
    std::cout << "strait " << STRAIT_MAJOR << "." << STRAIT_MINOR << "." << STRAIT_PATCH << ", library "
              << library / 10000 << "." << library / 100 % 100 << "." << library % 100 << "\n";
  });
}

}  // namespace strait::tools
