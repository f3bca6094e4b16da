#include "perf/call.hpp"

#include <utility>

namespace strait::perf {

Status checked(straitResult_t result, straitComm_t comm, const char* what) {
  if (result == straitSuccess) return {};
  std::string message = straitGetLastError(comm);
  if (message.empty()) message = straitGetErrorString(result);
  return fail(static_cast<Code>(result), std::string(what) + ": " + message);
}

Call::Call(Arguments arguments, WireFormat wire, straitComm_t comm, straitStream_t stream)
    : arguments_(std::move(arguments)), comm_(comm), stream_(stream) {
  options_.wire = straitWireOff + static_cast<int>(wire);
}

/// As nccl-tests does, each call makes the operation of its own scalar.
straitResult_t Call::operator()() const {
  const Arguments& a = arguments_;
  if (a.op != ReduceOp::premul_sum) return call(static_cast<straitRedOp_t>(a.op));
  straitRedOp_t op{};
  const auto created = straitRedOpCreatePreMulSum(&op, &a.premul_scalar, static_cast<straitDataType_t>(a.type),
                                                  straitScalarHostImmediate, comm_);
  if (created != straitSuccess) return created;
  const auto called = call(op);
  const auto destroyed = straitRedOpDestroy(op, comm_);
  return called != straitSuccess ? called : destroyed;
}

straitResult_t Call::call(straitRedOp_t op) const {
  const Arguments& a = arguments_;
  const auto type = static_cast<straitDataType_t>(a.type);
  switch (a.collective) {
    case Collective::all_reduce:
      return straitAllReduceWithOptions(a.send, a.receive, a.count, type, op, comm_, stream_, &options_);
    case Collective::all_gather:
      return straitAllGatherWithOptions(a.send, a.receive, a.count, type, comm_, stream_, &options_);
    case Collective::reduce_scatter:
      return straitReduceScatterWithOptions(a.send, a.receive, a.count, type, op, comm_, stream_, &options_);
    case Collective::all_to_all:
      return straitAllToAllWithOptions(a.send, a.receive, a.count, type, comm_, stream_, &options_);
    case Collective::all_to_all_v:
      return straitAllToAllv(a.send, a.blocks.send_counts.data(), a.blocks.send_offsets.data(), a.receive,
                             a.blocks.receive_counts.data(), a.blocks.receive_offsets.data(), type, comm_, stream_);
    case Collective::broadcast:
      return straitBroadcast(a.send, a.receive, a.count, type, a.root, comm_, stream_);
    case Collective::reduce:
      return straitReduce(a.send, a.receive, a.count, type, op, a.root, comm_, stream_);
    case Collective::gather:
      return straitGather(a.send, a.receive, a.count, type, a.root, comm_, stream_);
    case Collective::scatter:
      return straitScatter(a.send, a.receive, a.count, type, a.root, comm_, stream_);
    case Collective::send_recv:
      return send_receive();
    case Collective::barrier:
      return straitBarrier(comm_, stream_);
  }
  return straitInternalError;
}

straitResult_t Call::send_receive() const {
  const Arguments& a = arguments_;
  const auto type = static_cast<straitDataType_t>(a.type);
  if (const auto result = straitGroupStart(); result != straitSuccess) return result;
  const auto sent = straitSend(a.send, a.count, type, a.next(), comm_, stream_);
  const auto received = straitRecv(a.receive, a.count, type, a.previous(), comm_, stream_);
  const auto ended = straitGroupEnd();
  return sent != straitSuccess ? sent : received != straitSuccess ? received : ended;
}

}  // namespace strait::perf
