#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "bootstrap/channel.hpp"
#include "plan/clock.hpp"
#include "transport/transport.hpp"
#include "transports/shm/rendezvous.hpp"

/// The list of transports, and the choice of the one that connects the ranks of a communicator.
namespace strait {

/// Makes a model of ranks that share memory one of ranks that a transport joins.
using AdaptModel = void (*)(ClockModel& model, const std::vector<PeerInfo>& peers);

struct OpenTransport {
  std::unique_ptr<Transport> transport;
  AdaptModel adapt_model = nullptr;  ///< null: ranks share memory
  std::string why;                   ///< why no faster transport is used; "": this is the fastest
};

struct TransportRequest {
  Channel& channel;
  std::string wanted;  ///< STRAIT_TRANSPORT
  std::string ucx;     ///< STRAIT_UCX
  shm::Secret secret;  ///< the same on all ranks
  Deadline deadline;
};

/// Returns the collective check (shm::Agree) for parts of a set-up in which ranks may fail one by one.
shm::Agree agreement(Channel& channel, const Deadline& deadline);

/// Opens the fastest transport that connects all ranks, or the wanted one. Collective: all ranks get the same one, or
/// an error.
Result<OpenTransport> open_transport(const TransportRequest& request);

}  // namespace strait
