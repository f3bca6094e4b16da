#include "gpu/race_hunt/tables.hpp"

#include <thread>

#include "support/island_reference.hpp"

namespace strait::race {
namespace {

const Bytes& host_table(const HostTables& host, DataType type, std::uint32_t which) {
  return which < host.ranks() ? host.input(type, which)
                              : host.reduced(type, static_cast<ReduceOp>(which - host.ranks()));
}

}  // namespace

HostTables::HostTables(const Limits& limits, std::uint64_t seed, const std::vector<Island>& islands) {
  const std::size_t bytes = table_bytes(limits);
  inputs_.resize(data_type_count, std::vector<Bytes>(limits.ranks, Bytes(bytes)));
  reduced_.resize(data_type_count, std::vector<Bytes>(op_count, Bytes(bytes)));
  std::vector<std::jthread> threads;
  for (int type = 0; type < data_type_count; ++type)
    threads.emplace_back([&, type] {
      perf::Operation o{.type = static_cast<DataType>(type), .ranks = limits.ranks, .seed = seed};
      const std::size_t count = bytes / size_bytes(o.type);
      for (std::uint32_t rank = 0; rank < limits.ranks; ++rank)
        perf::generate_input(o, rank, 0, count, inputs_[index(o.type)][rank].data());
      for (int op = 0; op < op_count; ++op) {
        o.op = static_cast<ReduceOp>(op);
        Bytes& reduced = reduced_[index(o.type)][static_cast<std::size_t>(op)];
        if (islands.empty())
          perf::write(o, {{0, count, perf::Segment::Kind::reduced, 0, 0}}, reduced.data());
        else
          reduced = testing::island_reduction({.type = o.type, .op = o.op, .inputs = inputs_[index(o.type)]}, islands);
      }
    });
}

Result<DeviceTables> DeviceTables::upload(const HostTables& host, int device) {
  DeviceTables tables;
  tables.ranks_ = host.ranks();
  tables.device_ = device;
  cuda::DeviceGuard guard(device);
  for (int type = 0; type < data_type_count; ++type)
    for (std::uint32_t which = 0; which < tables.ranks_ + op_count; ++which) {
      const Bytes& from = host_table(host, static_cast<DataType>(type), which);
      STRAIT_ASSIGN(auto memory, cuda::DeviceMemory::allocate_uncleared(device, from.size()));
      STRAIT_TRY(cuda::check(cudaMemcpy(memory.data(), from.data(), from.size(), cudaMemcpyHostToDevice),
                             "cannot upload a table"));
      tables.memory_.push_back(std::move(memory));
    }
  return tables;
}

Result<bool> DeviceTables::is_intact(const HostTables& host) const {
  cuda::DeviceGuard guard(device_);  // only this device reaches the memory
  for (int type = 0; type < data_type_count; ++type)
    for (std::uint32_t which = 0; which < ranks_ + op_count; ++which) {
      const Bytes& expected = host_table(host, static_cast<DataType>(type), which);
      Bytes found(expected.size());
      STRAIT_TRY(cuda::check(
          cudaMemcpy(found.data(), at(static_cast<DataType>(type), which).data(), found.size(), cudaMemcpyDeviceToHost),
          "cannot read a table"));
      if (found != expected) return false;
    }
  return true;
}

}  // namespace strait::race
