#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/wire_format.hpp"
#include "support/reference.hpp"

/// The wire formats by their specification, one block after another, and the collectives that use them, as plain loops.
namespace strait::testing {

/// Calls `function.template operator()<format>()` with the format (not off) as a constant.
template <class F>
decltype(auto) visit_wire(WireFormat format, F&& function) {
  if (format == WireFormat::fp8) return function.template operator()<WireFormat::fp8>();
  if (format == WireFormat::int4) return function.template operator()<WireFormat::int4>();
  return function.template operator()<WireFormat::int8>();
}

inline std::vector<float> to_floats(DataType type, const Bytes& elements) {
  std::vector<float> values(elements.size() / size_bytes(type));
  spec::visit(type, [&]<DataType t>() {
    if constexpr (wire::is_wire_type(t))
      for (std::size_t i = 0; i < values.size(); ++i) {
        spec::ElementType<t> element;
        std::memcpy(&element, elements.data() + i * sizeof element, sizeof element);
        values[i] = spec::load<t>(element);
      }
  });
  return values;
}

inline Bytes to_elements(DataType type, const std::vector<float>& values) {
  Bytes elements(values.size() * size_bytes(type));
  spec::visit(type, [&]<DataType t>() {
    if constexpr (wire::is_wire_type(t))
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto element = spec::store<t>(values[i]);
        std::memcpy(elements.data() + i * sizeof element, &element, sizeof element);
      }
  });
  return elements;
}

/// Returns the values encoded as they are sent: all payloads, then all scales.
inline Bytes encoded_reference(WireFormat format, const std::vector<float>& values) {
  const std::size_t blocks = wire::blocks_of(values.size());
  Bytes run(blocks * wire::block_bytes(format));
  std::vector<float> padded(blocks * wire::block_elements);
  std::copy(values.begin(), values.end(), padded.begin());
  for (std::size_t b = 0; b < blocks; ++b)
    visit_wire(format, [&]<WireFormat f>() {
      float scale = 0;
      wire::encode_block<f>(padded.data() + b * wire::block_elements,
                            reinterpret_cast<std::uint8_t*>(run.data()) + b * wire::payload_bytes(f), &scale);
      std::memcpy(run.data() + blocks * wire::payload_bytes(f) + b * sizeof scale, &scale, sizeof scale);
    });
  return run;
}

inline std::vector<float> decoded_reference(WireFormat format, const Bytes& run, std::size_t count) {
  const std::size_t blocks = wire::blocks_of(count);
  std::vector<float> values(blocks * wire::block_elements);
  for (std::size_t b = 0; b < blocks; ++b)
    visit_wire(format, [&]<WireFormat f>() {
      float scale = 0;
      std::memcpy(&scale, run.data() + blocks * wire::payload_bytes(f) + b * sizeof scale, sizeof scale);
      wire::decode_block<f>(reinterpret_cast<const std::uint8_t*>(run.data()) + b * wire::payload_bytes(f), scale,
                            values.data() + b * wire::block_elements);
    });
  values.resize(count);
  return values;
}

/// Returns the values after one encoding and decoding.
inline std::vector<float> through_wire(WireFormat format, const std::vector<float>& values) {
  return decoded_reference(format, encoded_reference(format, values), values.size());
}

/// Returns the scale of the block that holds `element`.
inline float scale_at(WireFormat format, const std::vector<float>& values, std::size_t element) {
  const std::size_t first = element / wire::block_elements * wire::block_elements;
  std::uint32_t largest = 0;
  for (std::size_t i = first; i < std::min(values.size(), first + wire::block_elements); ++i)
    largest = std::max(largest, to_bits(values[i]) & FloatFormat<float>::magnitude_mask);
  return visit_wire(format, [&]<WireFormat f>() { return wire::scale_of<f>(largest); });
}

/// Returns the most by which a finite value may change by encoding and decoding (docs/wire-formats.md).
inline double wire_bound(WireFormat format, double value, double scale) {
  if (format == WireFormat::fp8) return std::max(std::abs(value) / 16, scale / 1024) * (1 + 0x1p-14);
  return scale * (0.5 + 0x1p-15);
}

/// Returns the sum of contributions in rank order, each encoded and decoded first; avg divides by `averaged`, or by the
/// number of contributions if that is 0. The sum itself is not encoded.
inline std::vector<float> wire_sum(WireFormat format, ReduceOp op, const std::vector<std::vector<float>>& inputs,
                                   std::uint32_t averaged = 0) {
  std::vector<float> sum;
  for (const auto& input : inputs) {
    const std::vector<float> contribution = through_wire(format, input);
    if (sum.empty()) {
      sum = contribution;
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = spec::combine<ReduceOp::sum>(sum[i], contribution[i]);
    }
  }
  const auto ranks = averaged != 0 ? averaged : static_cast<std::uint32_t>(inputs.size());
  for (float& value : sum)
    value = spec::store_wide(op == ReduceOp::avg ? spec::finish<ReduceOp::avg>(value, ranks) : value);
  return sum;
}

/// As reference_output(), for a call in a wire format. With one rank nothing is encoded. `averaged` as for wire_sum().
inline Bytes wire_reference_output(WireFormat format, const ReferenceCall& call, std::uint32_t rank,
                                   std::uint32_t averaged = 0) {
  const std::size_t ranks = call.inputs.size();
  if (ranks == 1) return reference_output(call, rank);
  const auto values_of = [&](std::size_t from, std::size_t index, std::size_t blocks) {
    Bytes input = call.inputs[from];
    if (is_reduction(call.collective) && call.op == ReduceOp::premul_sum)
      input = reference_premultiplied(call.type, input, call.premul_scalars[from]);
    return to_floats(call.type, detail::block(input, static_cast<std::uint32_t>(index), blocks));
  };
  std::vector<std::vector<float>> parts;  // what this rank receives, by sender
  for (std::size_t from = 0; from < ranks; ++from)
    parts.push_back(call.collective == Collective::all_reduce || call.collective == Collective::all_gather
                        ? values_of(from, 0, 1)
                        : values_of(from, rank, ranks));
  if (call.collective == Collective::all_reduce)
    return to_elements(call.type, through_wire(format, wire_sum(format, call.op, parts, averaged)));
  if (call.collective == Collective::reduce_scatter)
    return to_elements(call.type, wire_sum(format, call.op, parts, averaged));
  Bytes output;
  for (const auto& part : parts) detail::append(output, to_elements(call.type, through_wire(format, part)));
  return output;
}

}  // namespace strait::testing
