#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command.hpp"
#include "exit_code.hpp"
#include "run/serve.hpp"

namespace strait::tools {
namespace {

// As shells have it.
constexpr int not_found = 127;
constexpr int not_executable = 126;

struct Options {
  std::string library;
  bool quiet = false;
  std::vector<std::string> words;  ///< the command and its arguments
};

bool is_option(const std::string& word) { return word.size() > 1 && word.front() == '-'; }

/// Does not return unless the command cannot be run.
int run_served(Options& options) {
  auto& words = options.words;
  const auto refuse = [](const std::string& problem, int code) {
    std::cerr << "strait run: " << problem << "\n";
    return code;
  };
  const auto path = run::find_library(options.library);
  if (!path) return refuse(path.error().message, failed);
  const auto version = run::try_library(*path);
  if (!version) return refuse(version.error().message, failed);
  if (const Status set = run::set_environment(*path); !set) return refuse(set.error().message, failed);
  if (!options.quiet)
    std::cerr << "strait run: " << words.front() << " gets NCCL " << *version / 10000 << "." << *version / 100 % 100
              << "." << *version % 100 << " from " << *path << std::endl;
  if (!STRAIT_BUILT_WITH_CUDA && options.library.empty() && !options.quiet)
    std::cerr
        << "strait run: warning: this build has no GPU support: a program that makes a communicator on a GPU gets "
           "an error. Install the CUDA toolkit (nvcc) and build again"
        << std::endl;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  const int reason = errno;
  return refuse(words.front() + ": " + std::strerror(reason), reason == ENOENT ? not_found : not_executable);
}

}  // namespace

void add_run(CLI::App& app, std::optional<std::span<char* const>> behind_dashes, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("run", "Run a program that uses NCCL on Strait instead: strait run -- command arguments...");
  const auto options = std::make_shared<Options>();
  command->add_option("--library", options->library,
                      "The libnccl.so.2 to run it on (default: the one installed or built with this command)");
  command->add_flag("--quiet", options->quiet, "Print nothing before the program starts");
  command->allow_extras();  // an option that takes many words would split those in brackets, as lists
  command->callback([command, options, behind_dashes, &exit_code] {
    options->words = command->remaining();
    std::vector<std::string> strangers;
    std::copy_if(options->words.begin(), options->words.end(), std::back_inserter(strangers),
                 [&](const std::string& word) { return behind_dashes || is_option(word); });
    if (!strangers.empty()) throw CLI::ExtrasError(command->get_name(), strangers);
    if (behind_dashes) options->words.assign(behind_dashes->begin(), behind_dashes->end());
    if (options->words.empty()) throw CLI::RequiredError("command");
    exit_code = run_served(*options);
  });
}

}  // namespace strait::tools
