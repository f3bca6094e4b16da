#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/async_copy.cuh"
#include "kernels/user_bytes.cuh"

/// Memory to memory through stages in shared memory, by asynchronous copies that one thread starts: some are being
/// loaded and some stored at any time, so that neither latency nor anybody's wait leaves the link idle.
namespace strait::kernels {

/// Tasks whose pieces are all done, told to other warps. Pieces are done in the order in which they are begun.
struct ProgressMemory {
  static constexpr std::uint32_t most = 32;
  struct End {
    std::uint32_t pieces;  ///< begun until the end of a task
    std::uint32_t tasks;   ///< that are done when these are
  };
  End ends[most];
  std::uint32_t done;  ///< tasks
};
class Progress {
 public:
  __device__ explicit Progress(ProgressMemory& memory) : memory_(memory) {}
  __device__ bool is_complete() const { return ended_ == noted_; }
  /// No task may end before an earlier one is noted as done.
  __device__ bool is_full() const { return ended_ - noted_ == ProgressMemory::most; }
  __device__ void end_task(std::uint32_t pieces, std::uint32_t tasks) {
    memory_.ends[ended_++ % ProgressMemory::most] = {pieces, tasks};
  }
  __device__ void note(std::uint32_t pieces_done) {
    std::uint32_t tasks = 0;
    for (; !is_complete(); ++noted_) {
      const ProgressMemory::End& end = memory_.ends[noted_ % ProgressMemory::most];
      if (end.pieces > pieces_done) break;
      tasks = end.tasks;
    }
    if (tasks != 0) store_progress(memory_.done, tasks);
  }

 private:
  ProgressMemory& memory_;
  std::uint32_t ended_ = 0;
  std::uint32_t noted_ = 0;
};

/// Waits until a piece is where it belongs, but not one that is still leaving: how far behind that is depends on how
/// fast pieces follow one another, while the way itself takes about 2 us.
class Lag {
 public:
  /// After a group was closed and all but the last `leaving` have left. Of the pieces begun, how many may be missing.
  template <int leaving>
  __device__ std::uint32_t wait() {
    const std::uint64_t now = clock_cycles(), since = now - last_;
    last_ = now;
    if (since > 4000) {
      wait_stored<leaving>();
      return leaving;
    }
    if (since > 1500) {
      wait_stored<leaving + 1>();
      return leaving + 1;
    }
    wait_stored<leaving + 3>();
    return leaving + 3;
  }

 private:
  std::uint64_t last_ = 0;
};

template <std::uint32_t stages_, std::uint32_t bytes_>
struct PipeMemory {
  static constexpr std::uint32_t stage_count = stages_, stage_bytes = bytes_;
  struct Target {
    std::byte* to;
    std::uint32_t bytes;
  };
  alignas(128) std::byte stages[stage_count][stage_bytes];
  Barrier landed[stage_count];
  Target targets[stage_count];
  ProgressMemory loaded;   ///< sources that have been read
  ProgressMemory written;  ///< and are where they belong
};

__device__ __forceinline__ void wait_for(Barrier& barrier, std::uint32_t parity) {
  while (!has_ended(barrier, parity)) {
  }
}

/// `bytes` in parts of at most `most` and of one length, which is a multiple of 16: a short one costs as much time as a
/// long one.
__device__ __forceinline__ std::uint32_t even_part(std::uint32_t bytes, std::uint32_t most) {
  const std::uint32_t parts = (bytes + most - 1) / most, granules = (bytes + 15) / 16;
  return parts == 0 ? 0 : (granules + parts - 1) / parts * 16;
}

/// The end of a chunk, of less than 16 bytes, which asynchronous copies cannot carry.
__device__ __forceinline__ void copy_tail(const std::byte* from, std::byte* to, std::uint32_t bytes) {
  OddBytes::store(to, bytes, 1, OddBytes::load(from, bytes, 1));
}

/// In the registers of the one thread that drives it.
template <class Memory>
class Pipe {
  /// Stages that are being loaded at most; the others are being stored.
  static constexpr std::uint32_t loading = Memory::stage_count / 2;
  static constexpr int leaving = Memory::stage_count - loading - 1;

 public:
  /// `tells_written`: somebody waits for that. `yields`: leaves the SM's way out to others by half, as one piece alone
  /// is on it.
  __device__ Pipe(Memory& memory, bool tells_written, bool yields)
      : memory_(memory),
        tells_written_(tells_written),
        yields_(yields),
        loaded_(memory.loaded),
        written_(memory.written) {}
  static __device__ void prepare(Memory& memory) {
    for (Barrier& barrier : memory.landed) prepare_barrier(barrier, 1);
    memory.loaded.done = memory.written.done = 0;
  }

  /// Both addresses are multiples of 16; the length need not be.
  __device__ void put(const std::byte* from, std::byte* to, std::uint32_t bytes) {
    const std::uint32_t whole = bytes / 16 * 16;
    const std::uint32_t piece = even_part(whole, Memory::stage_bytes);
    for (std::uint32_t offset = 0; offset < whole; offset += piece) {
      const std::uint32_t left = whole - offset;
      put_piece(from + offset, to + offset, left < piece ? left : piece);
    }
    if (whole != bytes) copy_tail(from + whole, to + whole, bytes - whole);
  }
  __device__ void end_task() {
    if (loaded_.is_full() || written_.is_full()) flush();
    loaded_.end_task(put_, ++tasks_);
    if (tells_written_) written_.end_task(put_, tasks_);
    note();
  }
  /// Until all that was put has been read.
  __device__ void pass_all() {
    while (passed_ != put_) pass();
  }
  /// Until it is where it belongs.
  __device__ void flush() {
    pass_all();
    wait_stored<0>();
    arrived_ = passed_;
    note();
  }

 private:
  __device__ void put_piece(const std::byte* from, std::byte* to, std::uint32_t bytes) {
    if (put_ - passed_ == loading) pass();
    const std::uint32_t stage = put_ % Memory::stage_count;
    memory_.targets[stage] = {to, bytes};
    arrive_expecting(memory_.landed[stage], bytes);
    load_async(memory_.stages[stage], from, bytes, memory_.landed[stage]);
    ++put_;
  }
  /// The oldest piece that is being loaded is stored.
  __device__ void pass() {
    const std::uint32_t stage = passed_ % Memory::stage_count;
    wait_for(memory_.landed[stage], passed_ / Memory::stage_count % 2);
    const auto target = memory_.targets[stage];
    store_async(target.to, memory_.stages[stage], target.bytes);
    close_group();
    ++passed_;
    if (yields_)
      wait_left<0>();
    else
      wait_left<leaving>();
    loaded_.note(passed_);
    if (written_.is_complete()) return;  // nobody wants to know, and each question takes time
    const std::uint32_t missing = lag_.wait<leaving>();
    if (passed_ > arrived_ + missing) arrived_ = passed_ - missing;
    written_.note(arrived_);
  }
  __device__ void note() {
    loaded_.note(passed_);
    written_.note(arrived_);
  }

  Memory& memory_;
  const bool tells_written_, yields_;
  Progress loaded_, written_;
  Lag lag_;
  std::uint32_t tasks_ = 0;
  // Pieces.
  std::uint32_t put_ = 0;
  std::uint32_t passed_ = 0;   ///< loaded, and being stored or stored
  std::uint32_t arrived_ = 0;  ///< known to be stored
};

}  // namespace strait::kernels
