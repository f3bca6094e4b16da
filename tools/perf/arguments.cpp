#include "perf/arguments.hpp"

namespace strait::perf {

void* offset(void* buffer, std::size_t elements, DataType type) {
  return static_cast<unsigned char*>(buffer) + elements * size_bytes(type);
}

Arguments arguments_of(const Operation& o, void* send, void* receive) {
  const Geometry g = o.geometry(o.rank);
  Arguments a{.collective = o.collective,
              .type = o.type,
              .op = o.op,
              .premul_scalar = o.op == ReduceOp::premul_sum ? premul_scalar(o, o.rank) : 0,
              .root = static_cast<int>(o.root),
              .rank = static_cast<int>(o.rank),
              .ranks = static_cast<int>(o.ranks),
              .count = g.count,
              .send = send,
              .receive = receive};
  if (o.in_place) {
    a.send = offset(receive, g.send_offset, o.type);
    a.receive = offset(receive, g.receive_offset, o.type);
  }
  if (o.collective == Collective::all_to_all_v) a.blocks = all_to_all_v_blocks(g.count, o.type, o.ranks, o.rank);
  return a;
}

}  // namespace strait::perf
