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

/// Which algorithm an operation runs, and why.
namespace strait {

/// What the user or a test has decided already.
struct SelectOptions {
  std::string algorithm;                    ///< catalogue name; empty: the fastest
  std::size_t slice_bytes = 0;              ///< 0: the fastest
  std::uint32_t lanes = 0;                  ///< 0: as the request has it
  std::size_t max_slice_bytes = 128 << 10;  ///< what a slot of the transport holds
};

struct Alternative {
  std::string algorithm;
  std::size_t slice_bytes = 0;  ///< the fastest for this algorithm
  double predicted_us = 0;
  std::string binding;    ///< what limits it, see ClockResult
  bool at_least = false;  ///< it takes no less, which was enough to leave it: see Estimate
};

struct Choice {
  std::string algorithm;
  std::size_t slice_bytes = 0;
  std::uint32_t lanes = 1;
  double predicted_us = 0;
  std::string why;                        ///< in one line
  std::vector<Alternative> alternatives;  ///< the chosen one, then the fastest first
};

/// The numerics that every algorithm for this reduction must have. A class follows from the operation, the type and the
/// ranks alone, never from times: sums in rank order wherever an algorithm can, unless any order gives the same bits.
Numerics numerics_class(const PlanRequest& request, DataType type, ReduceOp op);

/// ": both within 3%, ..." of a choice that is slower than another plan by less than the clock can tell.
std::string why_simpler(const PlanRequest& request, const std::string& chosen, const std::string& other);

/// The fastest algorithm and slice size of the right class by the clock's prediction; of equals the earlier in the
/// catalogue. A forced algorithm that does not support the request is an error that names those that do.
Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const ClockModel& model, const SelectOptions& options = {});
/// The same by estimates, for any number of ranks. Algorithms whose plans are too large to walk are left out.
Result<Choice> choose(const PlanRequest& request, DataType type, ReduceOp op, std::size_t count,
                      const LevelModel& machine, const SelectOptions& options = {});

}  // namespace strait
