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
template <WireFormat format, DataType type>
const void* kernel_of(EncodedKernel kernel) {
  if (kernel == EncodedKernel::copy) return reinterpret_cast<const void*>(&encoded_exchange_copy<format, type>);
  if (kernel == EncodedKernel::sum) return reinterpret_cast<const void*>(&encoded_exchange_sum<format, type>);
  return reinterpret_cast<const void*>(&encoded_two_hop_sum<format, type>);
}
template <WireFormat format, class Kernel>
const void* kernel_of(Kernel kernel, DataType type) {
  if (type == DataType::bfloat16) return kernel_of<format, DataType::bfloat16>(kernel);
  if (type == DataType::float16) return kernel_of<format, DataType::float16>(kernel);
  return kernel_of<format, DataType::float32>(kernel);
}

template <class Kernel>
const void* kernel_of(Kernel kernel, WireFormat format, DataType type) {
  if (format == WireFormat::fp8) return kernel_of<WireFormat::fp8>(kernel, type);
  if (format == WireFormat::int4) return kernel_of<WireFormat::int4>(kernel, type);
  return kernel_of<WireFormat::int8>(kernel, type);
}

}  // namespace

const void* wire_kernel(WireKernel kernel, WireFormat format, DataType type) { return kernel_of(kernel, format, type); }
const void* encoded_kernel(EncodedKernel kernel, WireFormat format, DataType type) {
  return kernel_of(kernel, format, type);
}

std::vector<const void*> all_wire_kernels() {
  std::vector<const void*> all;
  for (const WireFormat format : {WireFormat::int8, WireFormat::fp8, WireFormat::int4}) {
    all.push_back(wire_kernel(WireKernel::recode, format, DataType::float32));
    for (const DataType type : wire_types)
      for (const EncodedKernel kernel : {EncodedKernel::copy, EncodedKernel::sum, EncodedKernel::two_hop_sum})
        all.push_back(encoded_kernel(kernel, format, type));
    for (const DataType type : wire_types)
      for (const WireKernel kernel : {WireKernel::encode, WireKernel::decode})
        all.push_back(wire_kernel(kernel, format, type));
  }
  return all;
}

}  // namespace strait::kernels
