#pragma once

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

/// Connects to a Doorman and proves the key; what is sent afterwards counts once the doorman has the proof. A busy
/// doorman may drop a newcomer: that is tried again a few times, and until the deadline while `may_be_late`, because
/// nobody may listen there yet.
Result<Connection> connect_with_key(const SocketAddress& address, const Key& key, Purpose purpose, bool may_be_late,
                                    const Wait& wait);

}  // namespace strait
