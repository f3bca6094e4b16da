#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "command.hpp"
#include "exit_code.hpp"

namespace {

using strait::tools::failed;
using strait::tools::usage_error;

/// Opens what the caller has closed of the three standard streams, because a socket would take its number, and get what
/// is printed. What is printed to a closed standard output is lost, which is an error (is_all_printed()). It becomes a
/// folder: nothing can be written to one, by the name /dev/stdout neither. Programs that this one starts find it
/// closed.
void hold_standard_streams() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (::fcntl(file, F_GETFD) != -1) continue;
    const bool is_output = file == STDOUT_FILENO;
    // Takes the number `file`, the lowest that is free.
    (void)(is_output ? ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : ::open("/dev/null", O_RDWR));
  }
}

/// CLI11 would only say that a subcommand is missing.
bool is_unknown_subcommand(const CLI::App& app, const std::string& word) {
  const auto has_its_name = [&](const CLI::App* known) { return known->check_name(word); };
  if (word.empty() || word.front() == '-' || !app.get_subcommands(has_its_name).empty()) return false;
  std::cerr << "strait: there is no subcommand '" << word << "'. Run with --help for those that there are\n";
  return true;
}

/// The words behind the first `--` of `strait run`, which CLI11 does not get to see: they are another program's.
std::optional<std::span<char* const>> words_to_run(std::span<char* const> words) {
  if (words.size() < 2 || std::string_view(words[1]) != "run") return std::nullopt;
  const auto dashes = std::find(words.begin(), words.end(), std::string_view("--"));
  if (dashes == words.end()) return std::nullopt;
  return std::span(dashes + 1, words.end());
}

/// An empty word is a variable that a script has not set, and would pass for an option that was not given.
void refuse_empty_words(CLI::App& app) {
  const auto refuse = [](const std::string& word) {
    return word.empty() ? std::string("the value is empty. Give one, or leave it out") : std::string();
  };
  for (CLI::App* command : app.get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (option->get_expected_min() > 0) option->transform(CLI::Validator(refuse, ""));
}

/// Neither a full disk nor a closed standard output must pass for a success.
bool is_all_printed() {
  errno = 0;
  if (std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  std::cerr << "strait: cannot write to standard output" << (errno != 0 ? ": " : "")
            << (errno != 0 ? std::strerror(errno) : "") << "\n";
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  CLI::App app("Strait: collective communication for narrow links", "strait");
  app.require_subcommand(1);
  int exit_code = 0;
  strait::tools::add_doctor(app, exit_code);
  strait::tools::add_explain(app, exit_code);
  strait::tools::add_sim(app, exit_code);
  strait::tools::add_perf(app, exit_code);
  strait::tools::add_plan(app, exit_code);
  const auto behind_dashes = words_to_run({argv, static_cast<std::size_t>(argc)});
  strait::tools::add_run(app, behind_dashes, exit_code);
  strait::tools::add_trace(app, exit_code);
  strait::tools::add_topo(app, exit_code);
  strait::tools::add_environment(app, exit_code);
  strait::tools::add_version(app);
  refuse_empty_words(app);
  if (argc > 1 && is_unknown_subcommand(app, argv[1])) return usage_error;
  try {
    app.parse(behind_dashes ? argc - static_cast<int>(behind_dashes->size()) - 1 : argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return usage_error;
    return is_all_printed() ? 0 : failed;
  }
  return is_all_printed() ? exit_code : failed;
}
