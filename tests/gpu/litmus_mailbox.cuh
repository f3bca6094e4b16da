#pragma once

#include <cstdint>

#include "kernels/protocol.cuh"

/// What a kernel of one thread and the host exchange through a Mailbox (kernels/launch.hpp).
namespace strait::testing {

using kernels::Mailbox;

template <class T>
__device__ __forceinline__ volatile T& shared_word(T& word) {
  return *static_cast<volatile T*>(&word);
}

/// Waits until the host has written `value` to the abort word. Returns false after ten seconds.
__device__ __forceinline__ bool await_abort_word(Mailbox& mailbox, std::uint32_t value) {
  constexpr std::uint64_t limit_ns = 10'000'000'000;
  const std::uint64_t began_ns = kernels::device_now_ns();
  while (shared_word(mailbox.abort) != value)
    if (kernels::device_now_ns() - began_ns > limit_ns) return false;
  return true;
}

enum class Telling : std::uint8_t { as_poll_monitor_does, without_fence, event_first };

/// Answers each new value of the abort word with the words of an event, written in the order that `telling` says; the
/// first is that of PollMonitor.
template <Telling telling>
__global__ void answer(Mailbox* mailbox, std::uint32_t rounds) {
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (!await_abort_word(*mailbox, round)) return;
    if constexpr (telling == Telling::event_first) {
      shared_word(mailbox->event) = static_cast<Mailbox::Event>(round);
      __threadfence_system();
      const std::uint64_t began_ns = kernels::device_now_ns();
      while (kernels::device_now_ns() - began_ns < 5000) continue;
    }
    shared_word(mailbox->peer) = round * 3;
    shared_word(mailbox->lane) = round * 5;
    shared_word(mailbox->sends) = round * 7;
    if constexpr (telling == Telling::as_poll_monitor_does) __threadfence_system();
    if constexpr (telling != Telling::event_first) shared_word(mailbox->event) = static_cast<Mailbox::Event>(round);
  }
}

/// Waits for something that never comes until the host raises the abort word; reports when the word has been lowered,
/// and starts again.
__global__ void wait_in_vain(const __grid_constant__ kernels::Ring ring, std::uint32_t rounds) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    kernels::PollMonitor monitor;
    while (!monitor.must_give_up(ring, round % kernels::max_ranks, round, round % 2 == 1)) continue;
    if (!await_abort_word(*ring.mailbox, 0)) return;
    shared_word(ring.mailbox->event) = Mailbox::Event::none;
  }
}

}  // namespace strait::testing
