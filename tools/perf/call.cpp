#include "perf/call.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace strait::perf {
namespace {

constexpr std::size_t page_bytes = 4096;

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

Call::Call(const Operation& o, void* send, void* receive, straitComm_t comm)
    : collective_(o.collective),
      type_(static_cast<straitDataType_t>(o.type)),
      op_(static_cast<straitRedOp_t>(o.op)),
      root_(static_cast<int>(o.root)),
      rank_(static_cast<int>(o.rank)),
      ranks_(static_cast<int>(o.ranks)),
      send_(send),
      receive_(receive),
      comm_(comm) {
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
      return straitAllReduce(send_, receive_, count_, type_, op_, comm_, nullptr);
    case Collective::all_gather:
      return straitAllGather(send_, receive_, count_, type_, comm_, nullptr);
    case Collective::reduce_scatter:
      return straitReduceScatter(send_, receive_, count_, type_, op_, comm_, nullptr);
    case Collective::all_to_all:
      return straitAllToAll(send_, receive_, count_, type_, comm_, nullptr);
    case Collective::all_to_all_v:
      return straitAllToAllv(send_, blocks_.send_counts.data(), blocks_.send_offsets.data(), receive_,
                             blocks_.receive_counts.data(), blocks_.receive_offsets.data(), type_, comm_, nullptr);
    case Collective::broadcast:
      return straitBroadcast(send_, receive_, count_, type_, root_, comm_, nullptr);
    case Collective::reduce:
      return straitReduce(send_, receive_, count_, type_, op_, root_, comm_, nullptr);
    case Collective::gather:
      return straitGather(send_, receive_, count_, type_, root_, comm_, nullptr);
    case Collective::scatter:
      return straitScatter(send_, receive_, count_, type_, root_, comm_, nullptr);
    case Collective::send_recv:
      return send_receive();
    case Collective::barrier:
      return straitBarrier(comm_, nullptr);
  }
  return straitInternalError;
}

/// Around the ring: to the next rank, from the one before.
straitResult_t Call::send_receive() const {
  if (const auto result = straitGroupStart(); result != straitSuccess) return result;
  const auto sent = straitSend(send_, count_, type_, (rank_ + 1) % ranks_, comm_, nullptr);
  const auto received = straitRecv(receive_, count_, type_, (rank_ + ranks_ - 1) % ranks_, comm_, nullptr);
  const auto ended = straitGroupEnd();
  return sent != straitSuccess ? sent : received != straitSuccess ? received : ended;
}

Result<Memory> Memory::plain(std::size_t size_bytes) {
  const std::size_t rounded = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* data = std::aligned_alloc(page_bytes, rounded);
  if (data == nullptr)
    return fail_errno("Cannot allocate a buffer of " + std::to_string(rounded) + " bytes", errno, "Lower --maxbytes");
  return Memory(data, nullptr, nullptr);
}

Result<Memory> Memory::registered(std::size_t size_bytes, straitComm_t comm) {
  void* data = nullptr;
  STRAIT_TRY(checked(straitMemAlloc(&data, size_bytes), comm, "straitMemAlloc"));
  Memory memory(data, comm, nullptr);
  STRAIT_TRY(checked(straitCommRegister(comm, data, size_bytes, &memory.handle_), comm, "straitCommRegister"));
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}

Memory::~Memory() {
  if (handle_ != nullptr) straitCommDeregister(comm_, handle_);
  if (comm_ == nullptr)
    std::free(data_);
  else if (data_ != nullptr)
    straitMemFree(data_);
}

}  // namespace strait::perf
