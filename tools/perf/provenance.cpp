#include "perf/provenance.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "git_commit.hpp"  // made by cmake/GitCommit.cmake
#include "strait/strait.h"
#include "utc.hpp"

namespace strait::perf {
namespace {

/// The processor's model as the kernel names it; "" where it does not.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
  return "";
}

/// What is set of Strait's variables and NCCL's, without the key, which is a secret.
nlohmann::ordered_json environment() {
  std::map<std::string, std::string> values;
  for (const char* const* entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || !(text.starts_with("STRAIT_") || text.starts_with("NCCL_"))) continue;
    if (!text.starts_with("STRAIT_KEY=")) values.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

}  // namespace

nlohmann::ordered_json provenance() {
  utsname name{};
  uname(&name);
  return {{"time", tools::utc_now()},
          {"strait_version", STRAIT_VERSION},
          {"git_commit", STRAIT_GIT_COMMIT},
          {"compiler", STRAIT_COMPILER},
          {"kernel", std::string(name.sysname) + " " + name.release},
          {"architecture", name.machine},
          {"cpu", processor_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"environment", environment()}};
}

}  // namespace strait::perf
