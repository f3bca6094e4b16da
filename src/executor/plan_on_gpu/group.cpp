#include "executor/plan_on_gpu/group.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace strait::cuda {
namespace {

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> all;
  for (const auto& kernels : {float32_kernels(), float16_kernels(), bfloat16_kernels(), integer_kernels()})
    all.insert(all.end(), kernels.begin(), kernels.end());
  return all;
}

/// Packs several arrays into one upload.
class Upload {
 public:
  template <class T>
  std::size_t add(std::span<const T> items) {
    const std::size_t offset = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(offset + items.size_bytes());
    if (!items.empty()) std::memcpy(bytes_.data() + offset, items.data(), items.size_bytes());
    return offset;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

std::string describe(const ErrorRecord& record, std::uint32_t rank) {
  return "rank " + std::to_string(rank) + " waited for rank " + std::to_string(record.peer) + " (link or signal " +
         std::to_string(record.tag) + ", lane " + std::to_string(record.lane) + ", block " +
         std::to_string(record.block) + ", step " + std::to_string(record.step) + ", slice " +
         std::to_string(record.slice) + ": expected " + std::to_string(record.expected) + ", saw " +
         std::to_string(record.seen) + ")";
}

}  // namespace

Result<const void*> find_kernel(DataType type, ReduceOp op, Protocol protocol, bool reduces) {
  static const std::vector<Kernel> kernels = all_kernels();
  for (const Kernel& kernel : kernels) {
    const bool fits = reduces ? kernel.type == type && kernel.op == op : size_bytes(kernel.type) == size_bytes(type);
    if (fits && kernel.protocol == protocol) return kernel.function;
  }
  return fail(Code::unsupported,
              "the CUDA executor has no kernel for the " + std::string(name(op)) + " of " + std::string(name(type)));
}

Result<std::unique_ptr<Group>> Group::create(const Plan& plan, const Options& options) {
  if (options.devices.size() != plan.size())
    return fail(Code::invalid_argument, "the plan has " + std::to_string(plan.size()) + " ranks, but " +
                                            std::to_string(options.devices.size()) + " devices are given");
  std::unique_ptr<Group> group(new Group(plan, options));
  STRAIT_ASSIGN(group->program_, compile(plan, options.program));
  STRAIT_TRY(enable_peer_access(options.devices));
  STRAIT_ASSIGN(group->control_memory_, MappedMemory::allocate(sizeof(Control)));
  group->control_ = new (group->control_memory_.data()) Control;
  for (const RankProgram& program : group->program_.ranks) STRAIT_TRY(group->upload(program));
  return group;
}

Status Group::upload(const RankProgram& program) {
  Rank rank;
  rank.device = options_.devices[program.rank];
  rank.lanes = static_cast<std::uint32_t>(program.lanes.size());
  DeviceGuard guard(rank.device);
  for (const Kernel& kernel : all_kernels()) {
    cudaFuncAttributes attributes;
    STRAIT_TRY(check(cudaFuncGetAttributes(&attributes, kernel.function),
                     "cannot load the kernels on GPU " + std::to_string(rank.device)));
  }
  int multiprocessors = 0;
  STRAIT_TRY(check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rank.device),
                   "cannot query GPU " + std::to_string(rank.device)));
  const auto sharers = std::count(options_.devices.begin(), options_.devices.end(), rank.device);
  rank.blocks_limit = static_cast<std::uint32_t>(multiprocessors / sharers);

  STRAIT_ASSIGN(rank.arena,
                DeviceMemory::allocate(rank.device, program.arena_bytes + counter_stride, options_.devices));
  Upload upload;
  const std::size_t steps = upload.add(std::span(program.steps));
  const std::size_t operands = upload.add(std::span(program.operands));
  const std::size_t items = upload.add(std::span(program.items));
  const std::size_t channels = upload.add(std::span(program.channels));
  const std::uint32_t zero = 0;
  const std::size_t claim = upload.add(std::span(&zero, 1));
  STRAIT_ASSIGN(rank.program_memory, DeviceMemory::allocate(rank.device, upload.bytes().size()));
  std::byte* base = rank.program_memory.data();
  STRAIT_TRY(check(cudaMemcpy(base, upload.bytes().data(), upload.bytes().size(), cudaMemcpyHostToDevice),
                   "cannot upload a plan to GPU " + std::to_string(rank.device)));
  STRAIT_TRY(check(cudaDeviceSynchronize(), "cannot upload a plan to GPU " + std::to_string(rank.device)));

  std::copy(program.lanes.begin(), program.lanes.end(), rank.program.lanes);
  rank.program.steps = reinterpret_cast<const FlatStep*>(base + steps);
  rank.program.operands = reinterpret_cast<const FlatOperand*>(base + operands);
  rank.program.items = reinterpret_cast<const FlatItem*>(base + items);
  rank.program.channels = reinterpret_cast<const Channel*>(base + channels);
  rank.program.error_claim = reinterpret_cast<std::uint32_t*>(base + claim);
  rank.program.state_offset = program.state_offset;
  rank.program.rank = program.rank;
  rank.program.ranks = static_cast<std::uint32_t>(plan_.size());
  rank.program.depth = options_.program.depth;
  rank.program.block_slot_bytes = options_.program.block_slot_bytes;
  rank.program.max_blocks = options_.program.max_blocks;
  ranks_.push_back(std::move(rank));
  return {};
}

Status Group::check_operation(const Operation& operation, std::span<const RankBuffers> buffers,
                              std::span<const cudaStream_t> streams) const {
  if (buffers.size() != ranks_.size() || streams.size() != ranks_.size())
    return fail(Code::invalid_argument, "an operation needs buffers and a stream for each rank");
  if (operation.blocks == 0 || operation.blocks > options_.program.max_blocks)
    return fail(Code::invalid_argument,
                "an operation takes 1 to " + std::to_string(options_.program.max_blocks) + " blocks a lane");
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].lanes * operation.blocks > ranks_[r].blocks_limit)
      return fail(Code::invalid_argument, std::to_string(ranks_[r].lanes * operation.blocks) + " blocks of rank " +
                                              std::to_string(r) + " do not fit its share of the GPU, " +
                                              std::to_string(ranks_[r].blocks_limit) + ": use fewer blocks");
  return error();
}

Launch Group::make_launch(const Operation& operation, std::span<const RankBuffers> buffers) const {
  Launch launch;
  for (std::size_t r = 0; r < ranks_.size(); ++r) launch.arenas[r] = ranks_[r].arena.data();
  std::copy(buffers.begin(), buffers.end(), launch.buffers);
  launch.control = control_;
  launch.timeout_ns = options_.timeout_ms * 1'000'000;
  launch.blocks = operation.blocks;
  std::size_t slice_bytes = std::size_t{options_.program.block_slot_bytes} * operation.blocks;
  if (!program_.bounded_slices && operation.block_slice_bytes == 0)
    slice_bytes = operation.count * size_bytes(operation.type) + unit_bytes;
  else if (!program_.bounded_slices)
    slice_bytes = operation.block_slice_bytes * operation.blocks;
  launch.layout = Layout(plan_[0], operation.count, size_bytes(operation.type), slice_bytes);
  return launch;
}

Status Group::enqueue(const Operation& operation, std::span<const RankBuffers> buffers,
                      std::span<const cudaStream_t> streams) {
  STRAIT_TRY(check_operation(operation, buffers, streams));
  const Protocol protocol = options_.program.protocol;
  STRAIT_ASSIGN(const void* const kernel,
                find_kernel(operation.type, operation.op, protocol, is_reduction(plan_[0].collective)));
  Launch launch = make_launch(operation, buffers);
  if (launch.layout.slices == 0) return {};
  std::uint32_t threads = max_threads;
  if (protocol == Protocol::packet) {
    // More threads than units would only make the barriers slower.
    const std::size_t slice = std::min(launch.layout.slice_elements, launch.layout.chunk_elements);
    const std::size_t units = slice * size_bytes(operation.type) / unit_bytes / operation.blocks + 1;
    threads = static_cast<std::uint32_t>(std::clamp<std::size_t>((units + 31) / 32 * 32, 64, max_threads));
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].lanes == 0) continue;
    DeviceGuard guard(ranks_[r].device);
    launch.program = ranks_[r].program;
    void* arguments[] = {&launch};
    STRAIT_TRY(check(
        cudaLaunchKernel(kernel, dim3(ranks_[r].lanes * operation.blocks), dim3(threads), arguments, 0, streams[r]),
        "cannot launch plan " + plan_[0].algorithm + " on rank " + std::to_string(r)));
  }
  return {};
}

Status Group::error() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const ErrorRecord& record = control_->errors[r];
    const auto failure = *const_cast<const volatile WaitFailure*>(&record.failure);
    if (failure == WaitFailure::none) continue;
    const std::string what = describe(record, static_cast<std::uint32_t>(r));
    if (failure == WaitFailure::aborted)
      return fail(Code::aborted, "plan " + plan_[0].algorithm + " was aborted: " + what);
    return fail(Code::timeout, "plan " + plan_[0].algorithm + " did not finish: " + what +
                                   ". That rank's kernel did not run, or stopped.");
  }
  return {};
}

void Group::abort() { *const_cast<volatile std::uint32_t*>(&control_->abort) = 1; }

}  // namespace strait::cuda
