#include "bootstrap/channel.hpp"

#include <algorithm>
#include <new>

namespace strait {
namespace {

Bytes with_head(const OperationHead& head, std::span<const std::byte> data) {
  Serializer out;
  write_head(out, head);
  out.raw(data);
  return out.take();
}

Bytes encode_table(const std::vector<std::optional<Bytes>>& parts) {
  Serializer out;
  for (const auto& part : parts) {
    out.number(static_cast<std::uint32_t>(part->size()));
    out.raw(*part);
  }
  return out.take();
}

}  // namespace

std::unique_ptr<Channel> Channel::alone(PeerInfo self) {
  std::unique_ptr<Channel> channel(new Channel(0, 1));
  channel->peers_.push_back(std::move(self));
  return channel;
}

Channel::~Channel() {
  for (Neighbour& neighbour : neighbours_) {
    try {
      if (!error_) neighbour.connection.send(FrameType::goodbye, {});
      // Read what has arrived: unread data would turn the close into a reset, which can overtake what was sent last.
      neighbour.connection.fill();
    } catch (const std::bad_alloc&) {
      continue;  // peers notice the end of the connection instead
    }
  }
}

std::string Channel::describe(int rank) const {
  if (peers_.empty()) return "rank " + std::to_string(rank);
  return peers_[static_cast<std::size_t>(rank)].describe();
}

std::string Channel::describe(const OperationHead& head) const {
  std::string sequence = " " + std::to_string(head.sequence);
  switch (head.operation) {
    case kind_all_gather:
      return (peers_.empty() ? "exchange of addresses" : "all-gather") + sequence;
    case kind_broadcast:
      return "broadcast" + sequence + " from rank " + std::to_string(head.origin);
    case kind_barrier:
      return "barrier" + sequence;
    default:
      return "unknown operation" + sequence;
  }
}

int Channel::neighbour_towards(int target) const {
  int below = -1;
  while (target > rank_) {
    below = target;
    target = (target - 1) / 2;
  }
  return target == rank_ ? below : (rank_ - 1) / 2;
}

Result<std::vector<Bytes>> Channel::all_gather(std::span<const std::byte> mine, const Wait& wait) {
  return gather(kind_all_gather, mine, wait);
}

Status Channel::barrier(const Wait& wait) {
  return gather(kind_barrier, {}, wait).map([](const auto&) {});
}

Result<std::vector<Bytes>> Channel::gather(Kind kind, std::span<const std::byte> mine, const Wait& wait) {
  constexpr std::size_t overhead_bytes = 64;
  const auto n = static_cast<std::size_t>(ranks_);
  if (mine.size() > member_payload_bytes / n - std::min(overhead_bytes, member_payload_bytes / n))
    return fail(Code::invalid_argument, "an all-gather of " + std::to_string(mine.size()) + " bytes from each of " +
                                            std::to_string(ranks_) + " ranks exceeds 64 MiB: send less at a time");
  const Turn turn(*this);
  STRAIT_TRY(error());
  std::vector<std::optional<Bytes>> parts(n);
  parts[static_cast<std::size_t>(rank_)] = Bytes(mine.begin(), mine.end());
  std::size_t have = 1;
  bool table_arrived = false;
  Operation operation;
  operation.head = {kind, ++sequence_, rank_};
  operation.needs = [](const Neighbour&) { return true; };
  operation.done = [&] { return rank_ == 0 ? have == n : table_arrived; };
  operation.missing = [&] {
    // Contributions of the ranks below this one pass through it: on rank 0, those of all ranks.
    std::vector<int> missing;
    for (int r = rank_ + 1; r < ranks_; ++r)
      if (!parts[static_cast<std::size_t>(r)] && neighbour_towards(r) > rank_) missing.push_back(r);
    return missing;
  };
  auto send_down = [&](const Bytes& table) {
    Bytes payload = with_head({kind, sequence_, 0}, table);
    for (Neighbour& neighbour : neighbours_)
      if (is_child(neighbour)) neighbour.connection.send(FrameType::table, payload);
  };
  operation.take = [&](Neighbour& from, const Frame& frame, const OperationHead& head, Deserializer& in) -> Status {
    if (frame.type == FrameType::contribution && is_child(from) && head.origin > 0 && head.origin < ranks_ &&
        !parts[static_cast<std::size_t>(head.origin)]) {
      auto data = in.rest();
      parts[static_cast<std::size_t>(head.origin)] = Bytes(data.begin(), data.end());
      ++have;
      if (rank_ > 0) parent()->connection.send(FrameType::contribution, frame.payload);
      if (rank_ == 0 && have == n) send_down(encode_table(parts));
      return {};
    }
    if (frame.type != FrameType::table || is_child(from))
      return fail(Code::internal_error, "an unexpected frame from " + describe(from.rank));
    for (auto& part : parts) {
      auto data = in.raw(in.number<std::uint32_t>());
      part = Bytes(data.begin(), data.end());
    }
    STRAIT_TRY(in.finish("table"));
    table_arrived = true;
    for (Neighbour& neighbour : neighbours_)
      if (is_child(neighbour)) neighbour.connection.send(FrameType::table, frame.payload);
    return {};
  };
  if (rank_ > 0) parent()->connection.send(FrameType::contribution, with_head(operation.head, mine));
  STRAIT_TRY(run(operation, wait));
  std::vector<Bytes> result;
  for (auto& part : parts) result.push_back(std::move(*part));
  return result;
}

Result<Bytes> Channel::broadcast(std::span<const std::byte> mine, int root, const Wait& wait) {
  if (root < 0 || root >= ranks_)
    return fail(Code::invalid_argument,
                "broadcast from rank " + std::to_string(root) + ": ranks go from 0 to " + std::to_string(ranks_ - 1));
  if (root == rank_ && mine.size() > member_payload_bytes - 64)
    return fail(Code::invalid_argument,
                "a broadcast of " + std::to_string(mine.size()) + " bytes exceeds 64 MiB: send less");
  const Turn turn(*this);
  STRAIT_TRY(error());
  std::optional<Bytes> data;
  const int source = root == rank_ ? -1 : neighbour_towards(root);
  Operation operation;
  operation.head = {kind_broadcast, ++sequence_, root};
  operation.needs = [&](const Neighbour& neighbour) { return !data && neighbour.rank == source; };
  operation.done = [&] { return data.has_value(); };
  operation.missing = [&] { return data ? std::vector<int>{} : std::vector<int>{root}; };
  auto pass_on = [&](const Bytes& payload) {
    for (Neighbour& neighbour : neighbours_)
      if (neighbour.rank != source) neighbour.connection.send(FrameType::broadcast, payload);
  };
  operation.take = [&](Neighbour& from, const Frame& frame, const OperationHead&, Deserializer& in) -> Status {
    if (frame.type != FrameType::broadcast)
      return fail(Code::internal_error, "an unexpected frame from " + describe(from.rank));
    auto rest = in.rest();
    data = Bytes(rest.begin(), rest.end());
    pass_on(frame.payload);
    return {};
  };
  if (root == rank_) {
    data = Bytes(mine.begin(), mine.end());
    pass_on(with_head(operation.head, mine));
  }
  STRAIT_TRY(run(operation, wait));
  return std::move(*data);
}

}  // namespace strait
