#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bootstrap/serialize.hpp"
#include "transports/tcp/ucx/ucp_abi.hpp"

/// UCX (openucx.org), which moves data into another host's memory by RDMA if there is InfiniBand or RoCE. The library
/// is loaded only if it is asked for. Its environment variables (UCX_TLS, UCX_NET_DEVICES, ...) apply.
namespace strait::ucx {

/// Sends messages of a rank to others and receives theirs. Between two ranks, the nth message sent is the nth received.
/// Buffers must stay valid until a message is done. The user tells the receiver by other means that a message comes,
/// and finds out by other means whether a sender is still alive. Nothing here waits. The owner must serialise all calls
/// by a lock, and make them in the process that opened the worker.
class Worker {
 public:
  /// Opens a worker for a communicator of `ranks` ranks. Code::unsupported if UCX is not installed.
  static Result<std::unique_ptr<Worker>> open(std::uint32_t rank, std::uint32_t ranks);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Address by which other ranks connect to this one.
  const Bytes& address() const { return address_; }
  Status connect(std::uint32_t peer, std::span<const std::byte> address);
  /// Number of messages sent to that peer so far.
  std::uint64_t sent_to(std::uint32_t peer) const { return peers_[peer].sent; }
  bool is_connected(std::uint32_t peer) const { return peers_[peer].endpoint != nullptr; }
  /// Why messages to and from that peer no longer get through; "" if they do.
  const std::string& failure(std::uint32_t peer) const { return peers_[peer].failure; }
  /// Whether, after a failure, messages are or may be lost: those in flight, and any that was ever sent. UCX reports a
  /// send as complete when it has copied the data, which does not mean that the peer has it.
  bool has_lost(std::uint32_t peer) const;

  /// Sends a message. `bytes` must stay unchanged until the receiver is known to have them.
  void send(std::uint32_t to, std::span<const std::byte> bytes);
  /// Receives the next message from a rank. progress() sets `has_arrived` when it is complete. That flag and `place`
  /// must live as long as the worker.
  void receive(std::uint32_t from, std::span<std::byte> place, bool& has_arrived);
  void progress();
  bool is_sending_to(std::uint32_t peer) const;
  bool is_busy() const { return !in_flight_.empty(); }

  /// A descriptor that becomes readable when progress() has something to do, if prepare_sleep() was called after the
  /// last progress().
  int fd() const { return fd_; }
  /// Arms fd(). Returns false if there is something to do already.
  bool prepare_sleep();

 private:
  struct Peer {
    ucp_abi::Endpoint endpoint = nullptr;
    std::uint64_t sent = 0, received = 0;
    std::string failure;
    bool has_lost = false;
  };
  struct InFlight {
    void* request;
    std::uint32_t peer;
    bool* has_arrived;  ///< for receives: the flag to set; null for sends
  };
  Worker(std::uint32_t rank, std::uint32_t ranks) : rank_(rank), peers_(ranks) {}
  Status prepare();
  void follow(void* request, std::uint32_t peer, bool* has_arrived);
  void fail(std::uint32_t peer, ucp_abi::Outcome outcome);
  static void handle_error(void* peer, ucp_abi::Endpoint endpoint, ucp_abi::Outcome outcome);

  const std::uint32_t rank_;
  ucp_abi::Context context_ = nullptr;
  ucp_abi::WorkerHandle worker_ = nullptr;
  Bytes address_;
  int fd_ = -1;  ///< owned by the worker
  std::vector<Peer> peers_;
  std::vector<InFlight> in_flight_;
};

}  // namespace strait::ucx
