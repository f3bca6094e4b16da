#pragma once

#include <string>

#include "plan/clock.hpp"
#include "plan/plan.hpp"

/// Plans in readable form: text and drawings.
namespace strait {

/// Returns a text such as "receive(1->0)[2]", "peer(3).input[0]" or "output[2]".
std::string operand_text(const RankPlan& plan, const Operand& operand);
/// Returns a text such as "output[2], send(0->1,2)[2] <- input[2] + receive(1->0)[2]", with the waits before it and the
/// signals after it.
std::string step_text(const RankPlan& plan, const Step& step);

/// Returns every step of every rank, one per line.
std::string to_text(const Plan& plan);
/// Returns a Graphviz graph: a cluster of steps for each rank, an edge for each transfer and signal.
std::string to_dot(const Plan& plan);
/// Returns a self-contained SVG drawing of one slice: a column for each rank, time downwards, an arrow for each
/// transfer.
std::string to_svg(const Plan& plan);
/// Returns a simulated run for chrome://tracing or Perfetto: a process for each rank, a thread for each lane.
std::string to_chrome_trace(const Plan& plan, const ClockResult& result);

}  // namespace strait
