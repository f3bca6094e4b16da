#pragma once

#include <memory>
#include <vector>

#include "gpu/race_hunt/kernels.hpp"
#include "gpu_ranks.cuh"
#include "perf/data.hpp"

/// GPU ranks of one process that verify collectives: their outputs are compared bit by bit with what must result from
/// their inputs.
namespace strait::perf {

class CheckedRanks {
 public:
  /// Creates a rank for each device. `type` has at most 4 bytes; no buffer of a call is larger than `most_bytes`.
  static Result<CheckedRanks> create(const std::vector<int>& devices, DataType type, std::size_t most_bytes) {
    CheckedRanks all;
    all.type_ = type;
    STRAIT_TRY(cuda::enable_peer_access(devices));
    STRAIT_ASSIGN(all.ranks_, GpuRanks::create(devices, most_bytes));
    STRAIT_TRY(all.fill(most_bytes));
    return all;
  }

  GpuRanks& gpus() const { return *ranks_; }
  std::size_t size() const { return ranks_->ranks.size(); }
  /// A rank's input has the same elements in all calls, which differ only in how many they use.
  std::byte* input(std::size_t rank) const { return ranks_->ranks[rank].input.data(); }
  std::byte* output(std::size_t rank) const { return ranks_->ranks[rank].output.data() + guard_bytes; }
  /// Returns the number of wrong elements in all checks so far.
  unsigned long long wrong() const { return wrong_; }

  /// Checks every rank's output after an enqueued call, and fills it with poison again. Waits for the streams. Returns
  /// the number of wrong elements.
  Result<unsigned long long> check(Operation operation) {
    const std::size_t width = size_bytes(type_);
    for (std::size_t r = 0; r < size(); ++r) {
      const GpuRank& rank = ranks_->ranks[r];
      cuda::DeviceGuard guard(rank.device);
      operation.rank = static_cast<std::uint32_t>(r);
      race::Check check{.buffer = output(r) - guard_elements * width,
                        .width = static_cast<std::uint32_t>(width),
                        .segments = 1,
                        .expected = {{0, guard_elements, nullptr}},
                        .call = 0,
                        .finding = reinterpret_cast<race::Finding*>(findings_[r].data())};
      for (const Segment& segment : receive_contents_after(operation)) {
        if (segment.count == 0) continue;
        const std::byte* reference = nullptr;  // peers' inputs are read directly
        if (segment.kind == Segment::Kind::input) reference = input(segment.rank);
        if (segment.kind == Segment::Kind::reduced) reference = rank.expected.data();
        if (reference != nullptr) reference += segment.source * width;
        check.expected[check.segments++] = {guard_elements + segment.offset, segment.count, reference};
      }
      STRAIT_TRY(cuda::check(race::launch_check(check, rank.stream), "cannot launch a check"));
    }
    STRAIT_TRY(ranks_->synchronize());
    unsigned long long all = 0;
    for (const cuda::DeviceMemory& memory : findings_) {
      race::Finding finding{};
      STRAIT_TRY(
          cuda::check(cudaMemcpy(&finding, memory.data(), sizeof finding, cudaMemcpyDeviceToHost), "cannot read"));
      all += finding.wrong;
    }
    return all - std::exchange(wrong_, all);
  }

 private:
  /// Generates the inputs of all ranks, and their sums, each as long as in the longest call.
  Status fill(std::size_t most_bytes) {
    const std::size_t count = most_bytes / size_bytes(type_);
    const Operation operation{.type = type_, .ranks = static_cast<std::uint32_t>(size()), .seed = 1};
    constexpr std::size_t part = 1 << 16;  // elements
    std::vector<std::byte> values(most_bytes);
    const auto upload = [&](const cuda::DeviceMemory& to) {
      return cuda::check(cudaMemcpy(to.data(), values.data(), values.size(), cudaMemcpyHostToDevice),
                         "cannot upload data");
    };
    const auto generate = [&](const auto& some) {
      parallel_for((count + part - 1) / part, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
          some(i * part, std::min(part, count - i * part), values.data() + i * part * size_bytes(type_));
      });
    };
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      generate([&](std::size_t first, std::size_t some, std::byte* to) {
        generate_input(operation, rank, first, some, to);
      });
      STRAIT_TRY(upload(ranks_->ranks[rank].input));
    }
    generate([&](std::size_t first, std::size_t some, std::byte* to) {
      write(operation, {{0, some, Segment::Kind::reduced, 0, first}}, to);
    });
    for (const GpuRank& rank : ranks_->ranks) {
      cuda::DeviceGuard guard(rank.device);
      STRAIT_TRY(upload(rank.expected));
      STRAIT_TRY(cuda::check(cudaMemset(rank.output.data(), race::poison, most_bytes + 2 * guard_bytes),
                             "cannot poison an output"));
      race::Finding none{};
      none.call = ~0ull;
      STRAIT_ASSIGN(auto finding, cuda::DeviceMemory::allocate(rank.device, sizeof none));
      STRAIT_TRY(cuda::check(cudaMemcpy(finding.data(), &none, sizeof none, cudaMemcpyHostToDevice), "cannot write"));
      findings_.push_back(std::move(finding));
      STRAIT_TRY(cuda::check(race::load_kernels(), "cannot load a kernel"));
      STRAIT_TRY(cuda::check(cudaDeviceSynchronize(), "cannot prepare a GPU"));
    }
    return {};
  }

  DataType type_ = DataType::bfloat16;
  std::unique_ptr<GpuRanks> ranks_;
  std::vector<cuda::DeviceMemory> findings_;  ///< by rank
  unsigned long long wrong_ = 0;
};

}  // namespace strait::perf
