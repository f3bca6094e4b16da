#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"
#include "select/select.hpp"
#include "select/tuning.hpp"

namespace strait {

/// The properties of a call on which selection depends.
struct SelectQuery {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  bool peer_memory = false;
  std::uint32_t root = 0;
  std::size_t count = 0;                 ///< in the call's own unit
  const Algorithm* algorithm = nullptr;  ///< forced by the call; null: none

  friend bool operator==(const SelectQuery&, const SelectQuery&) = default;
};

/// Chooses plans for a communicator and remembers the choices. The first query of its kind asks the clock, or beyond
/// `most_simulated_ranks` the estimates; later ones find that choice. On all ranks that were made with the same
/// settings, the same queries give the same choices. Not thread-safe.
class Selector {
 public:
  struct Settings {
    ClockModel model;
    SelectOptions options;  ///< from the environment; an algorithm that cannot do a query is ignored for it
    Tuning tuning;
    Shape shape;
    bool multicast = true;
    /// Whether to warn, once in a process, if what the user asked for is slower than the choice; set on one rank only.
    bool warns = false;
  };
  static constexpr std::uint32_t most_simulated_ranks = 32;
  /// Returns from how many ranks the model needs paths: with thousands of ranks, all paths would take gigabytes.
  static constexpr std::uint32_t writers_in_model(std::uint32_t ranks) {
    return ranks <= most_simulated_ranks ? ranks : 1;
  }

  Selector() = default;
  explicit Selector(Settings settings);

  /// Returns the request from which plans for this query are built, without `in_place` and `lanes`.
  PlanRequest request(const SelectQuery& query) const;
  /// Returns the choice for a query, valid until the next call.
  Result<const Choice*> choose(const SelectQuery& query);

 private:
  struct QueryHash {
    std::size_t operator()(const SelectQuery& query) const;
  };
  Result<Choice> predict(const SelectQuery& query, const SelectOptions& options) const;
  Result<Choice> decide(const SelectQuery& query) const;
  void warn_if_slower(const SelectQuery& query, const Choice& wanted, const std::string& who) const;

  Settings settings_;
  LevelModel levels_;  ///< the same machine as settings_.model, for estimates
  std::unordered_map<SelectQuery, Choice, QueryHash> choices_;
  SelectQuery last_query_;
  const Choice* last_choice_ = nullptr;
};

/// Returns the bytes of the larger of a rank's two buffers, as `strait perf` counts them.
std::size_t message_bytes(Collective collective, std::size_t count, DataType type, std::uint32_t ranks);

}  // namespace strait
