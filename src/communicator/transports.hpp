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

/// The list of transports, and which of them joins the ranks of a communicator.
namespace strait {

struct OpenTransport {
  std::unique_ptr<Transport> transport;
  Control* control = nullptr;          ///< lives as long as the transport, as do the following
  std::vector<RankControl*> controls;  ///< by rank
  /// Whether a rank is seen to have died; null where all are threads of this process. From any thread.
  std::function<bool(std::uint32_t rank)> has_died;
  std::function<std::string(std::uint32_t rank)> cause_of_death;  ///< what is known of one that has: "whose ..."
  std::string why;  ///< "": the first choice; else what was wrong with each that would have been faster
};

struct TransportRequest {
  Channel& channel;
  std::string wanted;  ///< STRAIT_TRANSPORT
  std::string ucx;     ///< STRAIT_UCX
  shm::Secret secret;  ///< the same on all ranks
  Deadline deadline;
};

/// For the parts of a set-up in which ranks may fail one by one.
shm::Agree agreement(Channel& channel, const Deadline& deadline);

/// The fastest transport that joins all ranks, or the wanted one. Collective: all ranks get the same one, or an error.
Result<OpenTransport> open_transport(const TransportRequest& request);

}  // namespace strait
