#include "perf/call.hpp"

namespace strait::perf {
namespace {

void* offset(void* base, std::size_t elements, DataType type) {
  return static_cast<unsigned char*>(base) + elements * size_bytes(type);
}

}  // namespace

Status checked(straitResult_t result, straitComm_t comm, const char* what) {
  if (result == straitSuccess) return {};
  std::string message = straitGetLastError(comm);
  if (message.empty()) message = straitGetErrorString(result);
  return fail(static_cast<Code>(result), std::string(what) + ": " + message);
}

Call::Call(const Operation& o, void* send, void* receive, straitComm_t comm, straitStream_t stream)
    : collective_(o.collective),
      type_(static_cast<straitDataType_t>(o.type)),
      op_(static_cast<straitRedOp_t>(o.op)),
      root_(static_cast<int>(o.root)),
      rank_(static_cast<int>(o.rank)),
      ranks_(static_cast<int>(o.ranks)),
      send_(send),
      receive_(receive),
      comm_(comm),
      stream_(stream) {
  options_.wire = straitWireOff + static_cast<int>(o.wire);
  const Geometry g = o.geometry(o.rank);
  count_ = g.count;
  if (o.collective == Collective::all_to_all_v) blocks_ = all_to_all_v_blocks(g.count, o.type, o.ranks, o.rank);
  if (o.in_place) {
    send_ = offset(receive, g.send_offset, o.type);
    receive_ = offset(receive, g.receive_offset, o.type);
  }
}

straitResult_t Call::operator()() const {
  switch (collective_) {
    case Collective::all_reduce:
      return straitAllReduceWithOptions(send_, receive_, count_, type_, op_, comm_, stream_, &options_);
    case Collective::all_gather:
      return straitAllGatherWithOptions(send_, receive_, count_, type_, comm_, stream_, &options_);
    case Collective::reduce_scatter:
      return straitReduceScatterWithOptions(send_, receive_, count_, type_, op_, comm_, stream_, &options_);
    case Collective::all_to_all:
      return straitAllToAllWithOptions(send_, receive_, count_, type_, comm_, stream_, &options_);
    case Collective::all_to_all_v:
      return straitAllToAllv(send_, blocks_.send_counts.data(), blocks_.send_offsets.data(), receive_,
                             blocks_.receive_counts.data(), blocks_.receive_offsets.data(), type_, comm_, stream_);
    case Collective::broadcast:
      return straitBroadcast(send_, receive_, count_, type_, root_, comm_, stream_);
    case Collective::reduce:
      return straitReduce(send_, receive_, count_, type_, op_, root_, comm_, stream_);
    case Collective::gather:
      return straitGather(send_, receive_, count_, type_, root_, comm_, stream_);
    case Collective::scatter:
      return straitScatter(send_, receive_, count_, type_, root_, comm_, stream_);
    case Collective::send_recv:
      return send_receive();
    case Collective::barrier:
      return straitBarrier(comm_, stream_);
  }
  return straitInternalError;
}

/// Around the ring: to the next rank, from the one before.
straitResult_t Call::send_receive() const {
  if (const auto result = straitGroupStart(); result != straitSuccess) return result;
  const auto sent = straitSend(send_, count_, type_, (rank_ + 1) % ranks_, comm_, stream_);
  const auto received = straitRecv(receive_, count_, type_, (rank_ + ranks_ - 1) % ranks_, comm_, stream_);
  const auto ended = straitGroupEnd();
  return sent != straitSuccess ? sent : received != straitSuccess ? received : ended;
}

}  // namespace strait::perf
