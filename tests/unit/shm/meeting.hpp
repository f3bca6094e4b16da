#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "transports/shm/rendezvous.hpp"

namespace strait::shm {

constexpr std::size_t segment_bytes = 1 << 20;

inline RendezvousRequest request_of(std::uint32_t rank, const Secret& secret) {
  RendezvousRequest request{rank, {}, secret, segment_bytes, -1, Deadline::after_ms(10'000), {}, {}};
  request.agree = [](const Status& own) { return own; };
  for (std::uint32_t other = 0; other < 2; ++other)
    request.ranks.push_back({other, "process " + std::to_string(other), 1});
  return request;
}

inline Secret secret_of(pid_t pid) {
  Secret secret{};
  std::memcpy(secret.name.data(), &pid, sizeof pid);
  secret.password.fill(std::byte{42});
  return secret;
}

inline Secret secret_of_this_test() { return secret_of(getpid()); }

/// How far a leader and its ranks have come before they meet. Shared by processes.
struct Progress {
  std::atomic<bool> in_flight{false};  ///< descriptors that belong to none of them are in flight
  std::atomic<bool> listens{false};
  std::atomic<int> connected{0};
};

inline Progress* shared_progress() {
  void* const memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Progress;
}

inline RendezvousRequest request_of_several(std::uint32_t rank, int ranks, const Secret& secret, Progress& progress) {
  RendezvousRequest request = request_of(rank, secret);
  for (int other = 2; other < ranks; ++other)
    request.ranks.push_back({static_cast<std::uint32_t>(other), "process " + std::to_string(other), 1});
  request.agree = [&progress, is_leader = rank == 0, ranks, times = 0](const Status& own) mutable {
    const Deadline deadline = Deadline::after_ms(5000);
    const bool first = times++ == 0;
    if (is_leader && first) progress.listens = true;
    if (!is_leader && !first) ++progress.connected;
    while ((is_leader ? !first && progress.connected < ranks - 1 : first && !progress.listens) && !deadline.expired())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (is_leader && !first) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // all have greeted by then
    return own;
  };
  return request;
}

}  // namespace strait::shm
