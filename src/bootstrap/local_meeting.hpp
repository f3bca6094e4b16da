#pragma once

#include "bootstrap/bootstrap.hpp"

/// How ranks of one host and one user exchange the unique id without an agreed secret or port: over a unix socket in
/// the abstract namespace, named after the job. The kernel tells each end the other's user, so nobody else can take
/// part, and no file can be left behind.
namespace strait {

/// On rank 0: returns the socket for RootOptions::hand_out. Waits while an earlier start-up of this job holds the name,
/// unless that is a failed one of this process, which is ended. Fails if another user holds the name.
Result<Socket> listen_for_local_ranks(const std::string& job, const Wait& wait);

/// On rank 0, instead of a root: tells the `others` ranks of this job that there will be none, until the deadline at
/// most.
void refuse_local_ranks(const std::string& job, int others, const Error& why, const Wait& wait);

/// On the other ranks: asks for the unique id, repeatedly until rank 0 is there. Fails with rank 0's error if it
/// refuses.
Result<UniqueId> ask_local_root(const std::string& job, const Wait& wait);

}  // namespace strait
