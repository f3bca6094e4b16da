#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bootstrap/messages.hpp"
#include "bootstrap/unique_id.hpp"
#include "frames_fuzz.hpp"
#include "transports/tcp/frame.hpp"

/// Runs the fuzz function on a generated corpus, so that it is tested in every build: valid streams, every truncation
/// of them, and seeded mutations.
namespace strait {
namespace {

SocketAddress address() { return {4, {std::byte{127}, {}, {}, std::byte{1}}, 7000}; }

std::vector<Bytes> valid_inputs() {
  JoinMessage join{1, 4, 5000, "node1", 17, address(), {{"STRAIT_ALGORITHM", "ring"}, {"version", "1"}}};
  PeerInfo info;
  info.host_name = "node1";
  info.host_id = "boot";
  info.rejoin_address = address();
  std::vector<std::pair<FrameType, Bytes>> messages = {{FrameType::join, encode(join)},
                                                       {FrameType::welcome, encode(WelcomeMessage{{}, address()})},
                                                       {FrameType::link, encode(LinkMessage{{}, 3})},
                                                       {FrameType::error, encode(Error{Code::timeout, "late"})},
                                                       {FrameType::contribution, encode(info)},
                                                       {FrameType::goodbye, {}},
                                                       {FrameType::inquiry, {}},
                                                       {FrameType::account, encode(Error{Code::in_progress, "waits"})}};
  UniqueId id;
  id.root = address();
  auto packed = id.pack();
  messages.emplace_back(FrameType::hello, Bytes(packed.begin(), packed.end()));
  messages.emplace_back(FrameType::hello, ClientHandshake({}, Purpose::join, "server").hello());
  std::vector<Bytes> inputs;
  Bytes all;
  for (const auto& [type, payload] : messages) {
    Bytes bare{std::byte{0}};
    bare.insert(bare.end(), payload.begin(), payload.end());
    inputs.push_back(bare);
    Bytes framed{std::byte{2}};
    append_frame(framed, type, payload);
    inputs.push_back(framed);
    append_frame(all, type, payload);
  }
  for (const tcp::FrameHeader& header : {tcp::FrameHeader{tcp::FrameKind::slot, 4096, 77, 1, 2},
                                         tcp::FrameHeader{tcp::FrameKind::error, 100, 0, 7, 0}}) {
    const tcp::HeaderBytes bytes = tcp::encode(header);
    Bytes bare(1 + bytes.size());
    std::copy(bytes.begin(), bytes.end(), bare.begin() + 1);
    inputs.push_back(bare);
  }
  all.insert(all.begin(), std::byte{6});
  inputs.push_back(all);
  return inputs;
}

void run(const Bytes& input) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()), 0);
}

TEST(FramesCorpus, ValidAndTruncated) {
  for (const Bytes& input : valid_inputs())
    for (std::size_t size = 0; size <= input.size(); ++size)
      run(Bytes(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size)));
}

TEST(FramesCorpus, Mutated) {
  std::mt19937 random(20240601);
  auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random()) % bound; };
  auto inputs = valid_inputs();
  for (int round = 0; round < 20'000; ++round) {
    Bytes input = inputs[below(inputs.size())];
    for (std::size_t change = 0; change <= below(4); ++change) {
      constexpr std::uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff};
      std::size_t at = below(input.size());
      switch (below(3)) {
        case 0:
          input[at] = static_cast<std::byte>(telling[below(std::size(telling))]);
          break;
        case 1:
          input[at] = static_cast<std::byte>(random());
          break;
        default:
          input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(random()));
      }
    }
    run(input);
  }
}

}  // namespace
}  // namespace strait
