#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "executor/copy_engine/peer_copies.hpp"
#include "executor/copy_engine/peer_messages.hpp"
#include "late.hpp"
#include "machine.hpp"

/// GPU ranks that copy into one another's memory (copy_engine::PeerCopies, copy_engine::PeerMessages), with streams and
/// a reduction kernel that run on the CPU.
namespace strait::testing {

inline constexpr std::size_t peer_window_bytes =
    2 * copy_engine::PeerCopies::depth * 4096;  ///< the smallest allowed: chunks of 8 or 4 KB

/// The memory of GPUs that can access one another's memory.
class Peers {
 public:
  explicit Peers(std::uint32_t ranks, std::size_t all_window_bytes = peer_window_bytes)
      : machine(ranks, copy_engine::MessageWords{ranks}.size_bytes()),
        window_bytes(all_window_bytes),
        windows_(ranks * ranks, Bytes(window_bytes)),
        contributed_(ranks * ranks * copy_engine::PeerWords::lanes),
        mailboxes_(ranks),
        launch_counts_(ranks) {}

  std::byte* window(std::uint32_t writer, std::uint32_t reader) {
    return windows_[writer * machine.ranks() + reader].data();
  }
  std::uint32_t* contributed(std::uint32_t writer, std::uint32_t reader) {
    return &contributed_[(writer * machine.ranks() + reader) * copy_engine::PeerWords::lanes];
  }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }
  kernels::LaunchCounts& launch_counts(std::uint32_t rank) { return launch_counts_[rank]; }
  /// Makes the communicator fail: ends the waits of all kernels, and sets what `has_failed` returns.
  void fail() {
    machine.failed() = true;
    for (kernels::Mailbox& each : mailboxes_) std::atomic_ref(each.abort) = 1;
  }

  Machine machine;
  const std::size_t window_bytes;

 private:
  std::vector<Bytes> windows_;
  std::vector<std::uint32_t> contributed_;
  std::vector<kernels::Mailbox> mailboxes_;
  std::vector<kernels::LaunchCounts> launch_counts_;
};

/// One rank, with a stream that stands for the user's.
class PeerRank {
 public:
  PeerRank(Peers& peers, std::uint32_t rank, const FakeStreams::Options& streams, std::uint32_t blocks = 2,
           bool has_windows = true);
  copy_engine::PeerCopies::Setup setup(std::unique_ptr<FakeStreams> streams);
  Status enqueue(const CopyCall& call) { return copies->enqueue(call, hash_of(call), stream); }
  /// Enqueues a call that copies directly into the ranks' outputs (`outputs`, by rank).
  Status enqueue(const CopyCall& call, const copy_engine::PeerCopies::PeerAddresses& outputs) {
    return copies->enqueue_in_place(call, outputs, hash_of(call), stream);
  }
  /// Enqueues a group of messages, on the same streams and windows as `copies`.
  Status enqueue(std::span<const copy_engine::Message> group) { return messages->enqueue(group, stream); }
  static std::uint32_t hash_of(const CopyCall& call);
  /// Ends all waits of this rank's streams, as the attendant thread of a failed communicator does.
  void drain();
  /// Waits until the stream has ended. If `stop` is given and this rank's streams reach it, the communicator fails at
  /// that point, once the other ranks have gone as far as they can.
  void end_at(Stop* stop);

  FakeStreams* driver = nullptr;

 private:
  Status launch(const CopyCall& call, kernels::Add add, copy_engine::StreamDriver::Stream on);

  // Declared before `copies` and `messages`, whose destruction ends the driver's threads: until then these start
  // kernels.
  Peers& peers_;
  std::uint32_t rank_, blocks_;
  std::uint32_t shares_done_[copy_engine::PeerCopies::depth] = {};
  std::atomic<std::uint32_t> seed_ = 0;
  std::vector<std::jthread> kernels_;

 public:
  std::unique_ptr<copy_engine::PeerCopies> copies;
  std::unique_ptr<copy_engine::PeerMessages> messages;
  copy_engine::StreamDriver::Stream stream = nullptr;
};

inline bool is_supported(const Case& c) {
  return copy_engine::PeerTraffic::supports({.collective = c.collective, .op = c.op, .count = c.count});
}

}  // namespace strait::testing
