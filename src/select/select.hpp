#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "plan/clock.hpp"
#include "plan/request.hpp"
#include "select/estimate.hpp"

/// Chooses the algorithm of an operation, and explains the choice.
namespace strait {

/// What the user or a test has decided in advance.
struct SelectOptions {
  std::string algorithm;                    ///< catalogue name; empty: the fastest
  std::size_t slice_bytes = 0;              ///< 0: the fastest
  std::uint32_t lanes = 0;                  ///< 0: those of the request
  std::size_t max_slice_bytes = 128 << 10;  ///< size of a slot of the transport
};

struct Alternative {
  std::string algorithm;
  std::size_t slice_bytes = 0;  ///< the fastest for this algorithm
  double predicted_us = 0;
  std::string binding;  ///< what limits the time, see ClockResult
  /// The time is a lower bound, which was enough to rule the algorithm out (see Estimate).
  bool at_least = false;
};

struct Choice {
  std::string algorithm;
  std::size_t slice_bytes = 0;
  std::uint32_t lanes = 1;
  double predicted_us = 0;
  std::string why;                        ///< reason for the choice, in one line
  std::vector<Alternative> alternatives;  ///< first the chosen one, then the others, fastest first
};

/// Returns the numerics that every algorithm for this reduction must have. They follow from the operation, the type and
/// the ranks alone, never from times: sums in rank order if any algorithm can do that, unless every order gives the
/// same bits.
Numerics numerics_class(const PlanRequest& request, DataType type, ReduceOp op);

/// Returns ": both within 3%, ...": why `chosen` is preferred to a plan that is predicted faster by less than the clock
/// can tell.
std::string why_simpler(const PlanRequest& request, const std::string& chosen, const std::string& other);

/// Chooses the algorithm of the right numerics class and the slice size with the shortest time that the clock predicts.
/// Of algorithms that the clock cannot tell apart, the simplest is chosen, then the earlier in the catalogue. A forced
/// algorithm that does not support the request is an error that names those that do.
Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const ClockModel& model, const SelectOptions& options = {});
/// Chooses by estimates instead, for any number of ranks. Algorithms whose plans are too large to walk are left out.
Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const LevelModel& machine, const SelectOptions& options = {});

}  // namespace strait
