#pragma once

#include "bootstrap/bootstrap.hpp"

/// How ranks of one host and one user get the unique id without any secret or port agreed on: over a unix socket in the
/// abstract namespace, named after the job. The kernel tells each end the other's user, so nobody else can take part;
/// and there is no file to leave behind.
namespace strait {

/// Rank 0: the socket to put into RootOptions::hand_out. Waits while an earlier start-up of this job holds the name;
/// one of this process that has failed ends. Another user's is an error.
Result<Socket> listen_for_local_ranks(const std::string& job, const Wait& wait);

/// The other ranks: asks for the id until rank 0 is there.
Result<UniqueId> ask_local_root(const std::string& job, const Wait& wait);

}  // namespace strait
