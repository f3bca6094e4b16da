#include "topology/sysfs_files.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/cpus.hpp"

namespace strait {
namespace {

namespace fs = std::filesystem;

template <class Number>
std::optional<Number> parse(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool SysDirectory::exists() const {
  std::error_code error;
  return fs::is_directory(path_, error);
}

std::vector<std::string> SysDirectory::names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    const auto stem = [](const std::string& s) { return s.find_last_not_of("0123456789") + 1; };
    const bool alike = stem(a) == stem(b) && a.compare(0, stem(a), b, 0, stem(b)) == 0;
    return alike && a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

std::string SysDirectory::text(const std::string& file) const {
  constexpr std::size_t most = std::size_t{4} << 20;
  std::error_code error;
  if (fs::is_directory(path_ + "/" + file, error)) return "";
  std::ifstream in(path_ + "/" + file, std::ios::binary);
  std::string content;
  char buffer[4096];
  while (content.size() < most && (in.read(buffer, sizeof buffer), in.gcount() > 0))
    content.append(buffer, static_cast<std::size_t>(in.gcount()));
  return content;
}

std::string SysDirectory::line(const std::string& file) const {
  constexpr std::string_view space = " \t\r\n";
  const std::string content = text(file);
  const std::size_t begin = content.find_first_not_of(space);
  if (begin == std::string::npos) return "";
  return content.substr(begin, content.find_last_not_of(space) + 1 - begin);
}

std::optional<std::int64_t> SysDirectory::number(const std::string& file) const {
  return parse<std::int64_t>(line(file));
}

std::optional<std::uint64_t> SysDirectory::hex(const std::string& file) const {
  const std::string content = line(file);
  return parse<std::uint64_t>(content.starts_with("0x") ? std::string_view(content).substr(2) : content, 16);
}

std::string SysDirectory::real_path() const {
  std::error_code error;
  const fs::path path = fs::canonical(path_, error);
  return error ? "" : path.string();
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

std::string parent_path(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent == path ? "" : parent;
}

std::string parent_name(const std::string& path) { return file_name(parent_path(path)); }

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

std::optional<std::uint32_t> numbered(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? parse<std::uint32_t>(name.substr(prefix.size())) : std::nullopt;
}

std::vector<std::uint32_t> parse_cpu_list(std::string_view text) {
  constexpr std::uint32_t end = 65536;
  std::vector<std::uint32_t> cpus;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    if (const auto range = cpus_of_list(text.substr(0, comma), end))
      cpus.insert(cpus.end(), range->begin(), range->end());
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return cpus;
}

}  // namespace strait
