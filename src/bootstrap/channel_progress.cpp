#include <algorithm>

#include "base/list_names.hpp"
#include "base/log.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/root_state.hpp"

/// How the channel's operations advance and fail, and how errors spread.
namespace strait {
namespace {

/// With this many frames queued, nothing more is read from a neighbour that runs ahead: TCP makes it wait.
constexpr std::size_t max_inbox_frames = 16;
/// How long an operation continues after the callback of set_error_source() has reported an error, because frames that
/// were sent before may still arrive.
constexpr std::int64_t last_frames_ms = 100;

}  // namespace

Status Channel::error() const {
  std::lock_guard lock(error_mutex_);
  if (error_) return tl::unexpected(*error_);
  return {};
}

Status Channel::run(Operation& operation, const Wait& wait) {
  Deadline verdict = Deadline::never();
  Deadline last_frames = Deadline::never();
  WaitReminder reminder(rank_, remind_after_ms_);
  while (true) {
    if (auto advanced = progress(operation); !advanced) return advanced;
    if (operation.done() && !wants_write()) return {};
    if (wait.aborted())
      return break_channel({Code::aborted, describe(rank_) + " aborted during " + describe(operation.head)});
    if (const Status news = ask_error_source(); !news) {
      if (last_frames.is_never()) last_frames = Deadline::after_ms(last_frames_ms);
      if (last_frames.expired()) return break_channel(news.error());
    }
    if (wait.deadline.expired()) {
      if (verdict.is_never()) verdict = Deadline::after_ms(rank_ == 0 ? 0 : verdict_ms);
      if (verdict.expired()) return expire(operation);
    }
    // Rank 0 hears of all; while ranks join, their root tells who is missing.
    if (rank_ == 0 && !root_)
      if (const auto waited = reminder.due())
        log_warn(rank_, "the " + call_ + " has waited for " + *waited + ": " + describe_wait(operation));
    poll_all(earlier(verdict.is_never() ? wait.deadline : verdict, last_frames));
  }
}

Status Channel::progress(Operation& operation) {
  {
    std::unique_lock lock(error_mutex_);
    if (to_announce_) {
      Error announced = *to_announce_;
      lock.unlock();
      return break_channel(announced);
    }
  }
  STRAIT_TRY(look_at_root());
  for (Neighbour& neighbour : neighbours_) {
    STRAIT_TRY(receive(neighbour));
    STRAIT_TRY(take_frames(neighbour, operation));
    // An operation that can complete does so, whatever has happened on other ranks since.
    if (neighbour.bad_news && !operation.done()) return break_channel(*neighbour.bad_news, &neighbour);
    bool waiting = operation.needs(neighbour) && !operation.done();
    if (!waiting && !neighbour.connection.wants_write()) continue;
    if (neighbour.bad_news) return break_channel(*neighbour.bad_news, &neighbour);
    if (neighbour.left)
      return break_channel(
          {Code::remote_error,
           describe(neighbour.rank) + " has left, and " + describe(operation.head) +
               " needs it: it destroyed its communicator too early. Let it make the same calls as the others before it "
               "does"},
          &neighbour);
    if (neighbour.connection.ended()) return break_at_end_of(neighbour, " during " + describe(operation.head));
  }
  return {};
}

Status Channel::receive(Neighbour& neighbour) {
  neighbour.connection.flush();
  if (neighbour.inbox.size() < max_inbox_frames) neighbour.connection.fill();
  while (true) {
    auto frame = neighbour.connection.next();
    if (!frame) return break_channel({frame.error().code, describe(neighbour.rank) + " sent " + frame.error().message});
    if (!*frame) return {};
    if ((*frame)->type == FrameType::goodbye) {
      neighbour.left = true;
    } else if ((*frame)->type == FrameType::error) {
      auto error = decode_error((*frame)->payload);
      neighbour.bad_news = error ? *error : error.error();
    } else {
      neighbour.inbox.push_back(std::move(**frame));
    }
  }
}

Status Channel::take_frames(Neighbour& neighbour, Operation& operation) {
  while (!neighbour.inbox.empty() && !operation.done() && operation.needs(neighbour)) {
    Frame frame = std::move(neighbour.inbox.front());
    neighbour.inbox.pop_front();
    Deserializer in(frame.payload);
    OperationHead head = read_head(in);
    const OperationHead& mine = operation.head;
    bool same_root = head.operation != kind_broadcast || head.origin == mine.origin;
    if (in.failed() || head.operation != mine.operation || head.sequence != mine.sequence || !same_root)
      return break_channel(
          {Code::mismatch, "ranks call different operations of the out-of-band channel: " + describe(rank_) +
                               " is in " + describe(mine) + ", a rank at or behind " + describe(neighbour.rank) +
                               " in " + describe(head)});
    if (auto taken = operation.take(neighbour, frame, head, in); !taken) return break_channel(taken.error());
  }
  return {};
}

Status Channel::look_at_root() {
  if (!root_) return {};
  root_->fill();
  while (true) {
    auto frame = root_->next();
    if (!frame || !*frame) break;
    if ((*frame)->type == FrameType::inquiry)
      root_->send(FrameType::account,
                  encode(Error{Code::in_progress, "is connected, and waits for data from its neighbours"}));
    if ((*frame)->type != FrameType::error) continue;
    auto error = decode_error((*frame)->payload);
    return break_channel(error ? *error : error.error());
  }
  if (root_->ended())
    return break_channel(
        {Code::remote_error, "the start-up root at " + root_->peer() + " is gone: " + root_->end_reason()});
  return {};
}

void Channel::poll_all(Deadline deadline) {
  std::vector<pollfd> fds;
  for (const Neighbour& neighbour : neighbours_) {
    if (neighbour.connection.ended()) continue;
    auto events = neighbour.connection.poll_events();
    if (neighbour.inbox.size() >= max_inbox_frames) events = static_cast<short>(events & ~POLLIN);
    fds.push_back({neighbour.connection.fd(), events, 0});
  }
  if (root_) fds.push_back({root_->fd(), POLLIN, 0});
  poll_slice(fds, deadline);
}

bool Channel::wants_write() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(),
                     [](const Neighbour& neighbour) { return neighbour.connection.wants_write(); });
}

/// Returns whom this rank waits for. Of ranks below it in the tree, those above which another rank is silent, too, may
/// be well: what they have sent waits there.
std::string Channel::describe_wait(const Operation& operation) const {
  std::vector<std::string> silent;
  std::vector<int> behind;
  if (operation.head.operation == kind_broadcast) {
    for (const int root : operation.missing()) {
      const int towards = neighbour_towards(root);
      silent.push_back(describe(towards) + (towards == root ? "" : " or a rank behind it"));
    }
  } else {
    const auto missing = operation.missing();
    for (const int rank : missing) {
      const bool is_behind = std::binary_search(missing.begin(), missing.end(), (rank - 1) / 2);
      if (is_behind)
        behind.push_back(rank);
      else
        silent.push_back(describe(rank));
    }
    if (missing.empty() && rank_ > 0 && !operation.done())
      silent.push_back(describe((rank_ - 1) / 2) + " or a rank behind it");
  }
  if (silent.empty()) return "neighbours of " + describe(rank_) + " do not take its data";
  std::string text = "nothing came from " + list_names(silent);
  if (!behind.empty())
    text += ", and so not from rank" + std::string(behind.size() == 1 ? " " : "s ") + list_ranks(behind) +
            " behind, which may be well";
  return text;
}

tl::unexpected<Error> Channel::expire(const Operation& operation) {
  log_info(rank_, describe(operation.head) + " of the out-of-band channel did not finish");
  return break_channel({Code::timeout, "the " + call_ + unfinished_text + describe_wait(operation) +
                                           ". What is silent is stopped or slow, or has not made this call"});
}

tl::unexpected<Error> Channel::break_channel(const Error& error, const Neighbour* from) {
  {
    std::lock_guard lock(error_mutex_);
    if (error_) return tl::unexpected(*error_);
    error_ = error;
  }
  log_info(rank_, "the out-of-band channel failed: " + error.message);
  Bytes payload = encode(error);
  for (Neighbour& neighbour : neighbours_)
    if (&neighbour != from) neighbour.connection.send(FrameType::error, payload);
  if (root_) root_->send(FrameType::error, payload);
  return tl::unexpected(error);
}

/// Ends the channel because the connection to a neighbour has ended. If the communicator knows of an error
/// (set_error_source()), that is the cause, and is reported instead.
tl::unexpected<Error> Channel::break_at_end_of(const Neighbour& neighbour, const std::string& when) {
  if (const Status news = ask_error_source(); !news) return break_channel(news.error());
  return break_channel({Code::remote_error, describe(neighbour.rank) + " is gone" + when + " (" +
                                                neighbour.connection.end_reason() + "): its process died"},
                       &neighbour);
}

Status Channel::check() {
  const Turn turn(*this, std::try_to_lock);
  // An operation in progress checks by itself.
  STRAIT_TRY(error());
  if (!turn) return {};
  for (Neighbour& neighbour : neighbours_) {
    STRAIT_TRY(receive(neighbour));
    if (neighbour.bad_news) return break_channel(*neighbour.bad_news, &neighbour);
    if (neighbour.connection.ended() && !neighbour.left) return break_at_end_of(neighbour, "");
  }
  if (const Status news = ask_error_source(); !news) return break_channel(news.error());
  return {};
}

void Channel::set_error_source(std::function<Status()> source) {
  const Turn turn(*this);
  error_source_ = std::move(source);
}

void Channel::announce(const Error& error) {
  {
    std::lock_guard lock(error_mutex_);
    if (error_ || to_announce_) return;
    to_announce_ = error;
  }
  tell_announced();
}

/// Sends an announced error, if no thread uses the connections. Otherwise the operation in progress finds it, at the
/// latest when its Turn ends.
void Channel::tell_announced() {
  std::optional<Error> announced;
  {
    std::lock_guard lock(error_mutex_);
    if (!error_) announced = to_announce_;
  }
  if (!announced) return;
  if (std::unique_lock lock(operation_mutex_, std::try_to_lock); lock) break_channel(*announced);
}

}  // namespace strait
