#include <map>

#include "plan/print.hpp"
#include "plan/proof/expressions.hpp"
#include "plan/proof/operation.hpp"

namespace strait::proof {
namespace {

/// Which lane uses an end of a link or signal, and how often per slice.
struct Use {
  std::size_t lane = 0;
  std::uint32_t times = 0;
};

class StructureCheck {
 public:
  explicit StructureCheck(const Operation& operation) : operation_(operation) {}

  Status run() {
    for (std::uint32_t rank = 0; rank < operation_.ranks(); ++rank) STRAIT_TRY(check_rank(rank));
    STRAIT_TRY(match_links());
    return match_signals();
  }

 private:
  template <class End>
  struct Ends {
    const End* from = nullptr;
    Use from_use;
    std::map<std::uint32_t, std::pair<const End*, Use>> to;  ///< by rank
  };

  Status check_rank(std::uint32_t rank) {
    const RankPlan& mine = operation_.of(rank);
    const RankPlan& first = operation_.of(0);
    if (mine.rank != rank || mine.ranks != operation_.ranks() || mine.collective != first.collective ||
        mine.root != first.root || mine.chunks_per_block != first.chunks_per_block)
      return wrong("the plan of rank " + std::to_string(rank) +
                   " is for another rank, rank count, collective, root or number of chunks than that of rank 0");
    std::vector<Use> links(mine.links.size());
    std::vector<Use> signals(mine.signals.size());
    for (std::size_t lane = 0; lane < mine.lanes.size(); ++lane)
      for (std::size_t step = 0; step < mine.lanes[lane].steps.size(); ++step) {
        place_ = operation_.where(rank, lane, step);
        STRAIT_TRY(check_step(rank, lane, mine.lanes[lane].steps[step], links, signals));
      }
    return collect_ends(rank, links, signals);
  }

  Status check_step(std::uint32_t rank, std::size_t lane, const Step& step, std::vector<Use>& links,
                    std::vector<Use>& signals) {
    if (!step.reduces && step.sources.size() > 1) return wrong(place_ + ": a copy has several sources");
    if (step.sources.empty() && (step.reduces || !step.destinations.empty()))
      return wrong(place_ + ": there are destinations but no source");
    if (step.final && !step.reduces) return wrong(place_ + ": a copy is marked final");
    for (const Operand& source : step.sources) {
      if (source.kind == Operand::Kind::send) return wrong(place_ + ": a send stands among the sources");
      STRAIT_TRY(check_operand(rank, lane, source, links));
    }
    for (const Operand& destination : step.destinations) {
      if (destination.kind == Operand::Kind::receive)
        return wrong(place_ + ": a receive stands among the destinations");
      if (destination.kind != Operand::Kind::send && destination.buffer == Buffer::input)
        return wrong(place_ + ": an input is written");
      STRAIT_TRY(check_operand(rank, lane, destination, links));
    }
    STRAIT_TRY(check_signals(rank, lane, step.waits, false, signals));
    return check_signals(rank, lane, step.signals, true, signals);
  }

  Status check_operand(std::uint32_t rank, std::size_t lane, const Operand& operand, std::vector<Use>& links) {
    const RankPlan& mine = operation_.of(rank);
    const bool travels = operand.kind == Operand::Kind::send || operand.kind == Operand::Kind::receive;
    if (travels) {
      if (operand.link >= mine.links.size()) return wrong(place_ + ": there is no such link");
      const LinkEnd& end = mine.links[operand.link];
      if (end.sends != (operand.kind == Operand::Kind::send))
        return wrong(place_ + ": this rank has the other end of the link");
      return use(links[operand.link], lane, "link");
    }
    std::uint32_t owner = rank;
    if (operand.kind == Operand::Kind::peer) {
      if (operand.peer >= operation_.ranks() || operand.peer == rank) return wrong(place_ + ": there is no such peer");
      if (operation_.has_own_counts())
        return wrong(place_ + ": peers' blocks have counts that this rank does not know");
      owner = operand.peer;
    }
    if (operand.chunk >= operation_.chunks(owner, operand.buffer))
      return wrong(place_ + ": rank " + std::to_string(owner) + " has no such chunk");
    return {};
  }

  Status check_signals(std::uint32_t rank, std::size_t lane, const std::vector<std::uint16_t>& list, bool signals,
                       std::vector<Use>& uses) {
    const RankPlan& mine = operation_.of(rank);
    for (const std::uint16_t index : list) {
      if (index >= mine.signals.size()) return wrong(place_ + ": there is no such signal");
      if (mine.signals[index].signals != signals) return wrong(place_ + ": this rank has the other end of the signal");
      STRAIT_TRY(use(uses[index], lane, "signal"));
    }
    return {};
  }

  Status use(Use& use, std::size_t lane, const char* what) {
    if (use.times > 0 && use.lane != lane)
      return wrong(place_ + ": lane " + std::to_string(use.lane) + " uses the same end of a " + what);
    use.lane = lane;
    ++use.times;
    return {};
  }

  Status collect_ends(std::uint32_t rank, const std::vector<Use>& link_uses, const std::vector<Use>& signal_uses) {
    const RankPlan& mine = operation_.of(rank);
    for (std::size_t i = 0; i < mine.links.size(); ++i) {
      const LinkEnd& end = mine.links[i];
      auto& ends = links_[end.name()];
      if (end.sends && end.writer != rank) return wrong("rank " + std::to_string(rank) + " writes another rank's link");
      if (end.sends ? ends.from != nullptr : !ends.to.try_emplace(rank, &end, link_uses[i]).second)
        return wrong("rank " + std::to_string(rank) + " names a link twice");
      if (end.sends) ends.from = &end, ends.from_use = link_uses[i];
    }
    for (std::size_t i = 0; i < mine.signals.size(); ++i) {
      const SignalEnd& end = mine.signals[i];
      auto& ends = signals_[end.name()];
      if ((end.signals ? end.from : end.to) != rank || end.from >= operation_.ranks() || end.to >= operation_.ranks())
        return wrong("rank " + std::to_string(rank) + " has an end of a signal between other ranks");
      if (end.signals ? ends.from != nullptr : !ends.to.try_emplace(rank, &end, signal_uses[i]).second)
        return wrong("rank " + std::to_string(rank) + " names a signal twice");
      if (end.signals) ends.from = &end, ends.from_use = signal_uses[i];
    }
    return {};
  }

  Status match_links() const {
    for (const auto& [name, ends] : links_) {
      const auto& [writer, tag, readers] = name;
      std::string text = "link " + std::to_string(writer) + "->";
      for (const std::uint32_t reader : readers) text += (text.back() == '>' ? "" : ",") + std::to_string(reader);
      text += " #" + std::to_string(tag);
      if (ends.from == nullptr)
        return wrong(text + " has readers but rank " + std::to_string(writer) + " does not write it");
      if (readers.empty()) return wrong(text + " has no readers");
      for (const std::uint32_t reader : readers)
        if (reader == writer || !ends.to.contains(reader))
          return wrong(text + " is written but rank " + std::to_string(reader) + " does not read it");
      if (ends.to.size() != readers.size()) return wrong(text + " is read by a rank that is not among its readers");
      for (const auto& [reader, end] : ends.to) {
        if (!operation_.has_own_counts() && end.second.times != ends.from_use.times)
          return wrong(text + " is written " + std::to_string(ends.from_use.times) + " times a slice, but rank " +
                       std::to_string(reader) + " reads it " + std::to_string(end.second.times) + " times");
      }
    }
    return {};
  }

  Status match_signals() const {
    for (const auto& [name, ends] : signals_) {
      const auto& [from, to, tag] = name;
      const std::string text =
          "signal " + std::to_string(from) + "->" + std::to_string(to) + " #" + std::to_string(tag);
      if (ends.from == nullptr || ends.to.empty()) return wrong(text + " has one end only");
      const Use& use = ends.to.begin()->second.second;
      if (use.times != ends.from_use.times)
        return wrong(text + " is added " + std::to_string(ends.from_use.times) + " times a slice, but waited for " +
                     std::to_string(use.times) + " times");
    }
    return {};
  }

  const Operation& operation_;
  std::string place_;
  std::map<LinkName, Ends<LinkEnd>> links_;
  std::map<SignalName, Ends<SignalEnd>> signals_;
};

}  // namespace

Status check_structure(const Operation& operation) { return StructureCheck(operation).run(); }

}  // namespace strait::proof
