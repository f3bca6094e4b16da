#include "kernels/wire_format.hpp"

#include "kernels/bulk_encoded.cuh"
#include "kernels/wire_format.cuh"

namespace strait::kernels {
namespace {

constexpr DataType wire_types[] = {DataType::float32, DataType::bfloat16, DataType::float16};

template <WireFormat format, DataType type>
const void* kernel_of(WireKernel kernel) {
  if (kernel == WireKernel::encode) return reinterpret_cast<const void*>(&wire_encode<format, type>);
  if (kernel == WireKernel::decode) return reinterpret_cast<const void*>(&wire_decode<format, type>);
  return reinterpret_cast<const void*>(&wire_recode<format>);
}
template <WireFormat format>
const void* encoded_exchange_kernel(bool reduces) {
  return reduces ? reinterpret_cast<const void*>(&encoded_exchange_sum<format>)
                 : reinterpret_cast<const void*>(&encoded_exchange_copy<format>);
}
template <WireFormat format>
const void* kernel_of(WireKernel kernel, DataType type) {
  if (type == DataType::bfloat16) return kernel_of<format, DataType::bfloat16>(kernel);
  if (type == DataType::float16) return kernel_of<format, DataType::float16>(kernel);
  return kernel_of<format, DataType::float32>(kernel);
}

}  // namespace

const void* wire_kernel(WireKernel kernel, WireFormat format, DataType type) {
  if (format == WireFormat::fp8) return kernel_of<WireFormat::fp8>(kernel, type);
  if (format == WireFormat::int4) return kernel_of<WireFormat::int4>(kernel, type);
  return kernel_of<WireFormat::int8>(kernel, type);
}

const void* encoded_exchange_kernel(WireFormat format, bool reduces) {
  if (format == WireFormat::fp8) return encoded_exchange_kernel<WireFormat::fp8>(reduces);
  if (format == WireFormat::int4) return encoded_exchange_kernel<WireFormat::int4>(reduces);
  return encoded_exchange_kernel<WireFormat::int8>(reduces);
}
const void* encoded_two_hop_kernel(WireFormat format) {
  if (format == WireFormat::fp8) return reinterpret_cast<const void*>(&encoded_two_hop_sum<WireFormat::fp8>);
  if (format == WireFormat::int4) return reinterpret_cast<const void*>(&encoded_two_hop_sum<WireFormat::int4>);
  return reinterpret_cast<const void*>(&encoded_two_hop_sum<WireFormat::int8>);
}

std::vector<const void*> all_wire_kernels() {
  std::vector<const void*> all;
  for (const WireFormat format : {WireFormat::int8, WireFormat::fp8, WireFormat::int4}) {
    all.insert(all.end(), {encoded_exchange_kernel(format, false), encoded_exchange_kernel(format, true),
                           encoded_two_hop_kernel(format), wire_kernel(WireKernel::recode, format, DataType::float32)});
    for (const DataType type : wire_types)
      for (const WireKernel kernel : {WireKernel::encode, WireKernel::decode})
        all.push_back(wire_kernel(kernel, format, type));
  }
  return all;
}

}  // namespace strait::kernels
