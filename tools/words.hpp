#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"

/// The words of a command line that several commands take. An error says what is accepted.
namespace strait::tools {

/// "8", "1K", "64M", "1G" (powers of 1024, either case, fractions such as 1.5M allowed) to bytes. The environment takes
/// whole numbers only (parse_bytes() of base/environment.hpp).
Result<std::size_t> parse_size(std::string_view text);
/// A type by Strait's or nccl-tests' name ("float32" or "float"), or "all".
Result<std::vector<DataType>> parse_types(std::string_view text);
/// A reduction by name, or "all".
Result<std::vector<ReduceOp>> parse_ops(std::string_view text);
Result<Collective> parse_collective(std::string_view text);
/// A wire format by name, or "off".
Result<std::optional<WireFormat>> parse_wire(std::string_view text);

/// nccl-tests' name of a type: what its table, and ours, prints.
std::string_view table_name(DataType type);
std::string_view table_name(ReduceOp op);

}  // namespace strait::tools
