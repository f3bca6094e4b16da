#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "calls/call.hpp"
#include "device/device_arenas.hpp"
#include "device/device_rank.hpp"
#include "device/device_registrations.hpp"
#include "executor/copy_engine/gate.hpp"
#include "executor/copy_engine/peer_copies.hpp"
#include "executor/copy_engine/peer_messages.hpp"
#include "executor/copy_engine/staged_copies.hpp"
#include "select/copy_borders.hpp"

namespace strait {

/// The large calls of a GPU rank that copy engines carry: through windows in the memory of peers' GPUs (reductions are
/// added up by a kernel of few thread blocks), through host memory (only calls that reduce nothing), or directly into
/// memory that peers have registered.
class DeviceCopies {
 public:
  using LaunchAdd =
      std::function<Status(const void* kernel, const kernels::Add& add, std::uint32_t blocks, void* stream)>;
  DeviceCopies() = default;
  /// `request` and `arenas` must outlive the object. If no copy engines are wanted, the object carries no calls.
  static Result<DeviceCopies> open(const DeviceRank::Request& request, const DeviceArenas& arenas,
                                   LaunchAdd launch_add);
  /// Returns whether copy engines would carry any calls. `staged`: GPUs cannot access one another's memory.
  static bool are_wanted(const DeviceRank::Request& request, bool staged);

  /// Returns whether copy engines carry the call; the same on all ranks.
  bool carries(const Call& call) const;
  /// Returns whether calls can be captured into graphs; if not, kernels carry captured calls.
  bool can_be_captured() const { return staged_ == nullptr; }
  Status enqueue(const Call& call);

  /// Returns whether copy engines carry a send or a receive. Both ends decide alike, whatever else their groups
  /// contain.
  bool carries_message(const Call& message) const;
  /// Enqueues the messages of a group for which carries_message() is true, on `stream`. `beside` enqueues the group's
  /// other messages on the same stream; they run at the same time.
  Status enqueue_messages(std::span<const Call> messages, void* stream, const std::function<Status()>& beside);

  /// Prepares enqueue_in_place() if GPUs can access one another's memory, no two ranks of a process share a GPU, and
  /// all ranks share control words; otherwise does nothing. Collective.
  Status open_in_place(DeviceArenas& arenas);
  /// Returns whether the call goes directly into the outputs of peers if these are registered; the same on all ranks.
  bool carries_in_place(const Call& call) const;
  /// Enqueues such a call. `place`: of the call's output.
  Status enqueue_in_place(const Call& call, const DeviceRegistrations::Place& place);
  /// Returns the hash by which ranks meet for such a call: it depends on the output's place, so that ranks whose
  /// outputs are at different places do not meet.
  static std::uint32_t hash_at(const Call& call, const DeviceRegistrations::Place& place);

  /// Returns whether there are copies for which streams could wait.
  bool has_copies() const { return staged_ || peers_ || messages_; }
  /// Ends whatever streams wait for, after the communicator has failed. To be called repeatedly, as streams may come to
  /// further waits. Makes no driver calls.
  void release_waits();
  /// Polled by the attendant thread: reports long waits, raises an error at the deadline, and ends waits when the
  /// communicator has failed.
  void poll();

 private:
  Result<copy_engine::PeerCopies::Setup> setup_of(const DeviceArenas& arenas) const;
  Status open_peers(const DeviceArenas& arenas, LaunchAdd launch_add);
  Status open_staged(const HostMemory& windows);
  CopyBorders borders_for(const Call& call) const;
  std::optional<copy_engine::Wait> wait();

  const DeviceRank::Request* request_ = nullptr;
  CopyBorders borders_;
  cuda::DeviceMemory shares_done_;
  std::unique_ptr<copy_engine::StagedCopies> staged_;
  std::unique_ptr<copy_engine::PeerCopies> peers_;
  std::unique_ptr<copy_engine::PeerMessages> messages_;  ///< if peers_ has windows
  copy_engine::Gate gate_;                               ///< used if kernels have a deadline
  std::chrono::milliseconds told_{0};  ///< length of the wait in progress when it was last reported; 0: not yet
};

}  // namespace strait
