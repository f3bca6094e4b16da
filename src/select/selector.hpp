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

/// What selection depends on, of one call.
struct SelectQuery {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  bool peer_memory = false;
  std::uint32_t root = 0;
  std::size_t count = 0;                 ///< as the call counts
  const Algorithm* algorithm = nullptr;  ///< that the call asks for; null: none

  friend bool operator==(const SelectQuery&, const SelectQuery&) = default;
};

/// A communicator's memory of its choices. The first query of its kind asks the clock, or beyond `most_simulated_ranks`
/// the estimates; the next ones find what was chosen. The same queries give the same choices on all ranks that were
/// made with the same settings. One thread at a time.
class Selector {
 public:
  struct Settings {
    ClockModel model;
    SelectOptions options;  ///< by environment; an algorithm that cannot do a query is left aside for it
    Tuning tuning;
    Shape shape;
    bool multicast = true;
    bool warns = false;  ///< where what the user asked for is slower than the choice, once a process; on one rank
  };
  static constexpr std::uint32_t most_simulated_ranks = 32;
  /// From how many ranks the model's paths are asked for: of thousands, all would take gigabytes.
  static constexpr std::uint32_t writers_in_model(std::uint32_t ranks) {
    return ranks <= most_simulated_ranks ? ranks : 1;
  }

  Selector() = default;
  explicit Selector(Settings settings);

  /// The request that plans for this query are built from, but for `in_place` and `lanes`.
  PlanRequest request(const SelectQuery& query) const;
  /// Lives until the next call.
  Result<const Choice*> choose(const SelectQuery& query);

 private:
  struct QueryHash {
    std::size_t operator()(const SelectQuery& query) const;
  };
  Result<Choice> predict(const SelectQuery& query, const SelectOptions& options) const;
  Result<Choice> decide(const SelectQuery& query) const;
  void warn_if_slower(const SelectQuery& query, const Choice& wanted, const std::string& who) const;

  Settings settings_;
  LevelModel levels_;  ///< the same machine, for estimates
  std::unordered_map<SelectQuery, Choice, QueryHash> choices_;
  SelectQuery last_query_;
  const Choice* last_choice_ = nullptr;
};

/// Bytes of the larger of a rank's two buffers, as `strait perf` counts them.
std::size_t message_bytes(Collective collective, std::size_t count, DataType type, std::uint32_t ranks);

}  // namespace strait
