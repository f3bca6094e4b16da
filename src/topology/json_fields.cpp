#include "topology/json_fields.hpp"

namespace strait {

Fields::Fields(const Json& object, std::string where, CopyNumbers numbers)
    : object_(object), where_(std::move(where)), numbers_(numbers) {
  if (!object_.is_object()) fail("expected an object in braces, found " + std::string(object_.type_name()));
}

void Fields::fail(const std::string& message) const { throw JsonProblem{where_ + ": " + message}; }

bool Fields::has(const char* key) {
  known_.insert(key);
  return object_.contains(key);
}

const Fields::Json& Fields::at(const char* key) {
  if (!has(key)) fail("the key \"" + std::string(key) + "\" is missing");
  return object_.at(key);
}

std::string Fields::filled(const char* key, const std::string& text) const {
  auto result = fill_in(text, numbers_);
  if (!result)
    fail("\"" + std::string(key) + "\": '" + text +
         "' has a placeholder that is none: {i} within copies, {host}, or one of them with + - / % and a number");
  return *result;
}

std::string Fields::text(const char* key) {
  const Json& value = at(key);
  if (!value.is_string()) fail("\"" + std::string(key) + "\" must be a text, not " + value.type_name());
  return filled(key, value.get<std::string>());
}

std::string Fields::text_or(const char* key, const char* otherwise) { return has(key) ? text(key) : otherwise; }

double Fields::number(const char* key) {
  const Json& value = at(key);
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0)) fail("\"" + std::string(key) + "\" must be a number of 0 or more");
  // The bounds keep results of calculations with the number finite.
  if (number != 0 && (number < 1e-9 || number > 1e9))
    fail("\"" + std::string(key) + "\" must be 0, or a number from 1e-9 to 1e9");
  return number;
}

double Fields::number_or(const char* key, double otherwise) { return has(key) ? number(key) : otherwise; }

std::uint64_t Fields::whole_or(const char* key, std::uint64_t otherwise, Range range) {
  if (!has(key)) return otherwise;
  const Json& value = at(key);
  const bool is_whole = value.is_number_unsigned();
  if (is_whole && value.get<std::uint64_t>() >= range.least && value.get<std::uint64_t>() <= range.most)
    return value.get<std::uint64_t>();
  const bool has_end = range.most != Range().most;
  fail("\"" + std::string(key) + "\" must be a whole number " +
       (has_end ? "from " + std::to_string(range.least) + " to " + std::to_string(range.most)
                : "of " + std::to_string(range.least) + " or more"));
}

bool Fields::flag_or(const char* key, bool otherwise) {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) fail("\"" + std::string(key) + "\" must be true or false");
  return at(key).get<bool>();
}

const Fields::Json& Fields::list(const char* key) {
  static const Json empty = Json::array();
  if (!has(key)) return empty;
  if (!at(key).is_array()) fail("\"" + std::string(key) + "\" must be a list in brackets");
  return at(key);
}

void Fields::done() const {
  for (const auto& item : object_.items()) {
    if (known_.contains(item.key())) continue;
    std::string names;
    for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
    fail("unknown key \"" + item.key() + "\"; there may be: " + names);
  }
}

}  // namespace strait
