#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "bootstrap/serialize.hpp"
#include "transports/tcp/ucx/ucp_abi.hpp"

/// UCX (openucx.org), which brings bytes into another host's memory by RDMA where there is InfiniBand or RoCE. Loaded
/// where it is asked for, and otherwise not needed. Its environment variables (UCX_TLS, UCX_NET_DEVICES, ...) hold.
namespace strait::ucx {

/// What a rank gives to others, and gets from them, in memory that stays: the nth that one sends to another is the nth
/// that this one receives from it. Who uses it tells the receiver by other means that something comes, and whether the
/// sender is still alive. Nothing here waits. Under a lock of its owner; from the process that opened it.
class Worker {
 public:
  /// For so many ranks. Code::unsupported where there is no UCX.
  static Result<std::unique_ptr<Worker>> open(std::uint32_t rank, std::uint32_t ranks);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// By which others connect to this one.
  const Bytes& address() const { return address_; }
  Status connect(std::uint32_t peer, std::span<const std::byte> address);
  /// Messages that were given to that peer so far.
  std::uint64_t sent_to(std::uint32_t peer) const { return peers_[peer].sent; }
  bool is_connected(std::uint32_t peer) const { return peers_[peer].endpoint != nullptr; }
  /// Why nothing reaches that peer, or comes from it, any more; "": all is well.
  const std::string& failure(std::uint32_t peer) const { return peers_[peer].failure; }
  /// Whether something has not come then, or may not have: what is on its way, and all that was ever sent. Of that UCX
  /// says that it is done when it has copied it, which is not to say that the peer has it.
  bool has_lost(std::uint32_t peer) const;

  /// `bytes` stay as they are until the receiver is known to have them.
  void send(std::uint32_t to, std::span<const std::byte> bytes);
  /// progress() sets `has_arrived`, which lives as long as the worker, as does the place.
  void receive(std::uint32_t from, std::span<std::byte> place, bool& has_arrived);
  void progress();
  bool is_sending_to(std::uint32_t peer) const;
  bool is_busy() const { return !in_flight_.empty(); }

  /// Is readable when there is something to do for progress(), if prepare_sleep() came after the last one.
  int fd() const { return fd_; }
  /// False: there is something to do already.
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
    bool* has_arrived;  ///< of what is received
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
  int fd_ = -1;  ///< the worker's
  std::vector<Peer> peers_;
  std::vector<InFlight> in_flight_;
};

}  // namespace strait::ucx
