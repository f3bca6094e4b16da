#include <array>
#include <atomic>
#include <chrono>
#include <fstream>

#include "bootstrap/interface.hpp"
#include "ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Milliseconds = std::chrono::milliseconds;

/// A plain TCP client, as a stranger would have.
Socket knock(const UniqueId& id, std::string_view greeting = "") {
  auto socket = connect_to(id.root, within_ms(5000));
  EXPECT_TRUE(socket) << socket.error().message;
  if (!greeting.empty()) ::send(socket->get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  return std::move(*socket);
}

/// Whether the other side closes the connection in time.
bool is_dropped(const Socket& socket, std::int64_t timeout_ms) {
  Deadline deadline = Deadline::after_ms(timeout_ms);
  while (!deadline.expired()) {
    char byte;
    pollfd fd{socket.get(), POLLIN, 0};
    poll_slice({&fd, 1}, deadline);
    auto count = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno == ECONNRESET)) return true;
  }
  return false;
}

std::string garbage(std::size_t size) {
  std::string text(size, '\0');
  std::uint32_t state = 12345;
  for (char& c : text) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return text;
}

RootOptions with_handshake_ms(std::int64_t handshake_ms) {
  RootOptions options;
  options.limits.handshake_ms = handshake_ms;
  return options;
}

void wait_for_drops(const UniqueId& id, std::int64_t at_least) {
  Deadline deadline = Deadline::after_ms(5000);
  while (report_of_root(id.root)->strangers_dropped < at_least && !deadline.expired())
    std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(report_of_root(id.root)->strangers_dropped, at_least);
}

TEST(Strangers, AreDroppedAndCountedAndDelayNobody) {
  UniqueId id = make_id(with_handshake_ms(1500));  // the four ranks must not be late
  Bytes huge;
  append_frame(huge, FrameType::hello, Bytes(stranger_payload_bytes + 1));
  Bytes early_join;
  append_frame(early_join, FrameType::join, {});
  std::vector<Socket> talkers;
  talkers.push_back(knock(id, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  talkers.push_back(knock(id, garbage(100'000)));
  talkers.push_back(knock(id, text_of(huge)));
  talkers.push_back(knock(id, text_of(early_join)));
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(knock(id));
  silent.push_back(knock(id, "ST"));  // the magic, and then nothing
  for (const Socket& socket : talkers) EXPECT_TRUE(is_dropped(socket, 5000));

  const Stopwatch watch;
  std::vector<JoinOptions> options;
  for (int rank = 0; rank < 3; ++rank) options.push_back(options_of(rank, 4));
  std::thread late([&] {
    for (const Socket& socket : silent) EXPECT_TRUE(is_dropped(socket, 5000));
    wait_for_drops(id, 105);
    EXPECT_TRUE(join(id, options_of(3, 4)));
  });
  auto results = join_all(id, options);
  late.join();
  for (const Joined& result : results) EXPECT_TRUE(result) << result.error().message;
  EXPECT_LT(watch.elapsed(), Milliseconds(10'000)) << "one silent stranger after the other would take minutes";
}

TEST(Strangers, AFullHouseDropsTheOldest) {
  RootOptions root = with_handshake_ms(60'000);
  root.limits.pending = 8;
  UniqueId id = make_id(std::move(root));
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(knock(id));
  EXPECT_TRUE(join(id, options_of(0, 1)));
  EXPECT_TRUE(is_dropped(silent.front(), 5000));
}

/// Passes on what goes between a rank and the root until one of them ends; but of a rank whose proof is late, only what
/// it says before the root's challenge.
void pass_on(const Socket& rank, const Socket& root, bool is_late) {
  const auto bring = [](const Socket& from, const Socket& to, bool keeps) {
    std::array<char, 4096> chunk;
    const auto count = ::recv(from.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count > 0 && !keeps) ::send(to.get(), chunk.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL);
    return count;
  };
  for (bool is_challenged = false;;) {
    pollfd fds[] = {{rank.get(), POLLIN, 0}, {root.get(), POLLIN, 0}};
    poll_slice(fds, Deadline::never());
    if (bring(rank, root, is_late && is_challenged) == 0) return;
    const auto answered = bring(root, rank, false);
    if (answered == 0) return;
    is_challenged |= answered > 0;
  }
}

/// As on a machine that stands still: the root took the rank for a stranger, and told nobody of it.
TEST(Strangers, ARankWhoseProofWasLateKnocksAgain) {
  const UniqueId id = make_id(with_handshake_ms(1000));
  auto listener = listen_at(address_of("127.0.0.1"));
  ASSERT_TRUE(listener);
  UniqueId by_way = id;
  by_way.root = *listener->local_address();
  std::jthread way([&] {
    for (const bool is_late : {true, false}) {
      pollfd fd{listener->get(), POLLIN, 0};
      for (const auto until = Deadline::after_ms(10'000); fd.revents == 0 && !until.expired();)
        poll_slice({&fd, 1}, until);
      auto rank = accept_one(*listener);
      if (!rank || !*rank) return;
      pass_on(*rank, knock(id), is_late);
    }
  });
  const Joined joined = join(by_way, options_of(0, 1));
  EXPECT_TRUE(joined) << joined.error().message;
}

TEST(Keys, AWrongKeyIsRejectedByNameAndHurtsNobody) {
  UniqueId id = make_id();
  UniqueId wrong = id;
  wrong.key[31] ^= std::byte{1};
  EXPECT_THAT(
      join(wrong, options_of(1, 2)),
      FailsWith(Code::mismatch, AllOf(HasSubstr("the key of the unique id was rejected by " + id.root.to_string()),
                                      HasSubstr("STRAIT_KEY"))));
  wait_for_drops(id, 1);
  for (const Joined& result : join_all(id, {options_of(0, 2), options_of(1, 2)}))
    EXPECT_TRUE(result) << result.error().message;
}

/// The other ranks hear of it, too, where a rank is missing for that.
TEST(Keys, AWrongKeyIsCountedWhereItsRankIsMissing) {
  UniqueId id = make_id();
  UniqueId wrong = id;
  wrong.key[31] ^= std::byte{1};
  std::jthread stranger([&] { EXPECT_FALSE(join(wrong, options_of(1, 2))); });
  EXPECT_THAT(join(id, options_of(0, 2, 2000)),
              FailsWith(Code::timeout, AllOf(HasSubstr("by the deadline: 1"),
                                             HasSubstr("1 connection did not know this job's key (the last one from"),
                                             HasSubstr("STRAIT_KEY"))));
}

TEST(Roots, AnotherProgramAtTheAddressIsRecognised) {
  auto listener = listen_at(address_of("127.0.0.1"));
  ASSERT_TRUE(listener);
  UniqueId id;
  id.root = *listener->local_address();
  std::thread server([&] {
    pollfd fd{listener->get(), POLLIN, 0};
    poll_slice({&fd, 1}, Deadline::never());
    auto socket = accept_one(*listener);
    ::send(socket->get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL);
    is_dropped(*socket, 2000);
  });
  EXPECT_THAT(join(id, options_of(0, 1)),
              FailsWith(Code::remote_error, AllOf(HasSubstr(id.root.to_string()), HasSubstr("SSH-2.0"))));
  server.join();
}

TEST(Roots, OneThatDoesNotAnswerIsNamedAtTheDeadline) {
  auto listener = listen_at(address_of("127.0.0.1"));
  ASSERT_TRUE(listener);
  UniqueId id;
  id.root = *listener->local_address();
  EXPECT_THAT(join(id, options_of(0, 1, 150)),
              FailsWith(Code::timeout, AllOf(HasSubstr(id.root.to_string() + " did not answer by the deadline"),
                                             HasSubstr("another program may hold that port"))));
}

TEST(Roots, ARefusedConnectionNamesAddressAndRemedy) {
  const auto reserved = reserve_at(address_of("127.0.0.1"));  // or another program may come to listen there
  ASSERT_TRUE(reserved);
  UniqueId id;
  id.root = *reserved->local_address();
  EXPECT_THAT(join(id, options_of(2, 4)),
              FailsWith(Code::remote_error, AllOf(HasSubstr("rank 2 cannot join at " + id.root.to_string()),
                                                  HasSubstr("Nothing listens there"))));
  id.root_may_be_late = true;
  EXPECT_THAT(join(id, options_of(2, 4, 120)),
              FailsWith(Code::timeout, AllOf(HasSubstr(id.root.to_string()), HasSubstr("rank 0"))));
}

TEST(Roots, AnUnreachableAddressNamesTheRemedy) {
  UniqueId id;
  id.root = SocketAddress{4, {std::byte{255}, std::byte{255}, std::byte{255}, std::byte{255}}, 4242};
  EXPECT_THAT(join(id, options_of(0, 2, 300)), FailsWith(Code::remote_error, AllOf(HasSubstr("255.255.255.255:4242"),
                                                                                   HasSubstr("STRAIT_SOCKET_IFNAME"))));
}

TEST(Roots, AbortEndsJoining) {
  UniqueId id = make_id();
  std::atomic<bool> abort{false};
  JoinOptions options = options_of(0, 2);
  options.wait.abort = &abort;
  std::thread aborter([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    abort.store(true);
  });
  const Stopwatch watch;
  EXPECT_THAT(join(id, options), FailsWith(Code::aborted, HasSubstr("aborted")));
  EXPECT_LT(watch.elapsed(), Milliseconds(5000));
  aborter.join();
}

TEST(Roots, EndOnceAllHaveJoined) {
  UniqueId id = make_id();
  for (const Joined& result : join_all(id, {options_of(0, 2), options_of(1, 2)})) ASSERT_TRUE(result);
  Deadline deadline = Deadline::after_ms(5000);
  while (!report_of_root(id.root)->finished && !deadline.expired()) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_TRUE(report_of_root(id.root)->finished);
}

TEST(Roots, AUniqueIdThatWasUsedIsSaidToServeOneCommunicator) {
  UniqueId id = make_id();
  for (const Joined& result : join_all(id, {options_of(0, 2), options_of(1, 2)})) ASSERT_TRUE(result);
  EXPECT_THAT(join(id, options_of(1, 2)),
              FailsWith(Code::remote_error, AllOf(HasSubstr("Nothing listens there"), HasSubstr("an id serves one"))));
}

TEST(Interfaces, OneThatDoesNotExistIsAnErrorThatListsThoseThatDo) {
  Environment environment = environment_of({{"STRAIT_SOCKET_IFNAME", "nosuch"}});
  EXPECT_THAT(create_unique_id(environment),
              FailsWith(Code::invalid_argument,
                        AllOf(HasSubstr("STRAIT_SOCKET_IFNAME=\"nosuch\""), HasSubstr("lo (127.0.0.1)"))));
  UniqueId id = make_id();
  auto results = join_all(id, {options_of(0, 2, 2000, {{"STRAIT_SOCKET_IFNAME", "nosuch"}}), options_of(1, 2, 2000)});
  for (const Joined& joined : results)
    EXPECT_THAT(joined, FailsWith(Code::invalid_argument, AllOf(HasSubstr("rank 0 cannot join"), HasSubstr("nosuch"))));
}

TEST(Ranks, MissingOnesAreNamedOnAllThatCame) {
  UniqueId id = make_id();
  auto results = join_all(id, {options_of(0, 8, 2000), options_of(3, 8, 2000), options_of(7, 8, 2000)});
  for (const Joined& result : results)
    EXPECT_THAT(result,
                FailsWith(Code::timeout, AllOf(HasSubstr("of 8 ranks"), HasSubstr("deadline: 1, 2, 4-6."),
                                               HasSubstr(id.root.to_string()), HasSubstr("STRAIT_SOCKET_IFNAME"))));
}

/// Of all deadlines the first one counts, also where ranks that have more time come later.
TEST(Ranks, MissingOnesAreNamedBeforeTheFirstGivesUp) {
  const UniqueId id = make_id();
  const auto of_missing = FailsWith(Code::timeout, HasSubstr("of 3 ranks these did not join"));
  const std::jthread later([&] {
    while (report_of_root(id.root)->joined == 0) std::this_thread::yield();
    EXPECT_THAT(join(id, options_of(1, 3)), of_missing);
  });
  EXPECT_THAT(join(id, options_of(0, 3, 2000)), of_missing);
}

TEST(Ranks, WhereNoneCameInTimeNoneAreCounted) {
  RootOptions root;
  root.deadline = Deadline::after_ms(0);
  UniqueId id = make_id(std::move(root));
  EXPECT_THAT(join(id, options_of(0, 2)),
              FailsWith(Code::timeout, AllOf(HasSubstr("no rank joined at " + id.root.to_string()),
                                             ::testing::Not(HasSubstr("of 0 ranks")))));
}

TEST(Ranks, ARankTwiceIsAnErrorThatNamesBoth) {
  UniqueId id = make_id();
  for (const Joined& result : join_all(id, {options_of(0, 3), options_of(2, 3), options_of(2, 3)}))
    EXPECT_THAT(result, FailsWith(Code::invalid_argument,
                                  AllOf(HasSubstr("rank 2 joined twice: from (host"), HasSubstr("and from (host"))));
}

TEST(Ranks, OneThatComesAfterAFailureIsToldOfIt) {
  UniqueId id = make_id();
  join_all(id, {options_of(0, 3), options_of(0, 3)});
  EXPECT_THAT(join(id, options_of(1, 3)), FailsWith(Code::invalid_argument, HasSubstr("rank 0 joined twice")));
}

TEST(Ranks, OutOfRangeIsRefused) {
  UniqueId id = make_id();
  EXPECT_THAT(join(id, options_of(4, 4)), FailsWith(Code::invalid_argument, HasSubstr("rank 4 of 4 is out of range")));
  EXPECT_THAT(join(id, options_of(0, most_ranks + 1)), FailsWith(Code::invalid_argument, HasSubstr("at most")));
  EXPECT_THAT(join(id, options_of(-1, 4)), FailsWith(Code::invalid_argument, HasSubstr("out of range")));
  EXPECT_THAT(join(id, options_of(0, 0)), FailsWith(Code::invalid_argument, HasSubstr("out of range")));
}

TEST(Ranks, ThatDisagreeOnTheirNumberAreAllTold) {
  UniqueId id = make_id();
  for (const Joined& result : join_all(id, {options_of(0, 2), options_of(1, 3)}))
    EXPECT_THAT(result,
                FailsWith(Code::mismatch, AllOf(HasSubstr("disagree"), HasSubstr("says 2"), HasSubstr("says 3"))));
}

TEST(Ranks, DifferentSettingsAreNamedOnEveryRank) {
  UniqueId id = make_id();
  std::vector<JoinOptions> options;
  for (int rank = 0; rank < 5; ++rank)
    options.push_back(options_of(
        rank, 5, 20'000,
        {{"STRAIT_ALGORITHM", rank == 3 ? "tree" : "ring"}, {"STRAIT_SLICE_BYTES", rank == 0 ? "64K" : "65536"}}));
  options[1].settings.push_back({"catalogue", "2"});
  for (const Joined& result : join_all(id, options))
    EXPECT_THAT(result, FailsWith(Code::mismatch,
                                  AllOf(HasSubstr("STRAIT_ALGORITHM is \"ring\" on ranks 0-2, 4 (host"),
                                        HasSubstr("\"tree\" on rank 3 (host"),
                                        HasSubstr("catalogue is \"2\" on rank 1"), HasSubstr("nothing on ranks 0, 2-4"),
                                        ::testing::Not(HasSubstr("STRAIT_SLICE_BYTES")))));
}

TEST(Ranks, AMalformedSettingIsNamed) {
  UniqueId id = make_id();
  EXPECT_THAT(join(id, options_of(0, 1, 2000, {{"STRAIT_SLICE_BYTES", "big"}})),
              FailsWith(Code::invalid_argument, HasSubstr("STRAIT_SLICE_BYTES=\"big\"")));
}

}  // namespace
}  // namespace strait::testing
