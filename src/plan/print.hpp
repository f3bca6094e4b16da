#pragma once

#include <string>

#include "plan/clock.hpp"
#include "plan/plan.hpp"

/// Plans for people: text and drawings.
namespace strait {

/// "receive(1->0)[2]", "peer(3).input[0]", "output[2]"
std::string operand_text(const RankPlan& plan, const Operand& operand);
/// "output[2], send(0->1,2)[2] <- input[2] + receive(1->0)[2]", with the waits before and the signals after.
std::string step_text(const RankPlan& plan, const Step& step);

/// Every step of every rank, a line each.
std::string to_text(const Plan& plan);
/// A graph for Graphviz: a cluster of steps for each rank, an edge for each transfer and signal.
std::string to_dot(const Plan& plan);
/// A self-contained drawing: a column for each rank, time downwards, an arrow for each transfer of one slice.
std::string to_svg(const Plan& plan);
/// A simulated run for chrome://tracing or Perfetto: a process for each rank, a thread for each lane.
std::string to_chrome_trace(const Plan& plan, const ClockResult& result);

}  // namespace strait
