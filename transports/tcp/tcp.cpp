#include "transports/tcp/tcp.hpp"

#include <algorithm>
#include <string>

#include "bootstrap/serialize.hpp"
#include "transports/slots/segment.hpp"
#include "transports/tcp/links.hpp"

namespace strait::tcp {
namespace {

template <class End>
std::uint64_t stream_of(const End& end) {
  return slots::Key::of(end).hash();
}

/// Opens UCX and connects to the ranks that it is to reach; null if there are none. A rank without UCX tells the
/// others, because they would wait for messages that it never sends in this way.
Result<std::unique_ptr<ucx::Worker>> open_ucx(Channel& channel, const Deadline& deadline, ByUcx by_ucx) {
  const auto& peers = channel.peers();
  const auto is_near = [&](const PeerInfo& peer) { return peer.same_host(peers.front()); };
  if (by_ucx == ByUcx::none || (by_ucx == ByUcx::other_hosts && std::all_of(peers.begin(), peers.end(), is_near)))
    return nullptr;
  const auto rank = static_cast<std::uint32_t>(channel.rank());
  auto worker = ucx::Worker::open(rank, static_cast<std::uint32_t>(channel.ranks()));
  Serializer own;
  own.text(worker ? "" : worker.error().message);
  if (worker) own.raw((*worker)->address());
  STRAIT_ASSIGN(const auto all, channel.all_gather(own.take(), {deadline, nullptr}));
  std::vector<std::span<const std::byte>> addresses;
  for (const PeerInfo& peer : peers) {
    Deserializer in(all[static_cast<std::size_t>(peer.rank)]);
    const std::string why = in.text(max_error_bytes);
    addresses.push_back(in.rest());
    STRAIT_TRY(in.finish("UCX address"));
    if (!why.empty()) return fail(Code::unsupported, peer.describe() + " cannot do what STRAIT_UCX asks for: " + why);
  }
  for (const PeerInfo& peer : peers) {  // now every rank is known to have a worker
    if (peer.rank == channel.rank() || (by_ucx == ByUcx::other_hosts && peer.same_host(channel.self()))) continue;
    if (Status connected =
            (*worker)->connect(static_cast<std::uint32_t>(peer.rank), addresses[static_cast<std::size_t>(peer.rank)]);
        !connected)
      return fail(connected.error().code, peer.describe() + ": " + connected.error().message);
  }
  return std::move(*worker);
}

}  // namespace

std::vector<RankControl*> TcpTransport::rank_controls() {
  std::vector<RankControl*> controls;
  for (std::uint32_t rank = 0; rank < engine_->ranks(); ++rank) controls.push_back(&engine_->rank_control(rank));
  return controls;
}

std::string TcpTransport::cause_of_death(std::uint32_t rank) const {
  return "whose connection has ended (" + engine_->end_reason(rank) +
         "): its process died, or its host or the network between failed. See that rank's output for why";
}

Result<SendLink*> TcpTransport::open_send(const LinkEnd& end) {
  if (std::find(end.readers.begin(), end.readers.end(), rank_) != end.readers.end())
    return fail(Code::internal_error, "rank " + std::to_string(rank_) + " opens a link to itself");
  auto& link = sends_[stream_of(end)];
  if (!link) {
    const std::lock_guard lock(engine_->mutex());
    link = std::make_unique<TcpSendLink>(*engine_, engine_->outgoing(stream_of(end), end.readers));
  }
  return link.get();
}

Result<ReceiveLink*> TcpTransport::open_receive(const LinkEnd& end) {
  auto& link = receives_[stream_of(end)];
  if (!link) {
    const std::lock_guard lock(engine_->mutex());
    link = std::make_unique<TcpReceiveLink>(*engine_, engine_->incoming(stream_of(end), end.writer));
  }
  return link.get();
}

Result<SignalSender*> TcpTransport::open_signal(const SignalEnd& end) {
  auto& signal = signals_[stream_of(end)];
  if (!signal) {
    const std::lock_guard lock(engine_->mutex());
    engine_->prepare_signals(end.to);
    signal = std::make_unique<TcpSignalSender>(*engine_, stream_of(end), end.to);
  }
  return signal.get();
}

Result<SignalWaiter*> TcpTransport::open_wait(const SignalEnd& end) {
  auto& wait = waits_[stream_of(end)];
  if (!wait) {
    const std::lock_guard lock(engine_->mutex());
    wait = std::make_unique<TcpSignalWaiter>(*engine_, engine_->signals(stream_of(end), end.from), end.from);
  }
  return wait.get();
}

void TcpTransport::abandon() {
  const std::lock_guard lock(engine_->mutex());
  engine_->abandon_places();
}

void TcpTransport::post_call(std::uint64_t sequence, const CallSignature& signature, const void* /*input*/,
                             void* /*output*/) {
  const std::lock_guard lock(engine_->mutex());
  // A call must see an abort that a peer sent before the call began, whatever else has arrived meanwhile.
  engine_->poll_all();
  engine_->post(sequence, signature);
}

std::optional<PeerCall> TcpTransport::peer_call(std::uint64_t sequence, std::uint32_t peer) const {
  const auto call = read_call(engine_->rank_control(peer), sequence);
  if (!call) return std::nullopt;
  return PeerCall{call->signature, nullptr, nullptr};
}

bool TcpTransport::has_peer_calls(std::uint64_t sequence) {
  const std::lock_guard lock(engine_->mutex());
  return engine_->has_peer_calls(sequence);
}

void TcpTransport::receive_early() {
  const std::lock_guard lock(engine_->mutex());
  engine_->do_pending_work();
}

Result<std::unique_ptr<TcpTransport>> open(Channel& channel, const Geometry& geometry, const Deadline& deadline,
                                           ByUcx by_ucx) {
  STRAIT_ASSIGN(auto mesh, open_mesh(channel, deadline));
  const auto rank = static_cast<std::uint32_t>(channel.rank());
  auto engine = std::make_unique<Engine>(rank, geometry, std::move(mesh));
  STRAIT_ASSIGN(auto worker, open_ucx(channel, deadline, by_ucx));
  engine->use_ucx(std::move(worker));
  STRAIT_TRY(engine->start());
  return std::make_unique<TcpTransport>(rank, std::move(engine));
}

}  // namespace strait::tcp
