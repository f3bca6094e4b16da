#include "plan/print.hpp"

#include <sstream>
#include <string_view>

namespace strait {
namespace {

std::string_view buffer_name(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    default:
      return "scratch";
  }
}

std::string link_text(const LinkEnd& link) {
  std::ostringstream text;
  text << link.writer << "->";
  for (std::size_t i = 0; i < link.readers.size(); ++i) text << (i == 0 ? "" : ",") << link.readers[i];
  if (link.tag != 0) text << " #" << link.tag;
  return text.str();
}

std::string signals_text(const RankPlan& plan, const std::vector<std::uint16_t>& list) {
  std::ostringstream text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const SignalEnd& signal = plan.signals[list[i]];
    text << (i == 0 ? "" : ", ") << signal.from << "->" << signal.to;
    if (signal.tag != 0) text << " #" << signal.tag;
  }
  return text.str();
}

template <class Text>
std::string join(const std::vector<Operand>& operands, std::string_view separator, Text text_of) {
  std::string text;
  for (const Operand& operand : operands) {
    if (!text.empty()) text += separator;
    text += text_of(operand);
  }
  return text;
}

}  // namespace

std::string operand_text(const RankPlan& plan, const Operand& operand) {
  std::ostringstream text;
  switch (operand.kind) {
    case Operand::Kind::local:
      text << buffer_name(operand.buffer);
      break;
    case Operand::Kind::peer:
      text << "peer(" << operand.peer << ")." << buffer_name(operand.buffer);
      break;
    case Operand::Kind::send:
      text << "send(" << link_text(plan.links[operand.link]) << ")";
      break;
    case Operand::Kind::receive:
      text << "receive(" << link_text(plan.links[operand.link]) << ")";
      break;
  }
  text << "[" << operand.chunk << "]";
  return text.str();
}

std::string step_text(const RankPlan& plan, const Step& step) {
  const auto text_of = [&](const Operand& operand) { return operand_text(plan, operand); };
  std::string text;
  if (!step.waits.empty()) text += "wait(" + signals_text(plan, step.waits) + ") ";
  if (!step.destinations.empty()) text += join(step.destinations, ", ", text_of) + " <- ";
  if (step.destinations.empty() && !step.sources.empty()) text += "drop ";
  std::string sources = join(step.sources, " + ", text_of);
  if (step.reduces && step.sources.size() == 1) sources = "reduce(" + sources + ")";
  text += sources;
  if (step.final) text += ", final";
  if (!step.signals.empty())
    text +=
        std::string(text.empty() || text.back() == ' ' ? "" : " ") + "signal(" + signals_text(plan, step.signals) + ")";
  return text;
}

std::string to_text(const Plan& plan) {
  std::ostringstream text;
  for (const RankPlan& mine : plan) {
    text << "rank " << mine.rank << " of " << mine.ranks << ": " << mine.algorithm << " " << name(mine.collective)
         << ", chunks a block: " << mine.chunks_per_block << ", scratch chunks: " << mine.scratch_chunks << "\n";
    for (std::size_t lane = 0; lane < mine.lanes.size(); ++lane)
      for (std::size_t step = 0; step < mine.lanes[lane].steps.size(); ++step)
        text << "  lane " << lane << " step " << step << ": " << step_text(mine, mine.lanes[lane].steps[step]) << "\n";
  }
  return text.str();
}

}  // namespace strait
