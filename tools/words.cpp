#include "words.hpp"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/enum_names.hpp"

namespace strait::tools {
namespace {

constexpr std::array<std::string_view, data_type_count> table_names = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};

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
    return fail(Code::invalid_argument, "'" + std::string(text) + "' is not an element type. Known: all, " +
                                            all_names<DataType>(data_type_count));
  return types;
}

Result<std::vector<ReduceOp>> parse_ops(std::string_view text) {
  std::vector<ReduceOp> ops;
  std::string known = "all";
  for (int i = 0; i < reduce_op_count; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (text == "all" || text == name(op) || text == table_name(op)) ops.push_back(op);
    known += ", " + std::string(table_name(op));
  }
  if (ops.empty())
    return fail(Code::invalid_argument, "'" + std::string(text) + "' is not a reduction. Known: " + known);
  return ops;
}

Result<Collective> parse_collective(std::string_view text) {
  if (const auto found = from_name<Collective>(text, collective_count)) return *found;
  return fail(Code::invalid_argument,
              "'" + std::string(text) + "' is not a collective. Known: " + all_names<Collective>(collective_count));
}

Result<std::optional<WireFormat>> parse_wire(std::string_view text) {
  if (const auto found = from_name<WireFormat>(text, wire_format_count)) return found;
  return fail(Code::invalid_argument,
              "'" + std::string(text) + "' is not a wire format. Known: " + all_names<WireFormat>(wire_format_count));
}

}  // namespace strait::tools
