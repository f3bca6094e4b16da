#include <algorithm>
#include <bit>

#include "builder.hpp"

/// Recursive halving and doubling: log2(n) exchanges with partners at distances n/2 ... 1, and then back. A rank beyond
/// the largest power of two is a guest of a lower rank, which first takes in its data and finally sends it the result.
/// Sums are rounded at every exchange.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_reduce, all_gather, reduce_scatter}, request.collective);
}

using Chunks = std::vector<std::uint32_t>;

class HalvingDoubling {
 public:
  HalvingDoubling(const PlanRequest& request, std::uint32_t rank)
      : request_(request),
        rank_(rank),
        power_(std::bit_floor(request.ranks)),
        blocks_(request.collective != Collective::all_reduce),
        p_(request, rank, blocks_ ? 1 : power_) {}

  RankPlan build() {
    if (request_.ranks == 1 && is_reduction(request_.collective)) {
      p_.reduce_final({input(0)}, {output(0)});
    } else if (rank_ >= power_) {
      be_served();
    } else {
      if (request_.collective == Collective::all_gather) p_.copy(input(0), output(rank_));
      if (has_guest(rank_)) take_in_guest();
      if (is_reduction(request_.collective)) halve();
      if (request_.collective != Collective::reduce_scatter) double_up();
      if (has_guest(rank_) && request_.collective != Collective::reduce_scatter)
        for (const std::uint32_t chunk : held(0, power_))
          if (!blocks_ || chunk != rank_ + power_) p_.copy(output(chunk), p_.send({rank_ + power_}, output(chunk)));
    }
    return p_.finish();
  }

 private:
  bool has_guest(std::uint32_t host) const { return host + power_ < request_.ranks; }

  /// Returns the chunks for which the ranks begin ... end - 1 are responsible; of blocks, also those of their guests.
  Chunks held(std::uint32_t begin, std::uint32_t end) const {
    Chunks chunks;
    for (std::uint32_t rank = begin; rank < end; ++rank) {
      chunks.push_back(rank);
      if (blocks_ && has_guest(rank)) chunks.push_back(rank + power_);
    }
    return chunks;
  }

  /// Where this rank has a chunk: first in its input; then, as a partial sum, in the output or, if that is too small,
  /// in scratch.
  Operand partial(std::uint32_t chunk) const { return blocks_ ? scratch(chunk) : output(chunk); }
  Operand current(std::uint32_t chunk, bool untouched) const { return untouched ? input(chunk) : partial(chunk); }

  void be_served() {
    const std::uint32_t host = rank_ - power_;
    const Chunks all = held(0, power_);
    if (request_.collective == Collective::all_gather) {
      p_.copy(input(0), {output(rank_), p_.send({host}, input(0)).front()});
    } else {
      for (const std::uint32_t chunk : all) p_.copy(input(chunk), p_.send({host}, input(chunk)));
    }
    if (request_.collective == Collective::reduce_scatter) {
      p_.copy(p_.receive(host, output(0)), output(0));
      return;
    }
    for (const std::uint32_t chunk : all)
      if (!blocks_ || chunk != rank_) p_.copy(p_.receive(host, output(chunk)), output(chunk));
  }

  void take_in_guest() {
    const std::uint32_t guest = rank_ + power_;
    if (request_.collective == Collective::all_gather) {
      p_.copy(p_.receive(guest, output(guest)), output(guest));
      return;
    }
    for (const std::uint32_t chunk : held(0, power_))
      p_.reduce_partial({input(chunk), p_.receive(guest, input(chunk))}, {partial(chunk)});
  }

  /// Alternates sends and receives, so that one slot per link is enough.
  template <class Receive>
  void exchange(std::uint32_t partner, const Chunks& sends, bool sends_inputs, const Chunks& receives,
                Receive receive) {
    for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      if (i < sends.size()) {
        Operand source = sends_inputs ? input(sends[i]) : output(sends[i]);
        const Operand region = request_.collective == Collective::reduce_scatter ? input(sends[i]) : source;
        if (!sends_inputs && is_reduction(request_.collective)) source = partial(sends[i]);
        p_.copy(source, p_.send({partner}, region));
      }
      if (i < receives.size()) receive(receives[i]);
    }
  }

  void halve() {
    for (std::uint32_t distance = power_ / 2; distance >= 1; distance /= 2) {
      const bool first = distance == power_ / 2;
      const std::uint32_t partner = rank_ ^ distance;
      const auto half_of = [&](std::uint32_t rank) {
        const std::uint32_t begin = rank / distance * distance;
        return held(begin, begin + distance);
      };
      const bool mine_untouched = first && !has_guest(rank_);
      exchange(partner, half_of(partner), mine_untouched, half_of(rank_), [&](std::uint32_t chunk) {
        const Operands sources{current(chunk, mine_untouched), p_.receive(partner, input(chunk))};
        if (distance > 1)
          p_.reduce_partial(sources, {partial(chunk)});
        else if (!blocks_ || chunk == rank_)
          p_.reduce_final(sources, {output(blocks_ ? 0 : chunk)});
        else
          p_.reduce_final(sources, p_.send({chunk}, input(chunk)));
      });
    }
  }

  void double_up() {
    for (std::uint32_t distance = 1; distance < power_; distance *= 2) {
      const std::uint32_t partner = rank_ ^ distance;
      const auto half_of = [&](std::uint32_t rank) {
        const std::uint32_t begin = rank / distance * distance;
        return held(begin, begin + distance);
      };
      exchange(partner, half_of(rank_), false, half_of(partner),
               [&](std::uint32_t chunk) { p_.copy(p_.receive(partner, output(chunk)), output(chunk)); });
    }
  }

  const PlanRequest& request_;
  std::uint32_t rank_;
  std::uint32_t power_;  ///< the largest power of two that does not exceed the number of ranks
  bool blocks_;          ///< whether chunks are the ranks' blocks, otherwise shares of one buffer
  PlanBuilder p_;
};

RankPlan build(const PlanRequest& request, std::uint32_t rank) { return HalvingDoubling(request, rank).build(); }

}  // namespace

extern constinit const Algorithm halving_doubling{
    "halving_doubling", "Thakur, Rabenseifner and Gropp 2005, Optimization of collective communication in MPICH",
    supports, build};

}  // namespace strait::algorithms
