#include <limits>

#include "bootstrap/doorman.hpp"
#include "bootstrap/messages.hpp"
#include "bootstrap/root_state.hpp"
#include "ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Serialize, NumbersAreLittleEndian) {
  Serializer out;
  out.number(std::uint32_t{0x01020304});
  out.number(std::int16_t{-2});
  EXPECT_EQ(out.take(),
            (Bytes{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}, std::byte{0xfe}, std::byte{0xff}}));
}

TEST(Serialize, ReadingPastTheEndYieldsZerosAndFails) {
  Bytes three(3, std::byte{0xff});
  Deserializer in(three);
  EXPECT_EQ(in.number<std::uint32_t>(), 0u);
  EXPECT_EQ(in.number<std::uint8_t>(), 0u) << "nothing is readable after a failure";
  EXPECT_FALSE(in.finish("test"));
}

TEST(Serialize, LeftOverBytesFail) {
  Bytes two(2);
  Deserializer in(two);
  in.number<std::uint8_t>();
  EXPECT_THAT(in.finish("test"), FailsWith(Code::remote_error, HasSubstr("left over")));
}

TEST(Frames, SurviveAnySplit) {
  Bytes stream;
  append_frame(stream, FrameType::hello, bytes_of("abc"));
  append_frame(stream, FrameType::goodbye, {});
  append_frame(stream, FrameType::error, Bytes(200));
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    FrameParser parser(200);
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      parser.feed(std::span(stream).subspan(at, std::min(step, stream.size() - at)));
      while (true) {
        auto frame = parser.next();
        ASSERT_TRUE(frame);
        if (!*frame) break;
        frames.push_back(std::move(**frame));
      }
    }
    ASSERT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[0].payload, bytes_of("abc"));
    EXPECT_EQ(frames[1].type, FrameType::goodbye);
    EXPECT_EQ(frames[2].payload.size(), 200u);
  }
}

Result<std::optional<Frame>> parse(const Bytes& bytes, std::size_t max_payload_bytes) {
  FrameParser parser(max_payload_bytes);
  parser.feed(bytes);
  return parser.next();
}

TEST(Frames, BadOnesAreRefusedByTheirHeader) {
  EXPECT_THAT(parse(bytes_of("GE"), 200), FailsWith(Code::remote_error, HasSubstr("\"GE\"")));
  Bytes long_one;
  append_frame(long_one, FrameType::hello, Bytes(201));
  long_one.resize(frame_header_bytes);
  EXPECT_THAT(parse(long_one, 200), FailsWith(Code::remote_error, AllOf(HasSubstr("201"), HasSubstr("200"))));
  for (int type : {0, static_cast<int>(FrameType::account) + 1, 65535}) {
    Bytes unknown;
    append_frame(unknown, static_cast<FrameType>(type), {});
    EXPECT_THAT(parse(unknown, 200), FailsWith(Code::remote_error, HasSubstr("unknown type"))) << type;
  }
}

/// Every strict prefix of a valid payload, and one byte more, must be refused.
template <class Decode>
void refuses_other_lengths(const Bytes& valid, const Decode& decode) {
  EXPECT_TRUE(decode(valid));
  for (std::size_t size = 0; size < valid.size(); ++size)
    EXPECT_FALSE(decode(std::span(valid).first(size))) << size << " of " << valid.size();
  Bytes longer = valid;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer));
}

JoinMessage join_message(int rank, int ranks, std::vector<Setting> settings = {}) {
  return {rank,
          ranks,
          5000,
          "node" + std::to_string(rank),
          100 + rank,
          SocketAddress{4, {std::byte{127}}, 7000},
          std::move(settings)};
}

TEST(Messages, ComeBackEqualAndRefuseOtherLengths) {
  JoinMessage message = join_message(3, 8, {{"a", "1"}, {"b", ""}});
  auto decoded = decode_join(encode(message));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->rank, 3);
  EXPECT_EQ(decoded->settings, message.settings);
  EXPECT_EQ(decoded->listener, message.listener);
  refuses_other_lengths(encode(message), decode_join);
  refuses_other_lengths(encode(WelcomeMessage{{}, message.listener}), decode_welcome);
  refuses_other_lengths(encode(LinkMessage{{}, 4}), decode_link);
  refuses_other_lengths(encode(Error{Code::timeout, "late"}), decode_error);
  PeerInfo info = *local_peer_info(5, environment_of({{"STRAIT_HOSTID", "here"}}));
  EXPECT_EQ(info.host_id, "here");
  info.rejoin_address = message.listener;
  EXPECT_EQ(*decode_peer_info(encode(info)), info);
  refuses_other_lengths(encode(info), decode_peer_info);
}

TEST(Messages, RefuseBadFields) {
  EXPECT_FALSE(decode_error(encode(Error{Code::success, "no error"})));
  EXPECT_FALSE(decode_error(encode(Error{static_cast<Code>(99), "unknown"})));
  JoinMessage message = join_message(0, 1);
  message.listener.family = 5;
  EXPECT_FALSE(decode_join(encode(message)));
  for (const std::int64_t remaining_ms : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    message = join_message(0, 1);
    message.remaining_ms = remaining_ms;
    EXPECT_FALSE(decode_join(encode(message)));
  }
  EXPECT_FALSE(decode_join(encode(join_message(0, 1, std::vector<Setting>(257)))));
  EXPECT_FALSE(decode_join(encode(join_message(0, 1, {{"a", std::string(5000, 'x')}}))));
}

TEST(UniqueIds, ComeBackEqual) {
  for (const char* host : {"192.0.2.7", "2001:db8::7"}) {
    UniqueId id{*resolve(host, 4242, Deadline::never()), random_key(), true};
    auto unpacked = unpack_unique_id(id.pack());
    ASSERT_TRUE(unpacked);
    EXPECT_EQ(unpacked->root, id.root);
    EXPECT_EQ(unpacked->key, id.key);
    EXPECT_TRUE(unpacked->root_may_be_late);
  }
}

TEST(UniqueIds, OtherBytesAreRefused) {
  EXPECT_THAT(unpack_unique_id(Bytes(128)), FailsWith(Code::invalid_argument, HasSubstr("not a unique id")));
  EXPECT_THAT(unpack_unique_id(Bytes(64)), FailsWith(Code::invalid_argument, HasSubstr("128 bytes, not 64")));
  auto packed = UniqueId{*resolve("192.0.2.7", 1, Deadline::never()), {}, false}.pack();
  auto late = packed;
  late[10] = std::byte{2};
  EXPECT_THAT(unpack_unique_id(late), FailsWith(Code::invalid_argument, HasSubstr("not a unique id")));
  const auto without_port = UniqueId{*resolve("192.0.2.7", 0, Deadline::never()), {}, false}.pack();
  EXPECT_THAT(unpack_unique_id(without_port), FailsWith(Code::invalid_argument, HasSubstr("not a unique id")));
  packed[8] ^= std::byte{0x40};
  EXPECT_THAT(unpack_unique_id(packed), FailsWith(Code::mismatch, HasSubstr("one version of Strait")));
}

struct Handshake {
  Key key = random_key();
  ServerHandshake server{key, Purpose::join};

  Result<Bytes> hello(const ClientHandshake& client) { return server.take({FrameType::hello, client.hello()}); }
};

TEST(Handshakes, SucceedWithOneKey) {
  Handshake with;
  ClientHandshake client(with.key, Purpose::join, "server");
  auto challenge = with.hello(client);
  ASSERT_TRUE(challenge);
  auto proof = client.answer({FrameType::challenge, *challenge});
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_FALSE(with.server.done());
  EXPECT_TRUE(with.server.take({FrameType::proof, *proof}));
  EXPECT_TRUE(with.server.done());
}

TEST(Handshakes, AnyChangedByteOfChallengeOrProofFails) {
  Handshake with;
  ClientHandshake client(with.key, Purpose::join, "server");
  Bytes challenge = *with.hello(client);
  for (std::size_t i = 0; i < challenge.size(); ++i) {
    Bytes changed = challenge;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(client.answer({FrameType::challenge, changed})) << i;
  }
  Bytes proof = *client.answer({FrameType::challenge, challenge});
  for (std::size_t i = 0; i < proof.size(); ++i) {
    Bytes changed = proof;
    changed[i] ^= std::byte{0x80};
    EXPECT_FALSE(with.server.take({FrameType::proof, changed})) << i;
  }
  EXPECT_FALSE(with.server.done());
}

TEST(Handshakes, NeitherAnEchoNorAReplayNorAnotherPurposeProvesAnything) {
  Handshake with;
  ClientHandshake client(with.key, Purpose::join, "server");
  Bytes challenge = *with.hello(client);
  Bytes proof = *client.answer({FrameType::challenge, challenge});
  Bytes server_proof(challenge.end() - 32, challenge.end());
  EXPECT_FALSE(with.server.take({FrameType::proof, server_proof})) << "the server's own proof, echoed";
  ServerHandshake again(with.key, Purpose::join);
  ASSERT_TRUE(again.take({FrameType::hello, client.hello()}));
  EXPECT_FALSE(again.take({FrameType::proof, proof})) << "a proof of an earlier connection";
  ServerHandshake link(with.key, Purpose::link);
  EXPECT_FALSE(link.take({FrameType::hello, client.hello()}));
  EXPECT_FALSE(ServerHandshake(with.key, Purpose::join).take({FrameType::proof, proof})) << "a proof before a hello";
}

/// Somebody in between changes what the connection is for, and passes on the rest.
TEST(Handshakes, AChangedPurposeProvesNothing) {
  const Key key = random_key();
  ServerHandshake link(key, Purpose::link);
  ClientHandshake client(key, Purpose::join, "server");
  Bytes hello = client.hello();
  hello[2] = static_cast<std::byte>(Purpose::link);
  const auto challenge = link.take({FrameType::hello, hello});
  ASSERT_TRUE(challenge);
  EXPECT_FALSE(client.answer({FrameType::challenge, *challenge}));
}

TEST(Handshakes, AnotherVersionIsNamed) {
  Handshake with;
  ClientHandshake client(with.key, Purpose::join, "192.0.2.7:1");
  Bytes challenge = *with.hello(client);
  constexpr std::uint8_t own = protocol_version, later = own + 1;
  challenge[0] = std::byte{later};
  EXPECT_THAT(client.answer({FrameType::challenge, challenge}),
              FailsWith(Code::mismatch, AllOf(HasSubstr("192.0.2.7:1 speaks version " + std::to_string(later)),
                                              HasSubstr("this rank version " + std::to_string(own)))));
  Bytes newer = client.hello();
  newer[0] = std::byte{later};
  newer.push_back(std::byte{7});  // a later version may say more
  EXPECT_TRUE(ServerHandshake(with.key, Purpose::join).take({FrameType::hello, newer}));
}

TEST(Rosters, RefuseWhatDoesNotFit) {
  Roster roster;
  EXPECT_THAT(roster.add(join_message(8, 8)),
              FailsWith(Code::invalid_argument, HasSubstr("rank 8 (host node8, pid 108) is out of range")));
  EXPECT_THAT(roster.add(join_message(0, most_ranks + 1)), FailsWith(Code::invalid_argument, HasSubstr("at most")));
  EXPECT_THAT(roster.add(join_message(-1, 8)), FailsWith(Code::invalid_argument, HasSubstr("out of range")));
  ASSERT_TRUE(roster.add(join_message(1, 3)));
  EXPECT_THAT(roster.add(join_message(1, 3)),
              FailsWith(Code::invalid_argument, HasSubstr("rank 1 joined twice: from (host node1, pid 101)")));
  EXPECT_EQ(roster.missing(), (std::vector<int>{0, 2}));
}

TEST(Rosters, ListRanksInRanges) {
  EXPECT_EQ(list_ranks({}), "");
  EXPECT_EQ(list_ranks({0, 1, 2, 5, 7, 8}), "0-2, 5, 7, 8");
  std::vector<int> odd;
  for (int rank = 1; rank < 100; rank += 2) odd.push_back(rank);
  EXPECT_THAT(list_ranks(odd), HasSubstr("and 34 more"));
}

}  // namespace
}  // namespace strait::testing
