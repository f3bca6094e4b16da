#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strait {

/// A directory of sysfs. What is missing or unreadable is empty: in containers anything may be.
class SysDirectory {
 public:
  explicit SysDirectory(std::string path) : path_(std::move(path)) {}

  SysDirectory sub(const std::string& name) const { return SysDirectory(path_ + "/" + name); }
  bool exists() const;
  std::vector<std::string> names() const;           ///< sorted; node2 before node10
  std::string text(const std::string& file) const;  ///< all bytes, at most 4 MB
  std::string line(const std::string& file) const;  ///< without spaces at its ends
  std::optional<std::int64_t> number(const std::string& file) const;
  std::optional<std::uint64_t> hex(const std::string& file) const;  ///< "0x030200"
  std::string real_path() const;                                    ///< all links followed; "" if it does not exist

 private:
  std::string path_;
};

std::string file_name(const std::string& path);
std::string parent_path(const std::string& path);
std::string parent_name(const std::string& path);  ///< the last name of the parent
std::vector<std::string> words(const std::string& text);
/// "node12" of prefix "node" is 12.
std::optional<std::uint32_t> numbered(std::string_view name, std::string_view prefix);
/// "0-3,8": 0, 1, 2, 3, 8. What is malformed is skipped, and so is what goes beyond 65535.
std::vector<std::uint32_t> parse_cpu_list(std::string_view text);
std::uint64_t parse_size(std::string_view text);  ///< "32768K", "32M"

}  // namespace strait
