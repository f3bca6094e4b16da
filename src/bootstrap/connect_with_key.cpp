#include "bootstrap/connect_with_key.hpp"

#include <thread>

namespace strait {
namespace {

Status shake_hands(Connection& connection, const ClientHandshake& handshake, const Wait& wait) {
  connection.send(FrameType::hello, handshake.hello());
  auto challenge = connection.receive(wait);
  if (!challenge && challenge.error().code == Code::timeout)
    challenge.error().message +=
        ", although it accepts connections: the process that listens there is stopped or has no file descriptors left "
        "(see its log); or another program may hold that port (choose another port, by STRAIT_ROOT or MASTER_PORT)";
  if (!challenge) return tl::unexpected(std::move(challenge).error());
  STRAIT_ASSIGN(Bytes proof, handshake.answer(*challenge));
  connection.send(FrameType::proof, proof);
  connection.trust();
  STRAIT_ASSIGN(const Frame answer, connection.receive(wait));
  if (answer.type != FrameType::admitted) return fail(Code::remote_error, "no answer to the proof of the key");
  return {};
}

}  // namespace

Result<Connection> connect_with_key(const SocketAddress& address, const Key& key, Purpose purpose,
                                    const IfRefused& if_refused, const Wait& wait) {
  constexpr int max_attempts = 5;
  for (int attempt = 1;; ++attempt) {
    STRAIT_ASSIGN(Socket socket, connect_to(address, wait, if_refused));
    Connection connection(std::move(socket), address.to_string());
    auto done = shake_hands(connection, ClientHandshake(key, purpose, address.to_string()), wait);
    if (done) return connection;
    bool dropped = connection.ended() && done.error().code == Code::remote_error;
    if (!dropped || (attempt >= max_attempts && !if_refused.retries)) return tl::unexpected(done.error());
    if (wait.deadline.expired()) return tl::unexpected(done.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(wait.deadline.poll_ms(20)));
  }
}

}  // namespace strait
