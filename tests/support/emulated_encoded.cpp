// Must come first: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "kernels/bulk_encoded.cuh"
#include "support/emulated_launch.hpp"
#include "support/wire_reference.hpp"

namespace strait::testing {

void run_thread(const DeviceLaunch& launch, const kernels::EncodedExchange& argument, DataType type) {
  visit_wire(launch.encoding, [&]<WireFormat format>() {
    spec::visit(type, [&]<DataType t>() {
      if constexpr (wire::is_wire_type(t))
        launch.reduces ? kernels::encoded_exchange_sum<format, t>(argument)
                       : kernels::encoded_exchange_copy<format, t>(argument);
    });
  });
}
void run_thread(const DeviceLaunch& launch, const kernels::EncodedTwoHop& argument, DataType type) {
  visit_wire(launch.encoding, [&]<WireFormat format>() {
    spec::visit(type, [&]<DataType t>() {
      if constexpr (wire::is_wire_type(t)) kernels::encoded_two_hop_sum<format, t>(argument);
    });
  });
}

}  // namespace strait::testing
