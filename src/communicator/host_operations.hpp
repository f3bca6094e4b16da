#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "calls/call.hpp"
#include "calls/premul_contribution.hpp"
#include "calls/quantized.hpp"
#include "calls/watch.hpp"
#include "communicator/collective_sequence.hpp"
#include "communicator/flight_recorder.hpp"
#include "communicator/host_programs.hpp"
#include "executor/host/host_program.hpp"
#include "select/selector.hpp"
#include "transport/transport.hpp"

namespace strait {

/// The operations of a host rank, one at a time: begins each, and steps it until it is done or has failed.
class HostOperations {
 public:
  /// The parts of the communicator that its operations need. They must outlive this object.
  struct Parts {
    Transport& transport;
    Watch& watch;
    FlightRecorder& recorder;
    CollectiveSequence& collectives;
  };
  HostOperations(const Parts& parts, const HostPrograms::Setup& setup, Selector selector);

  /// See HostPrograms.
  bool supports(const Call& call) const { return programs_.supports(call); }
  /// Begins a collective.
  Status begin(const Call& call);
  /// Begins the sends and receives of one group, all in flight together. `pieces`: how their data comes and goes, if
  /// not all at once; may be null.
  Status begin_messages(std::span<const Call> messages, MessagePieces* pieces);
  /// Advances the operation in progress as far as possible.
  Result<HostProgram::State> step();
  /// Waits a little for other ranks to advance the operation in progress.
  Status pause();
  /// Ends the operation in progress with `error`, or with the communicator's earlier error. Returns the one that holds.
  Error end_in(Error error);

 private:
  /// Begins a collective whose scalar, if it has one, has been applied.
  Status begin_contribution(const Call& call);
  /// `carried`: the call that moves the data: `call` itself, or one of the exchanges of a quantised call.
  Status begin_carried(const Call& call, const Call& carried);
  /// Begins the next exchange of the quantised call in progress. Returns whether there was one.
  Result<bool> begin_next_exchange();
  Result<HostProgram::State> progress();
  /// Compares this rank's call with those of the other ranks. Returns false if these are not known yet.
  Result<bool> compare_with_heard();
  void begin_waiting();
  Watch::Waiting waiting() const;
  /// After a failure: waits until no other rank reads or writes the buffers that this rank's calls were given.
  void abandon();
  /// Returns the number of the operation in progress, the same on all its ranks. Messages have a number between those
  /// of two collectives.
  std::uint64_t operation() const { return 2 * collectives_.last() + (is_collective_ ? 1 : 2); }

  Transport& transport_;
  Watch& watch_;
  FlightRecorder& recorder_;
  CollectiveSequence& collectives_;
  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  const Simd simd_;
  HostPrograms programs_;
  QuantizedCall quantized_;
  PremulContribution contribution_;

  // The operation in progress.
  CallSignature signature_;
  bool is_collective_ = false;
  bool hears_all_ = false;  ///< the operation cannot complete before every rank has taken part
  HostProgram* program_ = nullptr;
  Watch::Backoff backoff_;
  bool has_waited_ = false;
  std::chrono::steady_clock::time_point began_{};  ///< start of the operation, if it has a deadline

  struct Unheard {
    std::uint64_t sequence;
    CallSignature signature;
  };
  std::optional<Unheard> unheard_;  ///< the last collective that may have completed without hearing from all ranks
};

}  // namespace strait
