#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/device_side.hpp"
#include "support/random_data.hpp"

/// Messages between ranks on GPUs, for tests.
namespace strait::testing {

/// One rank's send and receive buffers, with one message from every rank to every rank.
class Mail {
 public:
  enum class Length { brief, much, mixed };
  using Peers = std::function<bool(int peer)>;

  Mail(straitComm_t comm, int rank, int ranks, cudaStream_t stream)
      : comm_(comm), rank_(rank), ranks_(ranks), stream_(stream) {
    for (std::byte** buffer : {&send_, &receive_}) *buffer = DeviceSide::allocate(bytes(), false);
  }
  ~Mail() {
    for (std::byte* buffer : {send_, receive_}) DeviceSide::release(buffer, false);
  }
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  /// Fills the send buffer with new messages and clears the receive buffer.
  void prepare(Length length, std::uint64_t seed) {
    length_ = length;
    seed_ = seed;
    Bytes all(bytes(), std::byte{poison});
    for (int peer = 0; peer < ranks_; ++peer) {
      const Bytes data = data_of(rank_, peer);
      std::copy(data.begin(), data.end(), all.begin() + static_cast<std::ptrdiff_t>(place_of(peer)));
    }
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(send_, all.data(), all.size(), cudaMemcpyHostToDevice, stream_));
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(receive_, poison, bytes(), stream_));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
  }
  void send(int peer) const {
    STRAIT_EXPECT_OK(straitSend(send_ + place_of(peer), bytes_of(rank_, peer), straitUint8, peer, comm_, stream_));
  }
  void receive(int peer) const {
    STRAIT_EXPECT_OK(straitRecv(receive_ + place_of(peer), bytes_of(peer, rank_), straitUint8, peer, comm_, stream_));
  }
  /// Sends to and receives from these peers, in one group.
  void post(const Peers& with) const {
    STRAIT_EXPECT_OK(straitGroupStart());
    for (int peer = 0; peer < ranks_; ++peer) {
      if (!with(peer)) continue;
      send(peer);
      receive(peer);
    }
    STRAIT_EXPECT_OK(straitGroupEnd());
  }
  /// Expects the messages of these peers, and nothing else, in the receive buffer.
  void expect_received(const Peers& from) const {
    Bytes expected(bytes(), std::byte{poison}), got(bytes());
    for (int peer = 0; peer < ranks_; ++peer) {
      if (!from(peer)) continue;
      const Bytes data = data_of(peer, rank_);
      std::copy(data.begin(), data.end(), expected.begin() + static_cast<std::ptrdiff_t>(place_of(peer)));
    }
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(got.data(), receive_, got.size(), cudaMemcpyDeviceToHost, stream_));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream_));
    EXPECT_EQ(first_difference(expected, got, DataType::uint8), "") << "on rank " << rank_ << ", seed " << seed_;
  }

 private:
  static constexpr std::size_t brief_bytes = std::size_t{24} << 10, much_bytes = std::size_t{2} << 20;
  std::size_t bytes() const { return place_of(ranks_); }
  /// Returns the offset of a peer's message; it may have any alignment.
  static std::size_t place_of(int peer) { return static_cast<std::size_t>(peer) * (much_bytes + guard_bytes + 3); }
  std::uint64_t bits_of(int from, int to) const { return mix(seed_ * 1000 + static_cast<unsigned>(from * 20 + to)); }
  std::size_t bytes_of(int from, int to) const {
    const std::uint64_t bits = bits_of(from, to);
    const bool is_brief = length_ == Length::brief || (length_ == Length::mixed && bits % 2 == 0);
    return is_brief ? 1 + bits / 2 % brief_bytes : much_bytes - bits / 2 % brief_bytes;
  }
  Bytes data_of(int from, int to) const {
    return random_elements(DataType::uint8, bytes_of(from, to), bits_of(from, to));
  }

  straitComm_t comm_;
  int rank_, ranks_;
  cudaStream_t stream_;
  std::byte *send_ = nullptr, *receive_ = nullptr;
  Length length_ = Length::brief;
  std::uint64_t seed_ = 0;
};

/// Posts groups back to back, each with its peers, and checks what is received. In graph mode the graph is launched
/// twice.
inline void check_mail(const std::vector<std::pair<Mail*, Mail::Peers>>& groups, cudaStream_t stream, Mode mode,
                       Mail::Length length, std::uint64_t seed) {
  const auto prepare = [&](std::uint64_t contents) {
    for (const auto& [mail, peers] : groups) mail->prepare(length, contents++ * 7);
  };
  const auto post = [&] {
    for (const auto& [mail, peers] : groups) mail->post(peers);
  };
  const auto check = [&] {
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
    for (const auto& [mail, peers] : groups) mail->expect_received(peers);
  };
  prepare(seed);
  if (mode == Mode::eager) {
    post();
    return check();
  }
  const Graph graph(stream, post);
  for (int launch = 0; launch < 2; ++launch) {
    if (launch != 0) prepare(seed);
    graph.launch(stream);
    check();
  }
}

/// Exchanges messages with the near ranks, with the far ones, with the far ones and itself, and with all; two groups
/// back to back, eagerly and as a graph.
inline void check_mail_of_each_kind(straitComm_t comm, int rank, int ranks, const Mail::Peers& is_near) {
  DeviceSide side(16);
  Mail first(comm, rank, ranks, side.stream()), second(comm, rank, ranks, side.stream());
  meet_on_host();
  const auto is_far = [&](int peer) { return !is_near(peer); };
  const auto is_far_or_self = [&](int peer) { return !is_near(peer) || peer == rank; };
  const auto is_any = [](int /*peer*/) { return true; };
  std::uint64_t seed = 0;
  for (const Mail::Length length : {Mail::Length::brief, Mail::Length::much, Mail::Length::mixed})
    for (const Mail::Peers& peers : std::array<Mail::Peers, 4>{is_near, is_far, is_far_or_self, is_any}) {
      check_mail({{&first, peers}, {&second, is_any}}, side.stream(), Mode::eager, length, ++seed);
      check_mail({{&first, is_any}, {&second, peers}}, side.stream(), Mode::graph, length, ++seed);
    }
  meet_on_host();
}

/// Sends messages round circles of three ranks. The first rank of each circle posts a group that begins with its
/// receive; the other two post their calls one by one and receive before they send.
inline void check_circles(straitComm_t comm, int rank, int ranks, const std::vector<std::array<int, 3>>& circles) {
  DeviceSide side(16);
  Mail mail(comm, rank, ranks, side.stream());
  meet_on_host();
  std::uint64_t seed = 100;
  for (const Mail::Length length : {Mail::Length::brief, Mail::Length::much})
    for (const auto& circle : circles) {
      const auto own = std::find(circle.begin(), circle.end(), rank) - circle.begin();
      mail.prepare(length, ++seed);
      meet_on_host();
      if (own == 3) continue;
      const int to = circle[static_cast<std::size_t>(own + 1) % 3],
                from = circle[static_cast<std::size_t>(own + 2) % 3];
      if (own == 0) STRAIT_EXPECT_OK(straitGroupStart());
      mail.receive(from);
      mail.send(to);
      if (own == 0) STRAIT_EXPECT_OK(straitGroupEnd());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      mail.expect_received([from](int peer) { return peer == from; });
    }
  meet_on_host();
}

}  // namespace strait::testing
