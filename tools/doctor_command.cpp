#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "command.hpp"
#include "doctor/calibrate.hpp"

namespace strait::tools {

void add_doctor(CLI::App& app, int& exit_code) {
  struct Wish {
    bool calibrate = false;
    std::string path;
  };
  CLI::App* command = app.add_subcommand("doctor", "Look for what makes this machine slow");
  const auto wish = std::make_shared<Wish>();
  CLI::Option* calibrate =
      command->add_flag("--calibrate", wish->calibrate, "Measure this machine's rates (10 s) and keep them");
  command->add_option("-o,--output", wish->path, "With --calibrate: write this file, not that of the cache folder")
      ->needs(calibrate);
  command->callback([wish, &exit_code] {
    if (wish->calibrate) exit_code = doctor::calibrate(wish->path);
  });
}

}  // namespace strait::tools
