#include "topology/placeholder.hpp"

#include <charconv>

namespace strait {
namespace {

std::optional<std::int64_t> value_of(std::string_view expression, const CopyNumbers& numbers) {
  const std::size_t at = expression.find_first_of("+-/%");
  const std::string_view variable = expression.substr(0, at);
  std::optional<std::int64_t> value;
  if (variable == "i") value = numbers.i;
  if (variable == "host") value = numbers.host;
  if (!value || at == std::string_view::npos) return value;
  const std::string_view digits = expression.substr(at + 1);
  std::int32_t operand = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), operand);
  if (error != std::errc() || end != digits.data() + digits.size() || operand < 0) return std::nullopt;
  switch (expression[at]) {
    case '+':
      return *value + operand;
    case '-':
      return *value - operand;
    case '/':
      return operand == 0 ? std::nullopt : std::optional(*value / operand);
    default:
      return operand == 0 ? std::nullopt : std::optional(*value % operand);
  }
}

}  // namespace

std::optional<std::string> fill_in(std::string_view text, const CopyNumbers& numbers) {
  std::string filled;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '{') {
      filled += text[at++];
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (end == std::string_view::npos) return std::nullopt;
    const auto value = value_of(text.substr(at + 1, end - at - 1), numbers);
    if (!value) return std::nullopt;
    filled += std::to_string(*value);
    at = end + 1;
  }
  return filled;
}

}  // namespace strait
