#pragma once

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/// The methods that copy_paths compares, as each of its two processes carries them out.
namespace copy_paths {

using Clock = std::chrono::steady_clock;

inline constexpr std::size_t depth = 4;
inline constexpr std::size_t largest_slot_bytes = 512 << 10;
inline constexpr std::array<std::size_t, 4> slot_sizes_bytes = {8 << 10, 32 << 10, 128 << 10, 512 << 10};
inline constexpr std::size_t block_bytes = 32 << 20;  ///< bytes that a block moves in each direction
inline constexpr std::size_t most_calls = 500;
inline constexpr auto wait_limit = std::chrono::seconds(30);

struct Method {
  enum class Kind { cma, slots, direct } kind;
  std::size_t slot_bytes = 0;
  bool non_temporal = false;
  bool huge_pages = false;

  std::string name() const {
    if (kind == Kind::cma) return "cma";
    std::string text = kind == Kind::direct ? "direct" : fmt::format("slots {}K", slot_bytes >> 10);
    return text + (non_temporal ? " nt" : "") + (huge_pages ? " huge" : "");
  }
};

inline std::vector<Method> all_methods() {
  std::vector<Method> methods = {{Method::Kind::cma}};
  for (const bool huge : {false, true})
    for (const bool non_temporal : {false, true}) {
      for (const std::size_t slot_bytes : slot_sizes_bytes)
        methods.push_back({Method::Kind::slots, slot_bytes, non_temporal, huge});
      methods.push_back({Method::Kind::direct, 0, non_temporal, huge});
    }
  return methods;
}

[[noreturn]] inline void stop(const std::string& message) {
  fmt::print(stderr, "copy_paths: {}\n", message);
  std::_Exit(1);
}

/// The counters of one direction. Writer and reader each write to a cache line of their own.
struct Ring {
  alignas(64) std::atomic<std::uint64_t> published = 0;
  alignas(64) std::atomic<std::uint64_t> released = 0;
};

struct Control {
  Ring rings[2];  ///< by sender
  alignas(64) std::atomic<std::uint64_t> arrived = 0;
  std::atomic<bool> cma_refused = false;
};

inline char* map(std::size_t bytes, int flags) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) stop(fmt::format("cannot map {} bytes: {}. Lower --maxbytes", bytes, std::strerror(errno)));
  return static_cast<char*>(data);
}

/// Memory that is mapped before the fork, so that both processes know all addresses, including those of private memory.
struct Memory {
  explicit Memory(std::size_t bytes) : max_bytes(bytes) {
    control = new (map(sizeof(Control), MAP_SHARED)) Control;
    for (const int huge : {0, 1}) {
      slots[huge] = map(2 * depth * largest_slot_bytes, MAP_SHARED);
      sources[huge] = map(2 * bytes, MAP_SHARED);
      madvise(slots[huge], 2 * depth * largest_slot_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
      madvise(sources[huge], 2 * bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    }
    source = map(bytes, MAP_PRIVATE);
    destination = map(bytes, MAP_PRIVATE);
  }

  std::size_t max_bytes;
  Control* control;
  char* slots[2];    ///< [0]: normal pages, [1]: huge pages; slots of both directions
  char* sources[2];  ///< [0]: normal pages, [1]: huge pages; shared source buffers of both processes
  char* source;      ///< private: the same address in both processes, but different memory
  char* destination;
};

template <class Ready>
void wait_until(Ready&& ready) {
  for (int spins = 0; spins < 2000; ++spins) {
    if (ready()) return;
    _mm_pause();
  }
  const auto deadline = Clock::now() + wait_limit;
  while (!ready()) {
    if (Clock::now() > deadline) stop("the other process does not answer. Look for its message above");
    sched_yield();
  }
}

inline void copy(char* to, const char* from, std::size_t bytes, bool non_temporal) {
  if (!non_temporal) {
    std::memcpy(to, from, bytes);
    return;
  }
  // Here, sizes and addresses are multiples of 64 bytes.
  for (std::size_t i = 0; i < bytes; i += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(from + i);
    auto* out = reinterpret_cast<__m128i*>(to + i);
    for (int lane = 0; lane < 4; ++lane) _mm_stream_si128(out + lane, _mm_load_si128(in + lane));
  }
  _mm_sfence();
}

/// One of the two processes and its part in the measurements.
class Process {
 public:
  Process(Memory& memory, int index, pid_t peer) : memory_(memory), index_(index), peer_(peer) {}

  /// Waits until both processes have called this.
  void meet() {
    const std::uint64_t target = 2 * ++meetings_;
    memory_.control->arrived.fetch_add(1);
    wait_until([&] { return memory_.control->arrived.load() >= target; });
  }

  void exchange(const Method& method, std::size_t bytes) {
    switch (method.kind) {
      case Method::Kind::cma:
        return read_from_peer(bytes);
      case Method::Kind::slots:
        return through_slots(method, bytes);
      case Method::Kind::direct:
        return copy(memory_.destination, shared_source(method.huge_pages, 1 - index_), bytes, method.non_temporal);
    }
  }

  void fill_sources(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
      const std::uint64_t word = pattern(index_, i);
      std::memcpy(memory_.source + i, &word, sizeof word);
    }
    for (const int huge : {0, 1}) std::memcpy(shared_source(huge, index_), memory_.source, bytes);
  }

  void verify(const Method& method, std::size_t bytes) {
    std::memset(memory_.destination, 0, bytes);
    meet();
    exchange(method, bytes);
    meet();
    if (method.kind == Method::Kind::cma && memory_.control->cma_refused) return;
    for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory_.destination + i, sizeof word);
      if (word != pattern(1 - index_, i)) stop(fmt::format("{} of {} bytes is wrong at {}", method.name(), bytes, i));
    }
  }

  /// Measures a block of exchanges. Returns the time of one exchange, in microseconds.
  double time_block(const Method& method, std::size_t bytes) {
    const std::size_t calls = std::clamp<std::size_t>(block_bytes / bytes, 2, most_calls);
    char* source = method.kind == Method::Kind::direct ? shared_source(method.huge_pages, index_) : memory_.source;
    Clock::duration total{};
    for (std::size_t i = 0; i < calls; ++i) {
      write_again(source, bytes);
      meet();
      const auto start = Clock::now();
      exchange(method, bytes);
      meet();  // both processes have received their data
      total += Clock::now() - start;
    }
    return std::chrono::duration<double, std::micro>(total).count() / static_cast<double>(calls);
  }

  bool cma_refused() const { return memory_.control->cma_refused; }

 private:
  static std::uint64_t pattern(int process, std::size_t i) {
    return (i + static_cast<std::size_t>(process) + 1) * 0x9e3779b97f4a7c15u;
  }

  /// Brings every cache line of the source into this core's cache, in modified state.
  static void write_again(char* source, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) {
      auto* byte = static_cast<volatile char*>(source + i);
      *byte = *byte;
    }
  }

  char* shared_source(int huge, int process) const {
    return memory_.sources[huge] + static_cast<std::size_t>(process) * memory_.max_bytes;
  }

  void read_from_peer(std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const iovec local = {memory_.destination + done, bytes - done};
      const iovec remote = {memory_.source + done, bytes - done};
      const ssize_t moved = process_vm_readv(peer_, &local, 1, &remote, 1, 0);
      if (moved <= 0) {
        memory_.control->cma_refused = true;
        return;
      }
      done += static_cast<std::size_t>(moved);
    }
  }

  /// Sends and receives slot by slot, whichever can proceed.
  void through_slots(const Method& method, std::size_t bytes) {
    Ring& out = memory_.control->rings[index_];
    Ring& in = memory_.control->rings[1 - index_];
    const std::size_t count = (bytes + method.slot_bytes - 1) / method.slot_bytes;
    const auto piece = [&](std::size_t i) { return std::min(method.slot_bytes, bytes - i * method.slot_bytes); };
    const auto slot = [&](int sender, std::uint64_t number) {
      return memory_.slots[method.huge_pages] +
             (static_cast<std::size_t>(sender) * depth + number % depth) * method.slot_bytes;
    };
    std::size_t sent = 0;
    std::size_t received = 0;
    while (sent < count || received < count) {
      const std::uint64_t write = out.published.load(std::memory_order_relaxed);
      const std::uint64_t read = in.released.load(std::memory_order_relaxed);
      const auto can_send = [&] {
        return sent < count && write - out.released.load(std::memory_order_acquire) < depth;
      };
      const auto can_receive = [&] { return received < count && in.published.load(std::memory_order_acquire) != read; };
      wait_until([&] { return can_send() || can_receive(); });
      if (can_send()) {
        copy(slot(index_, write), memory_.source + sent * method.slot_bytes, piece(sent), false);
        out.published.store(write + 1, std::memory_order_release);
        ++sent;
      }
      if (can_receive()) {
        copy(memory_.destination + received * method.slot_bytes, slot(1 - index_, read), piece(received),
             method.non_temporal);
        in.released.store(read + 1, std::memory_order_release);
        ++received;
      }
    }
  }

  Memory& memory_;
  int index_;
  pid_t peer_;
  std::uint64_t meetings_ = 0;
};

}  // namespace copy_paths
