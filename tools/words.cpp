#include "words.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <functional>

namespace strait::tools {
namespace {

constexpr std::array<std::string_view, data_type_count> table_names = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};

std::string joined(int count, const std::function<std::string_view(int)>& name_of) {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i != 0 ? ", " : "") + std::string(name_of(i));
  return text;
}

}  // namespace

Result<std::size_t> parse_size(std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  constexpr std::string_view units = "KMGT";
  const auto unit = suffix.empty() ? 0 : units.find(static_cast<char>(std::toupper(suffix[0])));
  if (failure != std::errc{} || !(value >= 0) || suffix.size() > 1 || unit == std::string_view::npos)
    return fail(Code::invalid_argument, "'" + std::string(text) + "' is not a size. Write 8, 1K, 64M or 1G");
  const double bytes = std::ldexp(value, suffix.empty() ? 0 : 10 * static_cast<int>(unit + 1));
  if (bytes > 1e15) return fail(Code::invalid_argument, "'" + std::string(text) + "' is more than 1000 terabytes");
  return static_cast<std::size_t>(bytes);
}

std::string_view table_name(DataType type) { return table_names[static_cast<std::size_t>(type)]; }
std::string_view table_name(ReduceOp op) { return op == ReduceOp::premul_sum ? "mulsum" : name(op); }

Result<std::vector<DataType>> parse_types(std::string_view text) {
  std::vector<DataType> types;
  for (int i = 0; i < data_type_count; ++i) {
    const auto type = static_cast<DataType>(i);
    if (text == "all" || text == name(type) || text == table_name(type)) types.push_back(type);
  }
  if (types.empty())
    return fail(Code::invalid_argument,
                "'" + std::string(text) + "' is not an element type. Known: all, " +
                    joined(data_type_count, [](int i) { return name(static_cast<DataType>(i)); }));
  return types;
}

Result<std::vector<ReduceOp>> parse_ops(std::string_view text) {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < reduce_op_count; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (text == "all" || text == name(op) || text == table_name(op)) ops.push_back(op);
  }
  if (ops.empty())
    return fail(Code::invalid_argument,
                "'" + std::string(text) + "' is not a reduction. Known: all, " +
                    joined(reduce_op_count, [](int i) { return table_name(static_cast<ReduceOp>(i)); }));
  return ops;
}

Result<Collective> parse_collective(std::string_view text) {
  for (int i = 0; i < collective_count; ++i)
    if (text == name(static_cast<Collective>(i))) return static_cast<Collective>(i);
  return fail(Code::invalid_argument,
              "'" + std::string(text) + "' is not a collective. Known: " + joined(collective_count, [](int i) {
                return name(static_cast<Collective>(i));
              }));
}

Result<std::optional<WireFormat>> parse_wire(std::string_view text) {
  for (int i = 0; i < wire_format_count; ++i)
    if (text == name(static_cast<WireFormat>(i))) return static_cast<WireFormat>(i);
  return fail(Code::invalid_argument,
              "'" + std::string(text) + "' is not a wire format. Known: " + joined(wire_format_count, [](int i) {
                return name(static_cast<WireFormat>(i));
              }));
}

}  // namespace strait::tools
