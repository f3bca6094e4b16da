#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strait {

/// A directory of sysfs. Files that are missing or unreadable read as empty, because containers may hide any of them.
class SysDirectory {
 public:
  explicit SysDirectory(std::string path) : path_(std::move(path)) {}

  SysDirectory sub(const std::string& name) const { return SysDirectory(path_ + "/" + name); }
  bool exists() const;
  std::vector<std::string> names() const;           ///< sorted by number: node2 before node10
  std::string text(const std::string& file) const;  ///< the whole file, at most 4 MB
  std::string line(const std::string& file) const;  ///< without leading and trailing white space
  std::optional<std::int64_t> number(const std::string& file) const;
  std::optional<std::uint64_t> hex(const std::string& file) const;  ///< "0x030200"
  std::string real_path() const;  ///< with all symbolic links resolved; "" if it does not exist

 private:
  std::string path_;
};

std::string file_name(const std::string& path);
std::string parent_path(const std::string& path);
std::string parent_name(const std::string& path);  ///< the last component of the parent's path
std::vector<std::string> words(const std::string& text);
/// Returns the number in a name: 12 for "node12" with the prefix "node".
std::optional<std::uint32_t> numbered(std::string_view name, std::string_view prefix);
/// Parses a CPU list: "0-3,8" gives 0, 1, 2, 3, 8. Malformed parts and numbers beyond 65535 are skipped.
std::vector<std::uint32_t> parse_cpu_list(std::string_view text);

}  // namespace strait
