#pragma once

#include "bootstrap/connection.hpp"
#include "bootstrap/handshake.hpp"

namespace strait {

/// Connects to a Doorman, proves the key and is admitted. A busy doorman may drop a newcomer, and drops one that comes
/// with its proof too late, on a machine that stood still: that is tried again a few times, and until the deadline
/// while `may_be_late`, because nobody may listen there yet.
Result<Connection> connect_with_key(const SocketAddress& address, const Key& key, Purpose purpose, bool may_be_late,
                                    const Wait& wait);

}  // namespace strait
