#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "bootstrap/channel.hpp"
#include "transport/control.hpp"
#include "transport/transport.hpp"
#include "transports/shm/rendezvous.hpp"

/// The list of transports, and the choice of the one that connects the ranks of a communicator.
namespace strait {

struct OpenTransport {
  std::unique_ptr<Transport> transport;
  Control* control = nullptr;          ///< lives as long as the transport, as all that follows
  std::vector<RankControl*> controls;  ///< by rank
  /// Returns whether a rank is known to have died. Null if all ranks are threads of this process. From any thread.
  std::function<bool(std::uint32_t rank)> has_died;
  /// Returns what is known of the death of a rank, as "whose ...".
  std::function<std::string(std::uint32_t rank)> cause_of_death;
  std::string why;  ///< why no faster transport is used; "": this is the fastest
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
