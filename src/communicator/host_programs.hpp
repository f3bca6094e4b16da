#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/error.hpp"
#include "calls/call.hpp"
#include "executor/host/host_program.hpp"
#include "executor/host/reduce.hpp"
#include "select/selector.hpp"
#include "transport/transport.hpp"

namespace strait {

/// The programs of a host rank. Chooses how a call is carried out, binds a program for it, and keeps that for later
/// calls of the same kind.
class HostPrograms {
 public:
  struct Setup {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    std::uint32_t averaged = 0;  ///< contributions by which an average divides; 0: one per rank
    Simd simd = Simd::portable;
    std::size_t cache_bytes = 0;  ///< of the last level, on the rank where it is smallest
  };
  /// `transport` must outlive the programs.
  HostPrograms(const Setup& setup, Selector selector, Transport& transport)
      : setup_(setup), selector_(std::move(selector)), transport_(transport) {}

  /// Returns whether the algorithm for which the call asks can carry it out.
  bool supports(const Call& call) const { return call.algorithm->supports(selector_.request(query_for(call))); }
  /// Returns the program of collective number `sequence`. It is valid until the next one is asked for.
  Result<HostProgram*> find(const Call& call, std::uint64_t sequence);
  /// Returns the program of sends and receives that run together, likewise. `pieces`: how their data comes and goes,
  /// see HostProgram::Options.
  Result<HostProgram*> make_for_messages(std::span<const Call> messages, MessagePieces* pieces);

 private:
  struct Key {
    CallSignature signature;
    bool in_place;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  SelectQuery query_for(const Call& call) const;
  Result<std::unique_ptr<HostProgram>> make(const Call& call);
  Result<std::unique_ptr<HostProgram>> make_for_blocks(const Call& call, std::uint64_t sequence) const;
  bool writes_around_cache(const Call& call) const;

  Setup setup_;
  Selector selector_;
  Transport& transport_;
  std::unordered_map<Key, std::unique_ptr<HostProgram>, KeyHash> kept_;
  Key last_key_{};
  HostProgram* last_ = nullptr;               ///< the program that was last found in kept_
  std::unique_ptr<HostProgram> of_messages_;  ///< the last one whose messages have lengths of their own: not kept
};

}  // namespace strait
