#include "transports/tcp/tcp.hpp"

#include <algorithm>
#include <string>

#include "transports/slots/segment.hpp"
#include "transports/tcp/links.hpp"

namespace strait::tcp {
namespace {

std::uint64_t stream_of(const LinkEnd& end) {
  return slots::Key{slots::Key::Kind::link, end.tag, end.writer, end.readers}.hash();
}
std::uint64_t stream_of(const SignalEnd& end) {
  return slots::Key{slots::Key::Kind::signal, end.tag, end.from, {end.to}}.hash();
}

}  // namespace

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
  // An abort that a peer sent before this call began must be seen by it, whatever else has come meanwhile.
  engine_->poll_all();
  engine_->post(sequence, signature);
}

std::optional<PeerCall> TcpTransport::peer_call(std::uint64_t sequence, std::uint32_t peer) const {
  const auto call = read_call(engine_->rank_control(peer), sequence);
  if (!call) return std::nullopt;
  return PeerCall{call->signature, nullptr, nullptr};
}

bool TcpTransport::knows_calls(std::uint64_t sequence) {
  const std::lock_guard lock(engine_->mutex());
  return engine_->knows_calls(sequence);
}

void TcpTransport::take_in() {
  const std::lock_guard lock(engine_->mutex());
  engine_->take_in();
}

Result<std::unique_ptr<TcpTransport>> open(Channel& channel, const Geometry& geometry, const Deadline& deadline) {
  STRAIT_ASSIGN(auto mesh, open_mesh(channel, deadline));
  const auto rank = static_cast<std::uint32_t>(channel.rank());
  auto engine = std::make_unique<Engine>(rank, geometry, std::move(mesh));
  STRAIT_TRY(engine->start());
  return std::make_unique<TcpTransport>(rank, std::move(engine));
}

}  // namespace strait::tcp
