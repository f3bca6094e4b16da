#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "executor/copy_engine/lane.hpp"
#include "executor/copy_engine/message_words.hpp"
#include "executor/copy_engine/peer_copies.hpp"
#include "executor/copy_engine/stream_driver.hpp"
#include "executor/copy_engine/wait.hpp"

namespace strait::copy_engine {

/// One end of a message.
struct Message {
  bool sends = false;
  std::uint32_t peer = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t hash = 0;  ///< the same at both ends
};

/// Carries sends and receives of GPU ranks that write into one another's memory; one object per rank. Copy engines copy
/// chunks into the window in the receiver's memory, and from there to their destination, as in PeerCopies, whose
/// windows are used. No SM is used.
///
/// A message concerns only its two ranks. Its chunks alternate between two lanes. Each lane has its own slots and
/// words, and its own stream on either side, so that nothing waits for what other ranks, or the opposite direction,
/// have not done yet. On a lane
///  - the receiver writes ready(), which says that its slots of this lane are free, and which message it expects;
///  - the sender waits for ready(), fills slots and counts them in arrived_count(), and waits for taken_count() before
///    it refills a slot;
///  - the receiver waits for arrived_count(), and counts in taken_count() what it has taken out, if the sender waits
///    for it.
/// Each rank clears its words after its last wait of the message, so that the next message, or a replay, finds them
/// cleared:
///  - arrived_count() is cleared before the receiver's next ready(), for which the sender waits before it writes
///    arrived_count();
///  - ready() and taken_count() are cleared before the sender's last arrived_count(), which precedes the receiver's
///    next ready(); and the receiver writes no taken_count() for which the sender does not wait.
/// The value of ready() is a hash of the message, and is waited for with equality: different messages never meet.
///
/// A collective of PeerCopies on the same windows begins on a rank only after that rank's messages, and has ended on
/// both ranks of a message before one of them is ready and the other sees it.
///
/// Streams may share a hardware queue, in which a wait blocks everything behind it. The commands of a group are in an
/// order in which no rank waits for something that another rank has enqueued behind a wait for this rank, provided that
/// the peers also post their messages with this rank as groups (acts_of()). If they do not, a message that fits into
/// the window still waits only for its receiver.
///
/// Messages are enqueued on the user's stream and return. They can be captured. One thread at a time calls enqueue().
class PeerMessages {
 public:
  static constexpr std::uint32_t depth = PeerCopies::depth;
  /// The largest number of chunks of a message. With more, a thread that enqueues for several ranks could block on a
  /// full driver queue (about a thousand commands) before it has given the other ranks their part.
  static constexpr std::size_t most_chunks = 128;

  struct Setup {
    std::shared_ptr<StreamDriver> driver;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;  ///< at least 2
    /// As in PeerCopies::Setup, except that the words are MessageWords::size_bytes() of memory.
    PeerCopies::PeerAddresses windows_there{}, windows_here{};
    std::size_t window_bytes = 0;
    std::byte* host_words = nullptr;
    std::byte* device_words = nullptr;
    std::function<bool()> has_failed;
  };
  static Result<std::unique_ptr<PeerMessages>> open(Setup setup);
  /// Waits until this rank's streams are idle, which after a failure of the communicator is soon.
  ~PeerMessages();
  PeerMessages(const PeerMessages&) = delete;
  PeerMessages& operator=(const PeerMessages&) = delete;

  /// Returns whether a message of this length can be carried; the same at both ends.
  bool supports(std::size_t bytes) const;

  /// Enqueues this rank's ends of the messages of one group. Both ranks of a pair list the messages from one to the
  /// other in the same order; sends and receives of this rank to itself pair up in order. `beside` gives the user's
  /// stream the work that is to run concurrently. After an error of the driver this object can no longer be used.
  Status enqueue(std::span<const Message> messages, StreamDriver::Stream stream,
                 const std::function<Status()>& beside = {});

  /// Like those of PeerCopies. wait() reports the message that has stood still for the longest time.
  void release_waits();
  std::optional<Wait> wait();

 private:
  /// One action on one chunk.
  struct Act {
    enum class Kind : std::uint8_t { offer, send, take };  ///< in the order of acts within a step
    std::uint32_t step = 0;
    Kind kind = Kind::offer;
    std::uint32_t after = 0;  ///< cyclic distance from sender to receiver
    const Message* message = nullptr;
    std::uint32_t chunk = 0;
  };
  using Lanes = std::array<std::array<Lane, MessageWords::lanes>, kernels::max_ranks>;  ///< by peer
  explicit PeerMessages(Setup setup) : setup_(std::move(setup)), words_{setup_.ranks} {}

  /// Returns the spacing of the slots. It does not depend on the chunk size, so that chunks of consecutive messages in
  /// different slots do not overlap.
  std::size_t slot_bytes() const;
  std::size_t chunk_bytes(std::size_t bytes) const;
  std::uint32_t chunks_of(std::size_t bytes) const;
  std::vector<Act> acts_of(std::span<const Message> messages) const;
  Status fork(std::span<const Message> messages, StreamDriver::Stream from, std::vector<Lane*>& lanes);
  Status carry_out(const Act& act);
  Status offer(const Act& act);
  Status send(const Act& act);
  Status take(const Act& act);
  Status copy_own(std::span<const Message> messages);
  void* word(std::size_t offset) const { return setup_.device_words + offset; }
  std::atomic_ref<std::uint32_t> host_word(std::size_t offset) const;
  /// Returns how long the message to which the word `under_way` belongs has stood still; nothing if none is under way.
  std::optional<std::chrono::milliseconds> look(std::size_t under_way, std::uint64_t progress, Standstill& standstill);

  Setup setup_;
  MessageWords words_;
  Lanes sends_, receives_;
  StreamDriver::Event begun_ = nullptr;
  std::array<std::array<Standstill, 2 * MessageWords::lanes>, kernels::max_ranks> standstills_;
};

}  // namespace strait::copy_engine
