#include "executor/copy_engine/peer_messages.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>

namespace strait::copy_engine {
namespace {

using Kind = MemoryOperation::Kind;
constexpr auto poll_interval = std::chrono::microseconds(200);
constexpr std::size_t grain_bytes = 4096;
/// The number of slots of each lane.
constexpr std::uint32_t slots = PeerMessages::depth / MessageWords::lanes;
/// The number of steps between sending and taking a chunk. So a rank fills all slots before it waits for what it
/// receives, and waits for a slot after it has waited for everything that frees it.
constexpr std::uint32_t take_after = PeerMessages::depth - 1;

/// The index of a chunk among those of its lane, and how many there are.
std::uint32_t place_of(std::uint32_t chunk) { return chunk / MessageWords::lanes; }
std::uint32_t places_of(std::uint32_t chunks, std::uint32_t lane) {
  return (chunks - lane + MessageWords::lanes - 1) / MessageWords::lanes;
}

}  // namespace

Result<std::unique_ptr<PeerMessages>> PeerMessages::open(Setup setup) {
  if (setup.ranks < 2 || setup.ranks > kernels::max_ranks || setup.rank >= setup.ranks)
    return fail(Code::invalid_argument, "rank " + std::to_string(setup.rank) + " of " + std::to_string(setup.ranks) +
                                            ": messages by copy engines are for 2 to " +
                                            std::to_string(kernels::max_ranks) + " ranks");
  if (setup.window_bytes < depth * grain_bytes)
    return fail(Code::invalid_argument,
                "windows of " + std::to_string(setup.window_bytes) + " bytes are too small for messages between GPUs");
  std::unique_ptr<PeerMessages> messages(new PeerMessages(std::move(setup)));
  STRAIT_ASSIGN(messages->begun_, messages->setup_.driver->create_event());
  return messages;
}

PeerMessages::~PeerMessages() {
  StreamDriver& driver = *setup_.driver;
  for (Lanes* lanes : {&sends_, &receives_})
    for (auto& of_peer : *lanes)
      for (Lane& lane : of_peer)
        while (!lane.is_idle(driver)) {
          if (setup_.has_failed()) release_waits();
          std::this_thread::sleep_for(poll_interval);
        }
  for (Lanes* lanes : {&sends_, &receives_})
    for (auto& of_peer : *lanes)
      for (Lane& lane : of_peer) lane.close(driver);
  if (begun_ != nullptr) driver.destroy_event(begun_);
}

std::size_t PeerMessages::slot_bytes() const { return setup_.window_bytes / depth / grain_bytes * grain_bytes; }

std::size_t PeerMessages::chunk_bytes(std::size_t bytes) const {
  const std::size_t wanted = (bytes / PeerCopies::wanted_chunks + grain_bytes - 1) / grain_bytes * grain_bytes;
  return std::min(slot_bytes(), std::max(wanted, PeerCopies::least_chunk_bytes));
}

std::uint32_t PeerMessages::chunks_of(std::size_t bytes) const {
  const std::size_t chunk = chunk_bytes(bytes);
  return static_cast<std::uint32_t>((bytes + chunk - 1) / chunk);
}

bool PeerMessages::supports(std::size_t bytes) const { return bytes != 0 && bytes <= most_chunks * chunk_bytes(bytes); }

Status PeerMessages::enqueue(std::span<const Message> messages, StreamDriver::Stream stream,
                             const std::function<Status()>& beside) {
  for (const Message& message : messages)
    if (message.peer >= setup_.ranks || !supports(message.bytes))
      return fail(Code::unsupported, "a message of " + std::to_string(message.bytes) + " bytes with rank " +
                                         std::to_string(message.peer) + " by copies between GPUs");
  STRAIT_TRY(setup_.driver->record(begun_, stream));
  // Kernels first: a stream that shares their hardware queue must not wait before they have been enqueued.
  if (beside) STRAIT_TRY(beside());
  std::vector<Lane*> lanes;
  STRAIT_TRY(fork(messages, stream, lanes));
  STRAIT_TRY(copy_own(messages));
  for (const Act& act : acts_of(messages)) STRAIT_TRY(carry_out(act));
  for (Lane* lane : lanes) STRAIT_TRY(lane->join(*setup_.driver, stream));
  return {};
}

/// `lanes` receives those lanes that have something to do.
Status PeerMessages::fork(std::span<const Message> messages, StreamDriver::Stream from, std::vector<Lane*>& lanes) {
  STRAIT_ASSIGN(const StreamState calls, setup_.driver->look_at(from));
  for (const Message& message : messages) {
    const bool is_own = message.peer == setup_.rank;
    if (is_own && !message.sends) continue;
    const std::uint32_t used = is_own ? 1 : std::min(chunks_of(message.bytes), MessageWords::lanes);
    for (std::uint32_t i = 0; i < used; ++i) {
      Lane* const lane = &(message.sends ? sends_ : receives_)[message.peer][i];
      if (std::find(lanes.begin(), lanes.end(), lane) != lanes.end()) continue;
      STRAIT_TRY(lane->open(*setup_.driver));
      STRAIT_TRY(lane->fork(*setup_.driver, begun_, calls.capture_id));
      lanes.push_back(lane);
    }
  }
  return {};
}

/// The k-th message that is sent is the k-th that is received.
Status PeerMessages::copy_own(std::span<const Message> messages) {
  std::vector<const Message*> sent, received;
  for (const Message& message : messages)
    if (message.peer == setup_.rank) (message.sends ? sent : received).push_back(&message);
  if (sent.size() != received.size())
    return fail(Code::invalid_usage, "messages of a rank to itself that do not pair up");
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (sent[i]->data != received[i]->data)
      STRAIT_TRY(setup_.driver->copy(
          {.to = received[i]->data, .from = sent[i]->data, .row_bytes = std::min(sent[i]->bytes, received[i]->bytes)},
          sends_[setup_.rank][0].stream));
  return {};
}

/// Returns this rank's acts of a group, in an order that is consistent among all ranks. Chunk c of the messages from
/// one rank to another is sent in step c, and taken `take_after` steps later. The next message begins, with its offer,
/// when the previous one is over. So both ranks know the steps, and whatever one of them waits for is in an earlier
/// step of the other, or earlier in the same step. Offers wait for nothing. A send waits for an offer of the same step
/// or an earlier one, and for a slot that was freed in the previous step. A take waits for the send.
std::vector<PeerMessages::Act> PeerMessages::acts_of(std::span<const Message> messages) const {
  std::vector<Act> acts;
  // First step of the next message, by direction and peer.
  std::array<std::array<std::uint32_t, kernels::max_ranks>, 2> begins{};
  for (const Message& message : messages) {
    if (message.peer == setup_.rank) continue;
    const std::uint32_t from = message.sends ? setup_.rank : message.peer;
    const std::uint32_t to = message.sends ? message.peer : setup_.rank;
    const std::uint32_t chunks = chunks_of(message.bytes), after = (to + setup_.ranks - from) % setup_.ranks;
    std::uint32_t& begin = begins[message.sends ? 1 : 0][message.peer];
    if (!message.sends) acts.push_back({begin, Act::Kind::offer, after, &message, 0});
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk)
      if (message.sends)
        acts.push_back({begin + chunk, Act::Kind::send, after, &message, chunk});
      else
        acts.push_back({begin + chunk + take_after, Act::Kind::take, after, &message, chunk});
    begin += chunks + take_after;
  }
  std::stable_sort(acts.begin(), acts.end(), [](const Act& a, const Act& b) {
    return std::tie(a.step, a.kind, a.after) < std::tie(b.step, b.kind, b.after);
  });
  return acts;
}

Status PeerMessages::carry_out(const Act& act) {
  switch (act.kind) {
    case Act::Kind::offer:
      return offer(act);
    case Act::Kind::send:
      return send(act);
    case Act::Kind::take:
      break;
  }
  return take(act);
}

/// Makes the offer on all lanes that the message uses.
Status PeerMessages::offer(const Act& act) {
  const Message& message = *act.message;
  const std::uint32_t own = setup_.rank, hash = std::max(message.hash, 1u);  // 0 means none
  for (std::uint32_t i = 0; i < std::min(chunks_of(message.bytes), MessageWords::lanes); ++i) {
    Lane& lane = receives_[message.peer][i];
    lane.add(Kind::write, word(words_.receiving(own, message.peer, i)), hash);
    lane.add(Kind::write, word(words_.ready(message.peer, own, i)), hash);
    STRAIT_TRY(lane.flush(*setup_.driver));
  }
  return {};
}

Status PeerMessages::send(const Act& act) {
  const Message& message = *act.message;
  const std::uint32_t own = setup_.rank, peer = message.peer, i = act.chunk % MessageWords::lanes;
  const std::uint32_t place = place_of(act.chunk), places = places_of(chunks_of(message.bytes), i);
  const std::uint32_t hash = std::max(message.hash, 1u);
  const std::size_t chunk = chunk_bytes(message.bytes), begin = act.chunk * chunk;
  Lane& lane = sends_[peer][i];
  if (place == 0) {
    lane.add(Kind::write, word(words_.sending(own, peer, i)), hash);
    lane.add(Kind::wait_equal, word(words_.ready(own, peer, i)), hash);
  }
  if (place >= slots) lane.add(Kind::wait_at_least, word(words_.taken_count(own, peer, i)), place - slots + 1);
  const bool is_last = place + 1 == places;
  if (is_last) lane.add(Kind::clear_pair, word(words_.ready(own, peer, i)));
  STRAIT_TRY(lane.flush(*setup_.driver));
  STRAIT_TRY(setup_.driver->copy({.to = setup_.windows_there[peer] + act.chunk % depth * slot_bytes(),
                                  .from = message.data + begin,
                                  .row_bytes = std::min(chunk, message.bytes - begin)},
                                 lane.stream));
  lane.add(Kind::write, word(words_.arrived_count(peer, own, i)), place + 1);
  if (is_last) lane.add(Kind::clear_pair, word(words_.sending(own, peer, i)));
  return lane.flush(*setup_.driver);
}

Status PeerMessages::take(const Act& act) {
  const Message& message = *act.message;
  const std::uint32_t own = setup_.rank, peer = message.peer, i = act.chunk % MessageWords::lanes;
  const std::uint32_t place = place_of(act.chunk), places = places_of(chunks_of(message.bytes), i);
  const std::size_t chunk = chunk_bytes(message.bytes), begin = act.chunk * chunk;
  Lane& lane = receives_[peer][i];
  const bool is_last = place + 1 == places;
  lane.add(Kind::wait_at_least, word(words_.arrived_count(own, peer, i)), place + 1);
  if (is_last) lane.add(Kind::clear_pair, word(words_.arrived_count(own, peer, i)));
  STRAIT_TRY(lane.flush(*setup_.driver));
  STRAIT_TRY(setup_.driver->copy({.to = message.data + begin,
                                  .from = setup_.windows_here[peer] + act.chunk % depth * slot_bytes(),
                                  .row_bytes = std::min(chunk, message.bytes - begin)},
                                 lane.stream));
  if (place + slots < places) lane.add(Kind::write, word(words_.taken_count(peer, own, i)), place + 1);
  if (is_last) lane.add(Kind::clear_pair, word(words_.receiving(own, peer, i)));
  return lane.flush(*setup_.driver);
}

std::atomic_ref<std::uint32_t> PeerMessages::host_word(std::size_t offset) const {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(setup_.host_words + offset));
}

/// The value for which a stream waits in ready() is known only while the message is under way, which is when it waits.
void PeerMessages::release_waits() {
  const std::uint32_t own = setup_.rank;
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer)
    for (std::uint32_t i = 0; i < MessageWords::lanes && peer != own; ++i) {
      host_word(words_.arrived_count(own, peer, i)).store(PeerWords::most, std::memory_order_release);
      host_word(words_.taken_count(own, peer, i)).store(PeerWords::most, std::memory_order_release);
      const std::uint32_t hash = host_word(words_.sending(own, peer, i)).load(std::memory_order_acquire);
      host_word(words_.ready(own, peer, i)).store(hash, std::memory_order_release);
    }
}

std::optional<std::chrono::milliseconds> PeerMessages::look(std::size_t under_way, std::uint64_t progress,
                                                            Standstill& standstill) {
  if (host_word(under_way).load(std::memory_order_relaxed) == 0) {
    standstill.reset();
    return std::nullopt;
  }
  const std::size_t looked_at = under_way + sizeof(std::uint32_t);
  // Another message than before.
  if (host_word(looked_at).exchange(1, std::memory_order_relaxed) == 0) standstill.reset();
  return standstill.look(progress);
}

std::optional<Wait> PeerMessages::wait() {
  const std::uint32_t own = setup_.rank;
  const auto value = [&](std::size_t offset) { return host_word(offset).load(std::memory_order_relaxed); };
  std::optional<Wait> longest;
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer)
    for (std::uint32_t i = 0; i < MessageWords::lanes && peer != own; ++i) {
      const std::uint64_t sent =
          std::uint64_t{value(words_.ready(own, peer, i))} << 32 | value(words_.taken_count(own, peer, i));
      for (const auto& waited : {look(words_.sending(own, peer, i), sent, standstills_[peer][2 * i]),
                                 look(words_.receiving(own, peer, i), value(words_.arrived_count(own, peer, i)),
                                      standstills_[peer][2 * i + 1])})
        if (waited && (!longest || *waited > longest->duration)) longest = Wait{.duration = *waited, .rank = peer};
    }
  return longest;
}

}  // namespace strait::copy_engine
