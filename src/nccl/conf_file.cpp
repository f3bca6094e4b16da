#include "nccl/conf_file.hpp"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <vector>

namespace strait::nccl {
namespace {

std::string home() {
  if (const char* value = std::getenv("HOME"); value != nullptr) return value;
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> memory(16384);
  if (getpwuid_r(getuid(), &entry, memory.data(), memory.size(), &found) != 0 || found == nullptr) return "";
  return entry.pw_dir;
}

void read(const std::string& path, std::map<std::string, std::string>& settings) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    settings.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
}

}  // namespace

const std::map<std::string, std::string>& settings_of_files() {
  static const std::map<std::string, std::string> settings = [] {
    std::map<std::string, std::string> found;
    if (const char* file = std::getenv("NCCL_CONF_FILE"); file != nullptr && *file != '\0') {
      read(file, found);
    } else {
      if (const std::string folder = home(); !folder.empty()) read(folder + "/.nccl.conf", found);
    }
    read("/etc/nccl.conf", found);
    return found;
  }();
  return settings;
}

std::string nccl_setting(const char* name) {
  if (const char* value = std::getenv(name); value != nullptr) return value;
  const auto found = settings_of_files().find(name);
  return found == settings_of_files().end() ? "" : found->second;
}

}  // namespace strait::nccl
