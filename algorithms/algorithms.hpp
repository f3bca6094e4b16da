#pragma once

#include "plan/request.hpp"

/// The catalogue's algorithms, each defined in the file of its family.
namespace strait::algorithms {

extern const Algorithm one_hop;
extern const Algorithm two_hop;
extern const Algorithm direct;
extern const Algorithm peer_one_hop;
extern const Algorithm peer_two_hop;
extern const Algorithm peer_push;
extern const Algorithm staged;
extern const Algorithm ring;
extern const Algorithm tree;
extern const Algorithm halving_doubling;
extern const Algorithm bruck;
extern const Algorithm hierarchical;
extern const Algorithm multi_leader;
extern const Algorithm point_to_point;
extern const Algorithm barrier;

}  // namespace strait::algorithms
