#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/async_copy.cuh"
#include "kernels/user_bytes.cuh"

/// Copies from memory to memory through stages in shared memory, by asynchronous copies that one thread starts. At any
/// time some stages are being loaded and others stored, so neither latency nor any wait leaves the link idle.
namespace strait::kernels {

/// Tells other warps how many tasks have been stored completely. Used by one thread, which stores every piece as a
/// group of its own. Some pieces have left shared memory but have not arrived; at most `leaving` others are still being
/// read from shared memory.
template <int leaving>
class Arrivals {
  static constexpr int soon = leaving + 1, late = leaving + 3;
  static constexpr std::uint64_t short_cycles = 1500, long_cycles = 4000;

 public:
  /// `is_hasty`: progress should be told as early as possible.
  __device__ Arrivals(std::uint32_t& done, bool is_hasty) : done_(done), is_hasty_(is_hasty) {}
  /// Another piece is being stored, with which this many tasks are done; 0: as many as before.
  __device__ void add(std::uint32_t tasks) {
#pragma unroll
    for (int ago = late; ago > 0; --ago) tasks_[ago] = tasks_[ago - 1];
    if (tasks != 0) tasks_[0] = tasks;
  }
  /// Nothing is being stored, and this many tasks are done.
  __device__ void end(std::uint32_t tasks) { tell(tasks_[0] = tasks); }
  /// Waits until an earlier piece has arrived, but not for pieces that are still leaving. How far back that piece is
  /// depends on how fast pieces follow one another, because the transfer itself takes about 2 us.
  __device__ void look() {
    if (tasks_[0] == told_) return;  // there is nothing new to tell, and each query takes time
    const std::uint64_t now = clock_cycles(), since = now - last_;
    last_ = now;
    if (since > long_cycles)
      await<leaving>();
    else if (since > short_cycles || is_hasty_)
      await<soon>();
    else
      await<late>();
  }
  __device__ void await_all() {
    if (tasks_[0] != told_) await<0>();
  }

 private:
  template <int missing>
  __device__ void await() {
    wait_stored<missing>();
    tell(tasks_[missing]);
  }
  /// After a late piece, a greater number may have been told than is known here.
  __device__ void tell(std::uint32_t tasks) {
    if (tasks > told_) store_progress(done_, told_ = tasks);
  }
  std::uint32_t& done_;
  const bool is_hasty_;
  /// Element i: the tasks that are done once all pieces except the last i have arrived.
  std::uint32_t tasks_[late + 1] = {};
  std::uint32_t told_ = 0;
  std::uint64_t last_ = 0;
};

template <std::uint32_t stages_, std::uint32_t bytes_>
struct PipeMemory {
  static constexpr std::uint32_t stage_count = stages_, stage_bytes = bytes_;
  struct alignas(16) Target {
    std::byte* to;
    std::uint32_t bytes;
    std::uint32_t tasks;  ///< tasks that are done with this piece; 0: it is not the last piece of a task
  };
  alignas(128) std::byte stages[stage_count][stage_bytes];
  Barrier landed[stage_count];
  Target targets[stage_count];
  std::uint32_t loaded;   ///< tasks whose sources have been read
  std::uint32_t written;  ///< tasks whose data has been stored completely
};

__device__ __forceinline__ void wait_for(Barrier& barrier, std::uint32_t parity) {
  while (!has_ended(barrier, parity)) {
  }
}

/// Returns the length of parts if `bytes` are divided into as few parts as possible, of at most `most` bytes and of
/// equal length, a multiple of 16. A short part would take as much time as a long one.
__device__ __forceinline__ std::uint32_t even_part(std::uint32_t bytes, std::uint32_t most) {
  const std::uint32_t parts = (bytes + most - 1) / most, granules = (bytes + 15) / 16;
  return parts == 0 ? 0 : (granules + parts - 1) / parts * 16;
}

/// Copies the end of a chunk, of less than 16 bytes, which asynchronous copies cannot carry.
__device__ __forceinline__ void copy_tail(const std::byte* from, std::byte* to, std::uint32_t bytes) {
  OddBytes::store(to, bytes, 1, OddBytes::load(from, bytes, 1));
}

/// A pipe, in the registers of the one thread that drives it.
template <class Memory>
class Pipe {
  /// The most stages that are loaded at the same time; the others are being stored.
  static constexpr std::uint32_t loading = Memory::stage_count / 2;
  static constexpr int leaving = Memory::stage_count - loading - 1;

 public:
  /// `tells_written`: other warps wait for `written`; `is_hasty`: see Arrivals. `yields`: leaves half of the SM's
  /// output rate to others, by storing only one piece at a time.
  __device__ Pipe(Memory& memory, bool tells_written, bool yields, bool is_hasty)
      : memory_(memory), tells_written_(tells_written), yields_(yields), arrivals_(memory.written, is_hasty) {}
  static __device__ void prepare(Memory& memory) {
    for (Barrier& barrier : memory.landed) prepare_barrier(barrier, 1);
    memory.loaded = memory.written = 0;
  }

  /// Copies a chunk, with which this many tasks are done. Both addresses must be multiples of 16; the length need not
  /// be.
  __device__ void put(const std::byte* from, std::byte* to, std::uint32_t bytes, std::uint32_t tasks) {
    const std::uint32_t whole = bytes / 16 * 16;
    if (whole != bytes) copy_tail(from + whole, to + whole, bytes - whole);
    if (whole == 0) return end_tasks(tasks);
    const std::uint32_t piece = whole <= Memory::stage_bytes ? whole : even_part(whole, Memory::stage_bytes);
    for (std::uint32_t offset = 0; offset < whole; offset += piece) {
      const std::uint32_t left = whole - offset;
      const bool is_last = left <= piece;
      put_piece(from + offset, to + offset, is_last ? left : piece, is_last ? tasks : 0);
    }
  }
  /// Waits until everything that was put has been read.
  __device__ void pass_all() {
    while (passed_ != put_) pass();
  }
  /// Waits until everything that was put has been stored completely. A pipe that tells_written_ must use this rather
  /// than pass_all().
  __device__ void flush() {
    pass_all();
    wait_stored<0>();
    arrivals_.await_all();
  }

 private:
  __device__ void put_piece(const std::byte* from, std::byte* to, std::uint32_t bytes, std::uint32_t tasks) {
    if (put_ - passed_ == loading) pass();
    const std::uint32_t stage = put_ % Memory::stage_count;
    arrive_expecting(memory_.landed[stage], bytes);
    load_async(memory_.stages[stage], from, bytes, memory_.landed[stage]);
    memory_.targets[stage] = {to, bytes, tasks};
    ++put_;
  }
  /// Ends tasks without another piece: they are done with the last piece that was put. If that has passed already, and
  /// other warps are told what is written, there was a flush, so nothing is being stored.
  __device__ void end_tasks(std::uint32_t tasks) {
    if (put_ != passed_) {
      memory_.targets[(put_ - 1) % Memory::stage_count].tasks = tasks;
      return;
    }
    store_progress(memory_.loaded, tasks);
    if (tells_written_) arrivals_.end(tasks);
  }
  /// Begins to store the oldest piece that is being loaded.
  __device__ void pass() {
    const std::uint32_t stage = passed_ % Memory::stage_count;
    wait_for(memory_.landed[stage], passed_ / Memory::stage_count % 2);
    const auto target = memory_.targets[stage];
    store_async(target.to, memory_.stages[stage], target.bytes);
    close_group();
    ++passed_;
    if (target.tasks != 0) store_progress(memory_.loaded, target.tasks);
    if (yields_)
      wait_left<0>();
    else
      wait_left<leaving>();
    if (!tells_written_) return;
    arrivals_.add(target.tasks);
    arrivals_.look();
  }

  Memory& memory_;
  const bool tells_written_, yields_;
  Arrivals<leaving> arrivals_;
  // Counts of pieces.
  std::uint32_t put_ = 0;
  std::uint32_t passed_ = 0;  ///< loaded; being stored, or stored completely
};

}  // namespace strait::kernels
