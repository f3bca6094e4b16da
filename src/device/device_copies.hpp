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

/// The large calls of a GPU rank that copy engines carry out: through the memory of peers, where a kernel of few blocks
/// adds, or through host memory, where calls are carried that add nothing up, or into what peers have registered.
class DeviceCopies {
 public:
  using LaunchAdd =
      std::function<Status(const void* kernel, const kernels::Add& add, std::uint32_t blocks, void* stream)>;
  DeviceCopies() = default;
  /// `request` and `arenas` outlive this. Where no copy engine is wanted this carries nothing.
  static Result<DeviceCopies> open(const DeviceRank::Request& request, const DeviceArenas& arenas,
                                   LaunchAdd launch_add);
  /// Whether any call would be carried; `staged`: where GPUs do not reach one another's memory.
  static bool are_wanted(const DeviceRank::Request& request, bool staged);

  /// All ranks decide alike.
  bool carries(const Call& call) const;
  /// Whether calls may be captured into graphs; if not, kernels carry those.
  bool can_be_captured() const { return staged_ == nullptr; }
  Status enqueue(const Call& call);

  /// Of a send or a receive; both ends decide alike, whatever else their groups have.
  bool carries_message(const Call& message) const;
  /// Those of a group that are carried, on `stream`; `beside` gives it what carries the others.
  Status enqueue_messages(std::span<const Call> messages, void* stream, const std::function<Status()>& beside);

  /// Where GPUs reach one another's memory and none is of two ranks, makes ready for enqueue_in_place(); else nothing.
  /// Collective.
  Status open_in_place(DeviceArenas& arenas);
  /// Whether a call could go into the outputs of peers, if they are registered; all ranks decide alike.
  bool carries_in_place(const Call& call) const;
  /// `place` is that of the call's output.
  Status enqueue_in_place(const Call& call, const DeviceRegistrations::Place& place);
  /// By which ranks meet for such a call: those whose outputs are at other places do not.
  static std::uint32_t hash_at(const Call& call, const DeviceRegistrations::Place& place);

  /// Whether there is anything that streams could wait for.
  bool are_open() const { return staged_ || peers_ || messages_; }
  /// When the communicator has failed, again and again: ends what streams wait for. Asks nothing of the driver.
  void release_waits();
  /// From the rank's attendant, again and again: tells of waits, and ends them when the communicator has failed.
  void look_after();

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
  std::unique_ptr<copy_engine::PeerMessages> messages_;  ///< where peers_ has windows
  copy_engine::Gate gate_;                               ///< where kernels have a deadline
  std::chrono::milliseconds told_{0};
};

}  // namespace strait
