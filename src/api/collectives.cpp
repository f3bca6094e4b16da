// The C interface: operations and groups. Turns arguments into a Call.
#include "api/api.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "api/group.hpp"
#include "api/profiler_range.hpp"

namespace strait::api {
namespace {

/// Return the value by which the user knows a reduction of PremulOps, and its number there. They follow the built-in
/// ones.
straitRedOp_t op_of_premul(std::uint32_t number) {
  return static_cast<straitRedOp_t>(straitAvg + 1 + static_cast<int>(number));
}
std::uint32_t premul_of_op(int op) { return static_cast<std::uint32_t>(op - straitAvg - 1); }

/// Sets the call's data type and reduction; looks up reductions that the user created.
Status set_types(Call& call, Comm& comm, straitDataType_t type, int op) {
  if (type < 0 || static_cast<int>(type) >= data_type_count)
    return fail(Code::invalid_argument, std::string(name(call.collective)) + ": " + std::to_string(type) +
                                            " is no data type (straitDataType_t)");
  call.type = static_cast<DataType>(type);
  if (op >= straitSum && op <= straitAvg) {
    call.op = static_cast<ReduceOp>(op);
    return {};
  }
  const auto* premul = op > straitAvg ? comm.premul_ops().find(premul_of_op(op)) : nullptr;
  if (premul == nullptr)
    return fail(Code::invalid_argument, std::string(name(call.collective)) + ": " + std::to_string(op) +
                                            " is no reduction of this communicator (straitRedOp_t)");
  if (premul->type != call.type)
    return fail(Code::invalid_argument, std::string(name(call.collective)) + ": the reduction was created for " +
                                            std::string(name(premul->type)) + ", not " + std::string(name(call.type)));
  call.op = ReduceOp::premul_sum;
  call.premul_scalar = premul->scalar;
  return {};
}

/// Applies the call's options. If they name no wire format, calls that can have one get the communicator's.
Status set_options(Call& call, const Comm& comm, const straitCallOptions_t* options) {
  std::optional<WireFormat> wanted;
  if (options != nullptr) {
    const std::string call_name(name(call.collective));
    straitCallOptions_t known = STRAIT_CALL_OPTIONS_INITIALIZER;
    if (options->magic != STRAIT_CALL_OPTIONS_MAGIC || options->size_bytes < offsetof(straitCallOptions_t, wire))
      return fail(Code::invalid_argument,
                  call_name + ": the options are not initialised. Start from STRAIT_CALL_OPTIONS_INITIALIZER");
    std::memcpy(&known, options, std::min(sizeof known, options->size_bytes));
    auto wire = wire_of(known.wire);
    if (!wire) return fail(Code::invalid_argument, call_name + ": " + wire.error().message);
    wanted = *wire;
    call.residual = known.residual;
    const auto sms = sms_of(known.max_sms);
    if (!sms) return fail(Code::invalid_argument, call_name + ": max_sms in its options " + sms.error().message);
    call.max_sms = *sms;
    if (known.algorithm != nullptr) {
      call.algorithm = find_algorithm(known.algorithm);
      if (call.algorithm == nullptr)
        return fail(Code::invalid_argument, call_name + ": its options ask for the algorithm '" + known.algorithm +
                                                "', which there is not. `strait explain` prints the names");
    }
  }
  if (wanted) {
    call.wire = *wanted;
  } else if (comm.wire() != WireFormat::off && wire_problem(call).empty()) {
    // Decided by what is equal on all ranks, and so not by the residual, which some ranks may pass and others not.
    if ((is_reduction(call.collective) || comm.wire_copies()) &&
        buffer_sizes(call, comm.rank(), comm.ranks()).larger_bytes() >= comm.wire_bytes())
      call.wire = comm.wire();
    else if (is_reduction(call.collective))
      call.residual = nullptr;
  }
  return {};
}

/// Opens the range that a profiler shows for the call, with the call's size.
ProfilerRange profiled(const Comm& comm, const Call& call) {
  const std::size_t bytes = buffer_sizes(call, comm.rank(), comm.ranks()).larger_bytes();
  return {bytes, [&] {
            std::string text = describe(signature(call));
            if (call.collective == Collective::send_recv)
              text += (call.sends ? " to rank " : " from rank ") + std::to_string(call.peer);
            return text + ", " + std::to_string(bytes) + " bytes, rank " + std::to_string(comm.rank()) + " of " +
                   std::to_string(comm.ranks()) + ", communicator " + comm.flight_recorder().communicator();
          }};
}

/// Refuses a stream on a communicator of host ranks: the buffers are then most likely GPU memory, and a host rank would
/// crash reading it.
Status check_stream(const Comm& comm, const Call& call) {
  if (call.stream == nullptr || comm.is_on_device()) return {};
  return fail(
      Code::invalid_argument,
      std::string(name(call.collective)) +
          ": a stream, but this communicator's ranks exchange host memory, and their calls end before they "
          "return. For memory of a GPU name its device in the configuration (straitConfig_t); else pass no stream");
}

/// Validates the call, then runs it or records it in the open group.
Status submit(Comm& comm, Call& call, straitDataType_t type, int op, const straitCallOptions_t* options) {
  STRAIT_TRY(check_stream(comm, call));
  STRAIT_TRY(set_types(call, comm, type, op));
  STRAIT_TRY(set_options(call, comm, options));
  STRAIT_TRY(validate(call, comm.rank(), comm.ranks()));
  const ProfilerRange range = profiled(comm, call);
  // With premul_sum, peers read a scaled copy and not the registered buffer: see PremulContribution.
  if (comm.has_registrations() && !comm.is_on_device() && call.collective != Collective::send_recv &&
      call.collective != Collective::all_to_all_v && call.op != ReduceOp::premul_sum) {
    const auto sizes = buffer_sizes(call, comm.rank(), comm.ranks());
    call.registered =
        comm.is_registered(call.send, sizes.send_bytes) && comm.is_registered(call.receive, sizes.receive_bytes);
  }
  STRAIT_TRY(comm.prepare(call));
  Group& group = Group::of_this_thread();
  if (group.is_open()) {
    group.add(comm, call);
    return {};
  }
  if (call.collective == Collective::send_recv) return comm.run_message(call);
  return comm.run(call);
}

straitResult_t collective(straitComm_t handle, Call call, straitDataType_t type, int op = straitSum,
                          const straitCallOptions_t* options = nullptr) noexcept {
  return guarded([&] {
    const auto comm = comm_of(handle);
    if (!comm) return result_in_group(tl::unexpected(comm.error()));
    return result_in_group((*comm)->or_out_of_memory([&] { return submit(**comm, call, type, op, options); }));
  });
}

Call make_call(straitStream_t stream, Collective kind, const void* send, void* receive, std::size_t count,
               int root = 0) {
  Call call;
  call.stream = stream;
  call.collective = kind;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.root = static_cast<std::uint32_t>(root);
  return call;
}

}  // namespace
}  // namespace strait::api

using strait::Call;
using strait::Code;
using strait::Collective;
using strait::Comm;
using strait::Group;
using namespace strait::api;

straitResult_t straitRedOpCreatePreMulSum(straitRedOp_t* op, const void* scalar, straitDataType_t datatype,
                                          straitScalarResidence_t residence, straitComm_t handle) {
  return with_comm(handle, [&](Comm& comm) {
    if (op == nullptr || scalar == nullptr) return invalid("straitRedOpCreatePreMulSum: a pointer is NULL");
    if (datatype < 0 || static_cast<int>(datatype) >= strait::data_type_count)
      return invalid("straitRedOpCreatePreMulSum: " + std::to_string(datatype) + " is no data type (straitDataType_t)");
    if (residence != straitScalarDevice && residence != straitScalarHostImmediate)
      return invalid("straitRedOpCreatePreMulSum: " + std::to_string(residence) +
                     " is no residence (straitScalarResidence_t)");
    strait::PremulOp made{static_cast<strait::DataType>(datatype), {.is_address = residence == straitScalarDevice}};
    const std::size_t bytes = size_bytes(made.type);
    if (made.scalar.is_address)
      made.scalar.bits = reinterpret_cast<std::uintptr_t>(scalar);
    else
      std::memcpy(&made.scalar.bits, scalar, bytes);
    if (made.scalar.is_address && made.scalar.bits % bytes != 0)
      return invalid("straitRedOpCreatePreMulSum: a scalar of " + std::string(name(made.type)) +
                     " in device memory lies at a multiple of " + std::to_string(bytes) + " bytes");
    *op = op_of_premul(comm.premul_ops().add(made));
    return straitSuccess;
  });
}

straitResult_t straitRedOpDestroy(straitRedOp_t op, straitComm_t handle) {
  return with_comm(handle, [&](Comm& comm) {
    if (static_cast<int>(op) <= straitAvg) return invalid("straitRedOpDestroy: built-in reductions stay");
    return result_of(comm.premul_ops().remove(premul_of_op(op)));
  });
}

straitResult_t straitAllReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                               straitRedOp_t op, straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::all_reduce, sendbuff, recvbuff, count), datatype, op);
}

straitResult_t straitAllGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                               straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::all_gather, sendbuff, recvbuff, count), datatype);
}

straitResult_t straitReduceScatter(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                   straitRedOp_t op, straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::reduce_scatter, sendbuff, recvbuff, count), datatype, op);
}

straitResult_t straitAllToAll(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                              straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::all_to_all, sendbuff, recvbuff, count), datatype);
}

straitResult_t straitAllReduceWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          straitRedOp_t op, straitComm_t comm, straitStream_t stream,
                                          const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::all_reduce, sendbuff, recvbuff, count), datatype, op, options);
}

straitResult_t straitAllGatherWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          straitComm_t comm, straitStream_t stream,
                                          const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::all_gather, sendbuff, recvbuff, count), datatype, straitSum,
                    options);
}

straitResult_t straitReduceScatterWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                              straitDataType_t datatype, straitRedOp_t op, straitComm_t comm,
                                              straitStream_t stream, const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::reduce_scatter, sendbuff, recvbuff, count), datatype, op,
                    options);
}

straitResult_t straitAllToAllWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                         straitComm_t comm, straitStream_t stream, const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::all_to_all, sendbuff, recvbuff, count), datatype, straitSum,
                    options);
}

straitResult_t straitAllToAllv(const void* sendbuff, const size_t sendcounts[], const size_t senddispls[],
                               void* recvbuff, const size_t recvcounts[], const size_t recvdispls[],
                               straitDataType_t datatype, straitComm_t handle, straitStream_t stream) {
  return guarded([&] {
    const auto comm = comm_of(handle);
    if (!comm) return result_in_group(tl::unexpected(comm.error()));
    if (sendcounts == nullptr || senddispls == nullptr || recvcounts == nullptr || recvdispls == nullptr)
      return result_in_group(
          strait::fail(Code::invalid_argument, "all-to-all-v: an array of counts or offsets is NULL"));
    const std::size_t ranks = (*comm)->ranks();
    Call call = make_call(stream, Collective::all_to_all_v, sendbuff, recvbuff, 0);
    const strait::Status enough = (*comm)->or_out_of_memory([&]() -> strait::Status {
      call.send_counts.assign(sendcounts, sendcounts + ranks);
      call.send_offsets.assign(senddispls, senddispls + ranks);
      call.receive_counts.assign(recvcounts, recvcounts + ranks);
      call.receive_offsets.assign(recvdispls, recvdispls + ranks);
      return {};
    });
    if (!enough) return result_in_group(enough);
    return collective(handle, std::move(call), datatype);
  });
}

straitResult_t straitBroadcast(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                               straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::broadcast, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                            straitRedOp_t op, int root, straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::reduce, sendbuff, recvbuff, count, root), datatype, op);
}

straitResult_t straitGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                            straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::gather, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitScatter(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype, int root,
                             straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::scatter, sendbuff, recvbuff, count, root), datatype);
}

straitResult_t straitBroadcastWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          int root, straitComm_t comm, straitStream_t stream,
                                          const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::broadcast, sendbuff, recvbuff, count, root), datatype,
                    straitSum, options);
}

straitResult_t straitReduceWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                       straitRedOp_t op, int root, straitComm_t comm, straitStream_t stream,
                                       const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::reduce, sendbuff, recvbuff, count, root), datatype, op,
                    options);
}

straitResult_t straitGatherWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                       int root, straitComm_t comm, straitStream_t stream,
                                       const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::gather, sendbuff, recvbuff, count, root), datatype, straitSum,
                    options);
}

straitResult_t straitScatterWithOptions(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                        int root, straitComm_t comm, straitStream_t stream,
                                        const straitCallOptions_t* options) {
  return collective(comm, make_call(stream, Collective::scatter, sendbuff, recvbuff, count, root), datatype, straitSum,
                    options);
}

straitResult_t straitSend(const void* sendbuff, size_t count, straitDataType_t datatype, int peer, straitComm_t comm,
                          straitStream_t stream) {
  Call call = make_call(stream, Collective::send_recv, sendbuff, nullptr, count);
  call.sends = true;
  call.peer = static_cast<std::uint32_t>(peer);
  return collective(comm, std::move(call), datatype);
}

straitResult_t straitRecv(void* recvbuff, size_t count, straitDataType_t datatype, int peer, straitComm_t comm,
                          straitStream_t stream) {
  Call call = make_call(stream, Collective::send_recv, nullptr, recvbuff, count);
  call.peer = static_cast<std::uint32_t>(peer);
  return collective(comm, std::move(call), datatype);
}

straitResult_t straitBarrier(straitComm_t comm, straitStream_t stream) {
  return collective(comm, make_call(stream, Collective::barrier, nullptr, nullptr, 0), straitUint8);
}

straitResult_t straitGroupStart() {
  Group::of_this_thread().start();
  return straitSuccess;
}

straitResult_t straitGroupEnd() {
  return guarded([&] {
    const strait::ProfilerRange range(0, [] { return std::string("straitGroupEnd"); });
    return result_of(Group::of_this_thread().end());
  });
}

straitResult_t straitGroupCancel() {
  return guarded([] { return result_of(Group::of_this_thread().cancel()); });
}
