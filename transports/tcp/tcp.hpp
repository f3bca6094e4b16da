#pragma once

#include <map>
#include <memory>

#include "transport/transport.hpp"
#include "transports/tcp/engine.hpp"

/// TCP transport, for ranks on any hosts and in any containers that can connect to one another. Every rank has one
/// connection with every other one. They are made at init and authenticated both ways with the communicator's key;
/// afterwards nobody listens.
namespace strait::tcp {

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::uint32_t rank, std::unique_ptr<Engine> engine) : rank_(rank), engine_(std::move(engine)) {}

  std::string_view name() const override { return engine_->ucx() != nullptr ? "tcp+ucx" : "tcp"; }
  std::size_t slot_bytes() const override { return engine_->geometry().slot_bytes; }
  bool has_peer_memory() const override { return false; }
  bool has_multicast() const override { return false; }
  bool shares_control() const override { return false; }
  Control& control() override { return engine_->control(); }
  std::vector<RankControl*> rank_controls() override;
  bool has_died(std::uint32_t rank) const override { return engine_->has_died(rank); }
  std::string cause_of_death(std::uint32_t rank) const override;
  Engine& engine() { return *engine_; }

  Result<SendLink*> open_send(const LinkEnd& end) override;
  Result<ReceiveLink*> open_receive(const LinkEnd& end) override;
  Result<SignalSender*> open_signal(const SignalEnd& end) override;
  Result<SignalWaiter*> open_wait(const SignalEnd& end) override;
  void abandon() override;
  void post_call(std::uint64_t sequence, const CallSignature& signature, const void* input, void* output) override;
  std::optional<PeerCall> peer_call(std::uint64_t sequence, std::uint32_t peer) const override;
  bool has_peer_calls(std::uint64_t sequence) override;
  void receive_early() override;
  void announce_exit(const Deadline& deadline) override { engine_->announce_exit(deadline); }

 private:
  std::uint32_t rank_;
  std::unique_ptr<Engine> engine_;
  std::map<std::uint64_t, std::unique_ptr<SendLink>> sends_;  // this and the maps below: by stream
  std::map<std::uint64_t, std::unique_ptr<ReceiveLink>> receives_;
  std::map<std::uint64_t, std::unique_ptr<SignalSender>> signals_;
  std::map<std::uint64_t, std::unique_ptr<SignalWaiter>> waits_;
};

/// To which ranks UCX carries long messages: to none, to those of other hosts, to all. Must be the same on all ranks.
enum class ByUcx : std::uint8_t { none, other_hosts, all };

/// Opens the transport. Collective over the ranks of the channel.
Result<std::unique_ptr<TcpTransport>> open(Channel& channel, const Geometry& geometry, const Deadline& deadline,
                                           ByUcx by_ucx = ByUcx::none);

}  // namespace strait::tcp
