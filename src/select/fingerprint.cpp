#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/hash.hpp"
#include "select/calibration.hpp"

namespace strait {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns the lines of /proc/cpuinfo that identify the first processor, without those that change while it runs (clock
/// rate, bogomips).
std::string processor(const std::filesystem::path& root) {
  constexpr std::array<std::string_view, 7> keys{"vendor_id",        "cpu family",  "model name", "CPU implementer",
                                                 "CPU architecture", "CPU variant", "CPU part"};
  std::ifstream file(root / "proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return line.starts_with(key); }))
      found += line + "\n";
  return found;
}

std::string caches(const std::filesystem::path& root) {
  std::string found;
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path cache = root / "sys/devices/system/cpu/cpu0/cache" / ("index" + std::to_string(index));
    const std::string size = first_line(cache / "size");
    if (size.empty()) break;
    found += first_line(cache / "level") + first_line(cache / "type") + size + first_line(cache / "shared_cpu_list");
  }
  return found;
}

/// Returns the memory size in units of 4 GB, because different kernels reserve different amounts on the same machine.
std::string memory_size(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string word;
  std::uint64_t kilobytes = 0;
  if (file >> word >> kilobytes && word == "MemTotal:") return std::to_string((kilobytes + (2 << 20)) / (4 << 20));
  return "";
}

}  // namespace

CacheSizes cache_sizes(const std::string& root) {
  const std::filesystem::path folder =
      std::filesystem::path(root.empty() ? "/" : root) / "sys/devices/system/cpu/cpu0/cache";
  CacheSizes sizes;
  for (int index = 0; index < 8; ++index) {
    const std::filesystem::path cache = folder / ("index" + std::to_string(index));
    const std::string level = first_line(cache / "level");
    const auto bytes = static_cast<std::size_t>(parse_bytes(first_line(cache / "size")).value_or(0));
    if (bytes == 0) continue;
    if (level == "2") sizes.core_bytes = bytes;
    if (level == "3") sizes.shared_bytes = bytes;
  }
  sizes.shared_bytes = std::max(sizes.shared_bytes, sizes.core_bytes);
  return sizes;
}

std::string machine_fingerprint(const std::string& root) {
  const std::filesystem::path base = root.empty() ? "/" : root;
  const std::string facts = processor(base) + "|" + first_line(base / "sys/devices/system/cpu/present") + "|" +
                            first_line(base / "sys/devices/system/node/possible") + "|" + caches(base) + "|" +
                            memory_size(base);
  return fingerprint_of(facts);
}

std::string fingerprint_of(std::string_view facts) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_text(facts)));
  return digits.data();
}

}  // namespace strait
