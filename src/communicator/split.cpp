// Parts of a communicator, which are communicators themselves.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <system_error>

#include "base/at_scope_end.hpp"
#include "base/shortage.hpp"
#include "bootstrap/bootstrap.hpp"
#include "communicator/agree.hpp"
#include "communicator/comm.hpp"
#include "communicator/gather.hpp"
#include "communicator/init_watch.hpp"

namespace strait {
namespace {

constexpr std::chrono::milliseconds news_every(10);
constexpr std::int64_t patience_with_left_ms = 500;

/// Returns an error if one of these ranks, which has yet to join, has died or left.
Status check_will_come(const Watch& watch, const std::vector<std::uint32_t>& remaining) {
  for (const std::uint32_t rank : remaining)
    if (watch.has_died(rank) || watch.has_left(rank))
      return fail(Code::remote_error, watch.name_of(rank) + ", which is to go on with others" +
                                          (watch.has_left(rank) ? ", has destroyed its communicator"
                                                                : " and " + watch.cause_of_death(rank)) +
                                          ". Go on without it, too");
  return {};
}

/// Ranks that have not joined yet have no connection that would show their death, but this communicator knows of it.
Result<std::unique_ptr<Channel>> rejoin_living(const Channel& channel, const Watch& watch,
                                               const std::vector<std::uint32_t>& remaining, const Wait& wait,
                                               InitProgress& progress) {
  std::atomic<bool> gives_up{false};
  JoinOptions place;
  place.wait = {wait.deadline, &gives_up};
  place.progress = &progress;
  std::future<Result<std::unique_ptr<Channel>>> joining;
  try {
    joining = std::async(std::launch::async, [&] {
      return rejoin(channel, {remaining.begin(), remaining.end()}, place);
    });
  } catch (const std::system_error& error) {
    return cannot_start_thread(error);
  }
  const auto any_died = [&] {
    return std::any_of(remaining.begin(), remaining.end(),
                       [&watch](std::uint32_t rank) { return watch.has_died(rank); });
  };
  // A rank that has left may have done so because this shrink has failed, which this rank hears of in a moment.
  std::optional<Deadline> patience;
  while (joining.wait_for(news_every) != std::future_status::ready) {
    if (!patience && !check_will_come(watch, remaining)) patience = Deadline::after_ms(patience_with_left_ms);
    if (wait.aborted() || any_died() || (patience && patience->expired()))
      gives_up.store(true, std::memory_order_release);
  }
  auto joined = joining.get();
  if (!joined && !wait.aborted() && (gives_up || any_died())) STRAIT_TRY(check_will_come(watch, remaining));
  return joined;
}

/// Joins a part of a split under that unique ID; returns nullptr if `id` is null. All ranks of the whole, which
/// `channel` connects, take part, so that all learn at once if a rank cannot join.
Result<std::unique_ptr<Channel>> join_part(Channel& channel, const std::array<std::byte, unique_id_bytes>* id,
                                           JoinOptions place, const Deadline& deadline) {
  using Joined = Result<std::unique_ptr<Channel>>;
  std::atomic<bool> give_up{false};
  place.wait = {deadline, &give_up};
  const auto join_now = [&]() -> Joined {
    if (id == nullptr) return nullptr;
    STRAIT_ASSIGN(const UniqueId unpacked, unpack_unique_id(*id));
    return join(unpacked, place);
  };
  std::future<Joined> joining;
  std::optional<Joined> joined;
  // However this ends: the destructor of the future waits for the thread.
  const AtScopeEnd gives_up([&give_up] { give_up.store(true, std::memory_order_release); });
  try {
    joining = std::async(std::launch::async, join_now);
  } catch (const std::system_error& error) {
    joined = cannot_start_thread(error);
  }
  // Ranks compare their states in rounds, so that all leave in the same round: as soon as all have joined, or any
  // cannot.
  for (bool all_joined = false; !all_joined;) {
    if (!joined && joining.wait_for(news_every) == std::future_status::ready) joined = joining.get();
    const Status own = joined && !*joined ? Status(tl::unexpected(joined->error())) : Status();
    Status agreed = agree(channel, own, "join its part of a split communicator", deadline);
    auto states = agreed ? gather(channel, std::uint8_t{joined.has_value()}, deadline) : tl::unexpected(agreed.error());
    if (!states) return tl::unexpected(states.error());
    all_joined = std::all_of(states->begin(), states->end(), [](std::uint8_t done) { return done != 0; });
  }
  return std::move(*joined);
}

}  // namespace

Result<std::unique_ptr<Comm>> Comm::split(int color, int key, const CommOptions& options,
                                          const IsCancelled& is_cancelled) {
  return or_tell_out_of_memory([&]() -> Result<std::unique_ptr<Comm>> {
    STRAIT_TRY(announce_failure());
    // However this ends, even for lack of memory: the check that is set here refers to the caller's `is_cancelled`.
    const AtScopeEnd as_before(
        [this, own = error_source_of({})]() mutable { channel_->set_error_source(std::move(own)); });
    set_error_source(is_cancelled);
    channel_->set_call("split of the communicator");
    auto part = make_part(color, key, options, is_cancelled);
    if (!part) STRAIT_TRY(cause_of(part.error()));
    return part;
  });
}

Result<std::unique_ptr<Comm>> Comm::shrink(const std::vector<std::uint32_t>& remaining, CommOptions options,
                                           const Wait& wait) const {
  InitWatch init("straitCommShrink", wait.deadline);
  STRAIT_ASSIGN(auto channel, rejoin_living(*channel_, *watch_, remaining, wait, init.progress()));
  options.gpu.p2p = part_of(*options_.gpu.p2p, remaining);
  auto made = create(
      std::move(channel), options, [&wait] { return wait.aborted(); }, &init.progress());
  if (made) init.succeed();
  return made;
}

Result<std::unique_ptr<Comm>> Comm::make_part(int color, int key, const CommOptions& options,
                                              const IsCancelled& is_cancelled) {
  struct Wish {
    int color;
    int key;
  };
  const Deadline deadline = Deadline::after_ms(options_.init_timeout_ms);
  std::optional<InitWatch> init;
  // open_hosts() splits a communicator of GPUs that is being made: the user's call is another one, which is watched.
  const bool is_in_init = options_.device >= 0 && !device_;
  if (!is_in_init) init.emplace("straitCommSplit", deadline, init_place());
  InitProgress* const progress = init ? &init->progress() : nullptr;
  STRAIT_TRY(begin_set_up(SetUpCall::split, deadline));
  if (init) init->all_have_called("the other ranks, which tell what parts they want");
  STRAIT_ASSIGN(const auto wishes, gather(*channel_, Wish{color, key}, deadline));
  std::vector<std::uint32_t> members;
  for (std::uint32_t other = 0; other < ranks_; ++other)
    if (wishes[other].color == color) members.push_back(other);
  std::stable_sort(members.begin(), members.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return wishes[a].key < wishes[b].key; });

  // The first rank of each color creates the unique ID for its members. All ranks take part in the exchange, even those
  // without a color.
  std::array<std::byte, unique_id_bytes> own_id{};
  Status opened;
  if (color >= 0 && members.front() == rank_) {
    RootOptions root;
    root.deadline = deadline;
    auto id = create_unique_id(Environment(), std::move(root));
    if (id)
      own_id = id->pack();
    else
      opened = tl::unexpected(id.error());
  }
  STRAIT_ASSIGN(const auto ids, gather(*channel_, own_id, deadline));
  STRAIT_TRY(agree(*channel_, opened, "start the parts of a split communicator", deadline));
  JoinOptions place;
  place.call = channel_->call();  // the split, or the initialization that needs this part
  place.rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  place.ranks = static_cast<int>(members.size());
  place.progress = progress;
  STRAIT_ASSIGN(auto channel, join_part(*channel_, color < 0 ? nullptr : &ids[members.front()], place, deadline));
  if (!channel) {
    if (init) init->succeed();
    return std::unique_ptr<Comm>();
  }
  CommOptions part = options;
  part.gpu.p2p = part_of(*options_.gpu.p2p, members);
  // Only an abort of the whole cancels the part. Other failures of the whole may come from ranks whose part is complete
  // already, and that have gone on.
  const auto is_over = [this, &is_cancelled] {
    const Status whole = watch_->sticky();
    return (is_cancelled && is_cancelled()) || (!whole && whole.error().code == Code::aborted);
  };
  auto made = create(std::move(channel), part, is_over, progress);
  if (made && init) init->succeed();
  return made;
}

}  // namespace strait
