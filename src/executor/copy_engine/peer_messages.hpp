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

/// Sends and receives of GPU ranks that write into one another's memory, one object a rank. Copy engines carry chunks
/// into the window in the receiver's memory, and from there to where they belong, as in PeerCopies, whose windows these
/// are. No SM is used.
///
/// A message is its two ranks' alone. Its chunks are dealt to two lanes, each of which has slots, words and on either
/// side a stream of its own, so that nothing waits for what other ranks, or the other direction, have not done yet. On
/// a lane
///  - the receiver writes ready(), by which it says that its half of the slots is free, and what is to come;
///  - the sender waits for that, fills slots, counts them in arrived(), and waits for taken() before it fills one
///  again;
///  - the receiver waits for arrived(), and counts in taken() what it has taken out, if the sender waits for it.
/// Each clears its words behind its last wait of the message, so that the next one, or a replay, finds them clear:
///  - arrived() is cleared before the receiver's next ready(), for which the sender waits before it writes any;
///  - ready() and taken() are cleared before the sender's last arrived(), behind which the receiver's next ready() is,
///    and the receiver writes no taken() that the sender has not waited for.
/// ready() bears a hash of the message and is waited for with equality: messages that differ never meet.
///
/// A collective of PeerCopies on the same windows begins on no rank before its messages are done, and is over on both
/// ranks of a message before one is ready and the other sees it.
///
/// Streams may share a hardware queue, in which what waits holds up all that comes after it. There a group's commands
/// are in an order in which no rank waits for what another has behind a wait for this one, if the peers post what they
/// have with this rank as groups, too (act()). If they do not, a message that fits into the window still waits for
/// nothing but its receiver.
///
/// Messages are enqueued on the user's stream and return. Can be captured. One thread at a time calls enqueue().
class PeerMessages {
 public:
  static constexpr std::uint32_t depth = PeerCopies::depth;
  /// Of a message. A driver whose queue is full, of about a thousand commands, would keep a thread that enqueues for
  /// several ranks from giving the others theirs.
  static constexpr std::size_t most_chunks = 128;

  struct Setup {
    std::shared_ptr<StreamDriver> driver;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;  ///< at least 2
    /// As in PeerCopies::Setup, but for the words: MessageWords::size_bytes() of memory.
    PeerCopies::PeerAddresses windows_there{}, windows_here{};
    std::size_t window_bytes = 0;
    std::byte* host_words = nullptr;
    std::byte* device_words = nullptr;
    std::function<bool()> has_failed;
  };
  static Result<std::unique_ptr<PeerMessages>> open(Setup setup);
  /// Waits for this rank's streams; after a failure of the communicator that is soon.
  ~PeerMessages();
  PeerMessages(const PeerMessages&) = delete;
  PeerMessages& operator=(const PeerMessages&) = delete;

  /// Both ends of a message find alike.
  bool supports(std::size_t bytes) const;

  /// The ends that this rank has of one group. From one rank to another, and on both, they are in the same order; those
  /// of this rank to itself pair up. `beside` gives the user's stream what is to run beside them. After an error of the
  /// driver this object is of no more use.
  Status enqueue(std::span<const Message> messages, StreamDriver::Stream stream,
                 const std::function<Status()>& beside = {});

  /// As those of PeerCopies. What wait() tells of is the message that has stood still for longest.
  void release_waits();
  std::optional<Wait> wait();

 private:
  /// One thing that is done with one chunk.
  struct Act {
    enum class Kind : std::uint8_t { offer, send, take };  ///< in the order in which a step has them
    std::uint32_t step = 0;
    Kind kind = Kind::offer;
    std::uint32_t after = 0;  ///< ranks lie between the two
    const Message* message = nullptr;
    std::uint32_t chunk = 0;
  };
  using Lanes = std::array<std::array<Lane, MessageWords::lanes>, kernels::max_ranks>;  ///< by peer
  explicit PeerMessages(Setup setup) : setup_(std::move(setup)), words_{setup_.ranks} {}

  /// Where each slot begins, whatever the chunks: those of messages that follow one another must not overlap.
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
  /// How long what `under_way` tells of has stood still.
  std::optional<std::chrono::milliseconds> look(std::size_t under_way, std::uint64_t progress, Standstill& standstill);

  Setup setup_;
  MessageWords words_;
  Lanes sends_, receives_;
  StreamDriver::Event begun_ = nullptr;
  std::array<std::array<Standstill, 2 * MessageWords::lanes>, kernels::max_ranks> standstills_;
};

}  // namespace strait::copy_engine
