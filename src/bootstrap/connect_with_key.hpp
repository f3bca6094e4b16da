#pragma once

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

/// Connects to a Doorman, proves the key and waits to be admitted. A busy doorman may drop a new connection, and drops
/// one whose proof comes too late, for example after the machine stood still. The attempt is then repeated a few times.
/// If `if_refused.retries` is set, it is repeated until the deadline, also when nobody listens yet.
Result<Connection> connect_with_key(const SocketAddress& address, const Key& key, Purpose purpose,
                                    const IfRefused& if_refused, const Wait& wait);

}  // namespace strait
