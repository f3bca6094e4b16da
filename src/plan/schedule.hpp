#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace strait {

/// The steps of one slice of a plan and their dependencies, for drawings.
struct Schedule {
  struct Placed {
    std::uint32_t rank = 0;
    std::uint32_t lane = 0;
    std::uint32_t step = 0;
    std::uint32_t row = 0;  ///< greater than the row of every step that it waits for
  };
  struct Arrow {
    std::uint32_t from = 0;  ///< index into `steps`
    std::uint32_t to = 0;
    bool is_signal = false;  ///< whether it is a signal (otherwise a transfer)
  };
  std::vector<Placed> steps;
  std::vector<Arrow> arrows;
  std::uint32_t rows = 0;
};

Schedule schedule_of(const Plan& plan);

}  // namespace strait
