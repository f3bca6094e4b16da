#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/connect_with_key.hpp"
#include "bootstrap/interface.hpp"
#include "bootstrap/root_state.hpp"

namespace strait {
namespace {

std::vector<int> children_of(int rank, int ranks) {
  std::vector<int> children;
  for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < ranks; ++child) children.push_back(child);
  return children;
}

/// Prefixes a local failure with what was attempted.
Error in_context(const std::string& context, Error error) {
  error.message = context + ": " + error.message;
  return error;
}

}  // namespace

/// The steps of joining: connect to the root, then to the parent and the children in the tree, then exchange
/// identities.
class ChannelBuilder {
 public:
  ChannelBuilder(const UniqueId& id, const JoinOptions& options)
      : id_(id),
        options_(options),
        reminder_(known_as(options.rank), options.remind_after_ms),
        greeting_(options.wait),
        children_(children_of(options.rank, options.ranks)) {
    if (greeting_.reminder == nullptr) greeting_.reminder = &reminder_;
  }

  Result<std::unique_ptr<Channel>> build() {
    if (options_.progress != nullptr) {
      options_.progress->set_place(options_.rank, options_.ranks, options_.known_as);
      options_.progress->set_root(id_.root);
    }
    auto prepared = prepare();
    if (!prepared) return withdraw(std::move(prepared).error());
    PeerInfo& self = *prepared;
    STRAIT_ASSIGN(Frame answer, answer_of_own_root(self));
    STRAIT_ASSIGN(WelcomeMessage welcome, decode_welcome(answer.payload));
    channel_.reset(new Channel(options_.rank, options_.ranks));
    channel_->key_ = id_.key;
    channel_->session_ = welcome.session;
    channel_->address_ = address_;
    channel_->call_ = options_.call;
    channel_->remind_after_ms_ = options_.remind_after_ms;
    channel_->rejoin_socket_ = std::move(rejoin_socket_);
    if (auto linked = link(welcome); !linked) {
      auto cause = root_cause(std::move(linked).error());
      (void)channel_->break_channel(cause.value());  // else neighbours that are connected would be told a goodbye
      return cause;
    }
    channel_->root_ = std::move(*root_);
    set_awaited("the identities of all ranks");
    STRAIT_ASSIGN(std::vector<Bytes> infos, channel_->all_gather(encode(self), options_.wait));
    std::vector<PeerInfo> peers;
    for (const Bytes& bytes : infos) {
      STRAIT_ASSIGN(PeerInfo info, decode_peer_info(bytes));
      if (info.rank != static_cast<int>(peers.size()))
        return fail(Code::internal_error, "rank " + std::to_string(peers.size()) + " introduces itself as another");
      peers.push_back(std::move(info));
    }
    channel_->peers_ = std::move(peers);
    channel_->root_->send(FrameType::ready, {});
    channel_->root_->fill();  // unread data would turn the close into a reset, which can overtake what was sent
    channel_->root_.reset();
    return std::move(channel_);
  }

 private:
  /// Reads this rank's own settings, before anything that waits, and describes this process.
  Result<PeerInfo> prepare() {
    STRAIT_TRY(check_settings(options_));
    STRAIT_ASSIGN(settings_, options_.environment.shared_settings());
    settings_.insert(settings_.end(), options_.settings.begin(), options_.settings.end());
    settings_.push_back({"Strait's version", STRAIT_VERSION_TEXT});
    return local_peer_info(options_.rank, options_.environment);
  }

  int known_as(int rank) const {
    return options_.known_as.empty() ? rank : options_.known_as[static_cast<std::size_t>(rank)];
  }
  std::string name_of(int rank) const { return "rank " + std::to_string(known_as(rank)); }

  IfRefused if_root_does_not_listen() const {
    if (options_.awaits_next_root) return {true, must_call_shrink};
    if (id_.root_may_be_late)
      return {true,
              "Start the rank that listens there (rank 0), look at its output if it has ended already, or correct the "
              "address"};
    // A root ends once its ranks have joined, so that nothing listens any more for those that come with the same id.
    return {false,
            "Nothing listens there: the process that did has ended or failed (see its own error), or the address is "
            "another machine's; or the unique id was used for a communicator before: an id serves one",
            options_.renew_id ? Code::in_progress : Code::remote_error};
  }

  Error cannot_join(Error error) const {
    return in_context(name_of(options_.rank) + " cannot join at " + id_.root.to_string(), std::move(error));
  }

  /// Returns this rank's own error. Tells the root, if it answers within a moment, so that the other ranks do not wait
  /// for this one.
  tl::unexpected<Error> withdraw(Error error) const {
    error = cannot_join(std::move(error));
    const Wait moment{earlier(options_.wait.deadline, Deadline::after_ms(withdrawal_ms)), options_.wait.abort};
    if (auto root = connect_with_key(id_.root, id_.key, Purpose::join, if_root_does_not_listen(), moment)) {
      Error told = error;
      // A value that need not be equal on all ranks is this rank's alone: the others made no mistake.
      if (!options_.environment.validate() && options_.environment.shared_settings()) told.code = Code::remote_error;
      root->send(FrameType::error, encode(told));
      (void)root->flush_all(moment);
    }
    return tl::unexpected(std::move(error));
  }

  Result<Frame> answer_of_own_root(PeerInfo& self) {
    for (std::string why;;) {
      const Status announced = announce_self(self);
      auto answer = announced ? wait_for_root() : tl::unexpected(announced.error());
      if (!answer && answer.error().code == Code::in_progress) {  // the root of another set of ranks, or attempt
        if (announced) why = answer.error().message;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        const Status renewed = renew_id(why);
        if (renewed) continue;
        answer = tl::unexpected(renewed.error());
      }
      if (!answer && answer.error().code == Code::timeout && !why.empty())
        answer.error().message += ". The last answer was: " + why;
      return answer;
    }
  }

  /// `why`: what an earlier root has answered, if any has.
  Status renew_id(const std::string& why) {
    if (!options_.renew_id) return {};
    if (!why.empty()) greeting_.remind("rank 0 has not begun again after the attempt that failed: " + why);
    STRAIT_ASSIGN(id_, options_.renew_id());
    if (options_.progress != nullptr) options_.progress->set_root(id_.root);
    return {};
  }

  Status announce_self(PeerInfo& self) {
    Status said = say_hello(self);
    if (said) return said;
    const Error error = cannot_join(said.error());
    if (root_) root_->send(FrameType::error, encode(error));  // so that the other ranks do not wait for this one
    return tl::unexpected(error);
  }

  Status say_hello(PeerInfo& self) {
    root_.reset();
    set_awaited("an answer at " + id_.root.to_string() + ", where the ranks join");
    STRAIT_ASSIGN(Connection root,
                  connect_with_key(id_.root, id_.key, Purpose::join, if_root_does_not_listen(), greeting_));
    root_ = std::move(root);
    JoinMessage message;
    message.rank = options_.rank;
    message.ranks = options_.ranks;
    if (!options_.known_as.empty()) message.known_as = known_as(options_.rank);
    message.host_name = self.host_name;
    message.pid = self.pid;
    message.settings = settings_;
    STRAIT_ASSIGN(message.listener, listen());
    STRAIT_ASSIGN(rejoin_socket_, reserve_at(address_));
    STRAIT_ASSIGN(self.rejoin_address, rejoin_socket_.local_address());
    message.remaining_ms = options_.wait.deadline.remaining_ms();
    root_->send(FrameType::join, encode(message));
    set_awaited("the other ranks to join at " + id_.root.to_string());
    return {};
  }

  /// Listens for children: on the interface that STRAIT_SOCKET_IFNAME selects, otherwise on the one that leads to the
  /// root. Returns the address.
  Result<SocketAddress> listen() {
    STRAIT_ASSIGN(SocketAddress address, root_->socket().local_address());
    if (options_.environment.is_set("STRAIT_SOCKET_IFNAME")) {
      STRAIT_ASSIGN(Interface chosen, choose_interface(options_.environment));
      address = chosen.address;
    }
    address.port = 0;
    address_ = address;
    if (children_.empty()) return address;
    STRAIT_ASSIGN(listener_, listen_at(address));
    return listener_.local_address();
  }

  /// Waits for the root's answer. Code::in_progress: the root belongs to another set of ranks.
  Result<Frame> wait_for_root() {
    log_info(known_as(options_.rank), "has joined at " + id_.root.to_string() + ", and waits for the others of " +
                                          std::to_string(options_.ranks) + " ranks");
    // Who is missing then, the process says that serves the root: no reminders from here.
    auto answer = root_->receive({options_.wait.deadline, options_.wait.abort});
    if (!answer && answer.error().code == Code::timeout)
      answer = root_->receive({Deadline::after_ms(verdict_ms), options_.wait.abort});
    if (!answer) {
      if (options_.awaits_next_root && root_->ended()) answer.error().code = Code::in_progress;
      std::string context = name_of(options_.rank) + (options_.known_as.empty() ? " of " : ", one of ") +
                            std::to_string(options_.ranks) + (options_.known_as.empty() ? "" : " ranks,") +
                            " joined and waited for the others";
      if (answer.error().code == Code::timeout)
        answer.error().message += ": the process that introduces the ranks (rank 0's) is stopped or hangs";
      return tl::unexpected(in_context(context, std::move(answer).error()));
    }
    if (answer->type == FrameType::error) {
      STRAIT_ASSIGN(Error error, decode_error(answer->payload));
      return tl::unexpected(std::move(error));
    }
    if (answer->type != FrameType::welcome) return fail(Code::internal_error, "the root sent an unexpected frame");
    return std::move(*answer);
  }

  Status link(const WelcomeMessage& welcome) {
    if (options_.rank > 0) {
      int parent = (options_.rank - 1) / 2;
      set_awaited("its neighbour, " + name_of(parent) + ", at " + welcome.parent.to_string());
      Status root;
      const std::function<bool()> has_failed = [&] { return root && !(root = check_root()); };
      const Wait wait{options_.wait.deadline, options_.wait.abort, &has_failed};
      auto connection = connect_with_key(welcome.parent, id_.key, Purpose::link, {}, wait);
      STRAIT_TRY(root);
      if (!connection)
        return tl::unexpected(in_context(name_of(options_.rank) + " cannot reach its neighbour, " + name_of(parent),
                                         std::move(connection).error()));
      connection->send(FrameType::link, encode(LinkMessage{welcome.session, options_.rank}));
      channel_->neighbours_.push_back({parent, std::move(*connection)});
    }
    if (children_.empty()) return {};
    return accept_children(welcome.session);
  }

  Status accept_children(const Session& session) {
    Doorman doorman(std::move(listener_), id_.key, Purpose::link, {});
    std::vector<Connection> unnamed;  // have proven the key, but not yet said which rank they are
    while (!children_.empty()) {
      if (options_.wait.aborted()) return fail(Code::aborted, "aborted while joining");
      if (options_.wait.deadline.expired()) return children_missing(doorman);
      set_awaited("a connection from " + missing_children(), doorman.accept_error());
      STRAIT_TRY(check_root());
      std::vector<pollfd> fds{{root_->fd(), POLLIN, 0}};
      doorman.watch(fds);
      for (const Connection& connection : unnamed) fds.push_back({connection.fd(), POLLIN, 0});
      poll_slice(fds, options_.wait.deadline);
      for (Connection& connection : doorman.admit()) unnamed.push_back(std::move(connection));
      std::erase_if(unnamed, [&](Connection& connection) { return take_child(connection, session); });
    }
    std::sort(channel_->neighbours_.begin(), channel_->neighbours_.end(),
              [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return {};
  }

  /// Handles a connection's link frame. Returns true if the connection is done with: taken as a child's, or to be
  /// dropped.
  bool take_child(Connection& connection, const Session& session) {
    connection.fill();
    auto frame = connection.next();
    if (frame && !*frame) return connection.ended();
    if (!frame || (*frame)->type != FrameType::link) return true;
    auto message = decode_link((*frame)->payload);
    if (!message || message->session != session || std::erase(children_, message->rank) == 0) return true;
    connection.rename("rank " + std::to_string(message->rank));
    channel_->neighbours_.push_back({message->rank, std::move(connection)});
    return true;
  }

  std::string missing_children() const {
    std::string who;
    for (int child : children_) who += (who.empty() ? "" : " and ") + name_of(child);
    return who;
  }

  /// Notes what this rank waits for from now on, for the root's inquiries and for reports on the init. `shortage`: what
  /// the rank itself lacks, if anything.
  void set_awaited(const std::string& what, const std::string& shortage = {}) {
    const bool is_short = !shortage.empty();
    const Error account =
        is_short ? Error{Code::system_error, shortage} : Error{Code::in_progress, "waits for " + what};
    if (account.code == account_.code && account.message == account_.message) return;  // since when does not change
    account_ = account;
    note_awaited(options_.progress, is_short ? what + " (" + shortage + ")" : what);
  }

  Status children_missing(const Doorman& doorman) const {
    std::string text =
        name_of(options_.rank) + " waited in vain for a connection from " + missing_children() +
        (doorman.accept_error().empty() ? "" : ": " + doorman.accept_error()) +
        ". It may be stopped or out of file descriptors; otherwise a firewall may block connections between their "
        "hosts: STRAIT_SOCKET_IFNAME chooses the interface";
    return fail(Code::timeout, text);
  }

  /// Returns the failure of another rank if the root has sent one, and answers the root's inquiries.
  Status check_root() {
    root_->fill();
    while (true) {
      STRAIT_ASSIGN(auto frame, root_->next());
      if (!frame) break;
      if (frame->type == FrameType::inquiry) root_->send(FrameType::account, encode(account_));
      if (frame->type != FrameType::error) continue;
      STRAIT_ASSIGN(Error error, decode_error(frame->payload));
      return tl::unexpected(std::move(error));
    }
    if (root_->ended()) return fail(Code::remote_error, "the start-up root at " + root_->peer() + " is gone");
    return {};
  }

  /// Returns the original cause of `error`. If a neighbour went away, the root may be about to send the reason.
  /// Otherwise this rank failed first, and the root is told, so that it tells the others.
  tl::unexpected<Error> root_cause(Error error) {
    const Wait moment{Deadline::after_ms(100), options_.wait.abort};
    while (error.code == Code::remote_error) {
      auto frame = root_->receive(moment);
      if (!frame) break;
      if (frame->type != FrameType::error) continue;
      if (auto told = decode_error(frame->payload)) return tl::unexpected(std::move(*told));
    }
    root_->send(FrameType::error, encode(error));
    return tl::unexpected(std::move(error));
  }

  UniqueId id_;
  const JoinOptions& options_;
  WaitReminder reminder_;
  std::vector<Setting> settings_;
  Wait greeting_;              ///< for the root to listen and to admit this rank; reminds the user
  Error account_;              ///< what this rank waits for, as the root is told; set_awaited() sets it
  std::vector<int> children_;  ///< not yet connected
  std::optional<Connection> root_;
  Socket listener_;
  SocketAddress address_;
  Socket rejoin_socket_;
  std::unique_ptr<Channel> channel_;
};

Result<UniqueId> create_unique_id(const Environment& environment, RootOptions options) {
  STRAIT_TRY(start_crypto());
  UniqueId id;
  id.key = random_key();
  STRAIT_ASSIGN(Interface chosen, choose_interface(environment));
  id.root = chosen.address;
  return start_root(id, std::move(options));
}

Result<UniqueId> unique_id_at(const HostPort& root, const Key& key, const Environment& environment, Deadline deadline) {
  UniqueId id;
  id.key = key;
  id.root_may_be_late = true;
  STRAIT_ASSIGN(id.root, resolve(root.host, root.port, deadline));
  bool named_loopback = root.host == "localhost" || root.host == "::1" || root.host.starts_with("127.");
  if (id.root.is_loopback() && !named_loopback) {
    STRAIT_ASSIGN(Interface chosen, choose_interface(environment));
    id.root = chosen.address;
    id.root.port = root.port;
  }
  return id;
}

Result<UniqueId> host_unique_id(const UniqueId& id, RootOptions options) { return start_root(id, std::move(options)); }

Status check_settings(const JoinOptions& options) {
  STRAIT_TRY(options.environment.validate());
  STRAIT_TRY(options.own_settings);
  if (options.environment.is_set("STRAIT_SOCKET_IFNAME"))
    return choose_interface(options.environment).map([](const auto&) {});
  return {};
}

Result<std::unique_ptr<Channel>> join(const UniqueId& id, const JoinOptions& options) {
  if (options.ranks < 1 || options.ranks > most_ranks || options.rank < 0 || options.rank >= options.ranks)
    return fail(Code::invalid_argument,
                "rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) +
                    " is out of range: ranks go from 0 to the number of ranks less 1, and there are " +
                    std::to_string(most_ranks) + " at most");
  STRAIT_TRY(start_crypto());
  return ChannelBuilder(id, options).build();
}

}  // namespace strait
