#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/placeholder.hpp"

/// Reads a JSON object key by key, so that a missing, mistyped or unknown key is an error that names its place.
namespace strait {

/// Thrown and caught within the JSON reader only.
struct JsonProblem {
  std::string message;
};

class Fields {
 public:
  using Json = nlohmann::json;

  /// `where` is the object's place for messages, such as "hosts[0]: device 'gpu3'". `object` must outlive this.
  Fields(const Json& object, std::string where, CopyNumbers numbers = {});

  bool has(const char* key);
  std::string text(const char* key);  ///< required; placeholders are replaced
  std::string text_or(const char* key, const char* otherwise);
  double number_or(const char* key, double otherwise);  ///< 0, or from 1e-9 to 1e9
  double number(const char* key);
  struct Range {
    std::uint64_t least = 0;
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  };
  std::uint64_t whole_or(const char* key, std::uint64_t otherwise, Range range);
  std::uint64_t whole_or(const char* key, std::uint64_t otherwise) { return whole_or(key, otherwise, Range()); }
  bool flag_or(const char* key, bool otherwise);
  const Json& list(const char* key);  ///< an empty list if absent
  const Json& at(const char* key);
  /// Fails if the object has a key that has not been asked for.
  void done() const;

  const std::string& where() const { return where_; }
  void set_where(std::string where) { where_ = std::move(where); }
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string filled(const char* key, const std::string& text) const;

  const Json& object_;
  std::string where_;
  CopyNumbers numbers_;
  std::set<std::string> known_;
};

}  // namespace strait
