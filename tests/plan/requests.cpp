#include "requests.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace strait::test {

Shape shape_of(std::uint32_t ranks, const std::vector<std::uint32_t>& sizes) {
  Shape shape;
  std::uint32_t island = 1;
  for (const std::uint32_t size : sizes) {
    island *= size;
    shape.levels.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) shape.levels.back().push_back(rank / island);
  }
  return shape;
}

namespace {

/// Islands of one to four ranks each. With an odd seed the ranks of an island are not neighbours.
Shape random_islands(std::uint32_t ranks, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> members(ranks);
  std::iota(members.begin(), members.end(), 0U);
  if (seed % 2 == 1) std::shuffle(members.begin(), members.end(), random);
  Shape shape;
  shape.levels.emplace_back(ranks);
  std::uint32_t island = 0;
  for (std::uint32_t next = 0; next < ranks; ++island)
    for (std::uint32_t left = 1 + static_cast<std::uint32_t>(random() % 4); left > 0 && next < ranks; --left)
      shape.levels[0][members[next++]] = island;
  return shape;
}

std::vector<Shape> shapes(std::uint32_t ranks) {
  std::vector<Shape> shapes{{}};
  for (const std::uint32_t island : {2U, 3U, 4U, 8U})
    if (ranks > island && ranks % island == 0) shapes.push_back(shape_of(ranks, {island}));
  if (ranks >= 8 && ranks % 4 == 0) shapes.push_back(shape_of(ranks, {2, 2}));
  if (ranks >= 4 && ranks % 2 == 0) {  // neighbours are in different islands
    Shape striped;
    striped.levels.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) striped.levels[0].push_back(rank % 2);
    shapes.push_back(striped);
  }
  for (const std::uint32_t seed : {2 * ranks, 2 * ranks + 1})
    if (ranks >= 3) shapes.push_back(random_islands(ranks, seed));
  if (ranks == 10)
    shapes.push_back({{{0, 1, 1, 2, 2, 3, 4, 4, 5, 5}, {0, 0, 0, 0, 0, 1, 1, 1, 1, 1}}});  // pairs within sockets
  return shapes;
}

std::vector<std::uint32_t> roots(Collective collective, std::uint32_t ranks) {
  if (!has_root(collective)) return {0};
  std::vector<std::uint32_t> roots;
  for (std::uint32_t root = 0; root < ranks; ++root)
    if (ranks <= 8 || root == 0 || root == 5 || root == ranks - 1) roots.push_back(root);
  return roots;
}

}  // namespace

std::vector<PlanRequest> requests(Collective collective, std::uint32_t ranks) {
  std::vector<PlanRequest> requests;
  if (collective == Collective::send_recv) return requests;
  for (const std::uint32_t root : roots(collective, ranks))
    for (const Shape& shape : shapes(ranks))
      for (const std::uint32_t lanes : {1U, 2U})
        for (const bool multicast : {true, false})
          for (const bool peer_memory : {true, false}) {
            if (lanes == 2 && (multicast != peer_memory || (ranks > 8 && root != 0))) continue;
            if (ranks > 8 && (lanes == 2 || !shape.levels.empty()) && !multicast) continue;
            PlanRequest request;
            request.collective = collective;
            request.ranks = ranks;
            request.root = root;
            request.shape = shape;
            request.multicast = multicast;
            request.peer_memory = peer_memory;
            request.lanes = lanes;
            requests.push_back(request);
          }
  return requests;
}

std::vector<Placement> placements(Collective collective) {
  if (collective == Collective::all_to_all_v || collective == Collective::barrier) return {Placement::none};
  return {Placement::none, Placement::all, Placement::odd};
}

std::string text(const PlanRequest& request, Placement placement) {
  std::string text = std::to_string(request.ranks) + " ranks, root " + std::to_string(request.root) + ", lanes " +
                     std::to_string(request.lanes) + (request.multicast ? ", multicast" : "") +
                     (request.peer_memory ? ", peer memory" : "") +
                     (placement == Placement::none  ? ""
                      : placement == Placement::all ? ", in place"
                                                    : ", odd in place");
  for (const auto& level : request.shape.levels) {
    text += ", level";
    for (const std::uint32_t island : level) text += " " + std::to_string(island);
  }
  return text;
}

std::pair<Plan, std::vector<bool>> build(const Algorithm& algorithm, PlanRequest request, Placement placement) {
  std::pair<Plan, std::vector<bool>> built;
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank) {
    request.in_place = placement == Placement::all || (placement == Placement::odd && rank % 2 == 1);
    built.first.push_back(algorithm.build(request, rank));
    built.second.push_back(request.in_place);
  }
  return built;
}

std::vector<std::vector<PointToPoint>> random_group(std::uint32_t ranks, std::uint32_t messages, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<PointToPoint>> group(ranks);
  for (std::uint32_t i = 0; i < messages; ++i) {
    const auto from = static_cast<std::uint32_t>(random() % ranks);
    const auto to = static_cast<std::uint32_t>(random() % ranks);
    group[from].push_back({.sends = true, .peer = to});
    group[to].push_back({.sends = false, .peer = from});
  }
  // Every rank posts in its own order. Only the order between two ranks is fixed, which the stable sort preserves.
  for (auto& posted : group) {
    std::vector<std::uint32_t> weights(2 * ranks);
    for (auto& weight : weights) weight = static_cast<std::uint32_t>(random());
    std::stable_sort(posted.begin(), posted.end(), [&](const PointToPoint& a, const PointToPoint& b) {
      return weights[2 * a.peer + a.sends] < weights[2 * b.peer + b.sends];
    });
  }
  return group;
}

}  // namespace strait::test
