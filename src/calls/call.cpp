#include "calls/call.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include "base/hash.hpp"
#include "plan/request.hpp"

namespace strait {
namespace {

/// Returns the number of an algorithm in a signature: one more than its place in the catalogue; 0: none.
std::uint64_t place_of(const Algorithm* algorithm) {
  return algorithm == nullptr ? 0 : static_cast<std::uint64_t>(algorithm - catalogue().data()) + 1;
}

/// A field of bits in CallSignature::what.
struct Field {
  unsigned shift;
  unsigned bits;
  constexpr std::uint64_t most() const { return (std::uint64_t{1} << bits) - 1; }
  constexpr std::uint64_t of(std::uint64_t what) const { return what >> shift & most(); }
  constexpr std::uint64_t with(std::uint64_t value) const { return (value & most()) << shift; }
};
constexpr Field collective_field{0, 5}, after_capture_field{5, 1}, type_field{6, 5}, op_field{11, 4},
    registered_field{15, 1}, wire_field{16, 2}, sms_field{18, 9}, algorithm_field{27, 5}, root_field{32, 19},
    aggregated_field{51, 1}, number_field{52, 12};
static_assert(collective_count - 1 <= collective_field.most() && data_type_count - 1 <= type_field.most() &&
              reduce_op_count - 1 <= op_field.most() && wire_format_count - 1 <= wire_field.most() &&
              no_sms <= sms_field.most() && std::uint64_t{most_ranks} - 1 <= root_field.most());

std::uintptr_t begin_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  return a_bytes != 0 && b_bytes != 0 && begin_of(a) < begin_of(b) + b_bytes && begin_of(b) < begin_of(a) + a_bytes;
}

std::size_t extent_of(const std::vector<std::size_t>& counts, const std::vector<std::size_t>& offsets) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != 0) end = std::max(end, offsets[i] + counts[i]);
  return end;
}

tl::unexpected<Error> invalid(const Call& call, const std::string& problem) {
  return fail(Code::invalid_argument, std::string(name(call.collective)) + ": " + problem);
}

/// No buffer may be larger than half the address space: beyond that, offsets would wrap.
Status validate_size(const Call& call, std::uint32_t ranks) {
  constexpr std::size_t limit_bytes = std::numeric_limits<std::size_t>::max() / 2;
  const std::size_t per_element = size_bytes(call.type) * ranks;
  if (call.count > limit_bytes / per_element)
    return invalid(call, "count " + std::to_string(call.count) + " of " + std::string(name(call.type)) + " times " +
                             std::to_string(ranks) + " ranks is more than memory can hold");
  return {};
}

Status validate_counts(const Call& call, std::uint32_t rank) {
  const auto check = [&](const char* side, const std::vector<std::size_t>& counts,
                         const std::vector<std::size_t>& offsets) -> Status {
    const std::size_t limit = std::numeric_limits<std::size_t>::max() / 4 / size_bytes(call.type);
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > limit || offsets[i] > limit)
        return invalid(call, std::string(side) + " count or offset for rank " + std::to_string(i) +
                                 " is more than memory can hold");
    return {};
  };
  STRAIT_TRY(check("send", call.send_counts, call.send_offsets));
  STRAIT_TRY(check("receive", call.receive_counts, call.receive_offsets));
  if (call.send_counts[rank] != call.receive_counts[rank])
    return invalid(call, "this rank sends " + std::to_string(call.send_counts[rank]) +
                             " elements to itself but receives " + std::to_string(call.receive_counts[rank]));
  for (std::size_t a = 0; a < call.receive_counts.size(); ++a)
    for (std::size_t b = a + 1; b < call.receive_counts.size(); ++b) {
      const auto end = [&](std::size_t i) { return call.receive_offsets[i] + call.receive_counts[i]; };
      if (call.receive_counts[a] != 0 && call.receive_counts[b] != 0 && call.receive_offsets[a] < end(b) &&
          call.receive_offsets[b] < end(a))
        return invalid(call,
                       "the receive blocks of ranks " + std::to_string(a) + " and " + std::to_string(b) + " overlap");
    }
  return {};
}

Status validate_residual(const Call& call, const BufferSizes& sizes) {
  if (call.wire == WireFormat::off) return invalid(call, "a residual is for calls with a wire format");
  if (!is_reduction(call.collective))
    return invalid(call, "a residual is for reductions: nothing is added up later to make good for it");
  if (begin_of(call.residual) % alignof(float) != 0)
    return invalid(call, "the residual is not aligned as floats must be");
  const std::size_t residual_bytes = sizes.send_bytes / size_bytes(call.type) * sizeof(float);
  if (overlap(call.residual, residual_bytes, call.send, sizes.send_bytes) ||
      overlap(call.residual, residual_bytes, call.receive, sizes.receive_bytes))
    return invalid(call, "the residual overlaps another buffer of the call");
  return {};
}

}  // namespace

bool has_own_layout(const Call& call) {
  const auto has_any = [](const auto&... lists) { return (!lists.empty() || ...); };
  return call.collective != Collective::all_to_all_v &&
         has_any(call.send_counts, call.send_offsets, call.receive_counts, call.receive_offsets);
}

BufferSizes buffer_sizes(const Call& call, std::uint32_t rank, std::uint32_t ranks) {
  const std::size_t one = call.count * size_bytes(call.type);
  const std::size_t all = one * ranks;
  const bool is_root = rank == call.root;
  switch (call.collective) {
    case Collective::all_reduce:
      return {one, one};
    case Collective::all_gather:
      return {one, all};
    case Collective::reduce_scatter:
      return {all, one};
    case Collective::all_to_all:
      return {all, all};
    case Collective::all_to_all_v:
      return {extent_of(call.send_counts, call.send_offsets) * size_bytes(call.type),
              extent_of(call.receive_counts, call.receive_offsets) * size_bytes(call.type)};
    case Collective::broadcast:
      return {is_root ? one : 0, one};
    case Collective::reduce:
      return {one, is_root ? one : 0};
    case Collective::gather:
      return {one, is_root ? all : 0};
    case Collective::scatter:
      return {is_root ? all : 0, one};
    case Collective::send_recv:
      return {call.sends ? one : 0, call.sends ? 0 : one};
    case Collective::barrier:
      break;
  }
  return {};
}

bool is_in_place(const Call& call, std::uint32_t rank) {
  const std::size_t own_block = rank * call.count * size_bytes(call.type);
  switch (call.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return begin_of(call.send) == begin_of(call.receive) + own_block;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return begin_of(call.receive) == begin_of(call.send) + own_block;
    case Collective::all_to_all_v:
    case Collective::send_recv:
    case Collective::barrier:
      return false;
    default:
      return call.send == call.receive;
  }
}

CallSignature message_signature(const Call& call, std::size_t count) {
  const ReduceOp op = is_reduction(call.collective) ? call.op : ReduceOp::sum;
  return {collective_field.with(std::uint64_t(call.collective)) | type_field.with(std::uint64_t(call.type)) |
              op_field.with(std::uint64_t(op)) | registered_field.with(call.registered) |
              wire_field.with(std::uint64_t(call.wire)) | sms_field.with(call.max_sms) |
              algorithm_field.with(place_of(call.algorithm)) | root_field.with(call.root) |
              aggregated_field.with(call.aggregated),
          count};
}

CallSignature signature(const Call& call) {
  return message_signature(call, call.whole_count == 0 ? call.count : call.whole_count);
}

CallSignature numbered(CallSignature signature, std::uint64_t sequence) {
  signature.what |= number_field.with(sequence);
  return signature;
}

CallSignature after_capture(CallSignature signature) {
  signature.what |= after_capture_field.with(1);
  return signature;
}

bool is_after_capture(const CallSignature& signature) { return after_capture_field.of(signature.what) != 0; }

std::uint32_t hash_of(const CallSignature& signature) {
  return static_cast<std::uint32_t>(mix(mix(signature.what) ^ signature.count));
}

std::uint32_t mark_of(const CallSignature& signature) { return std::max(hash_of(signature), 1u); }

std::uint16_t short_hash_of(const CallSignature& signature) {
  const std::uint32_t h = hash_of(signature);
  return static_cast<std::uint16_t>(h ^ h >> 16);
}

std::uint64_t number_of(const CallSignature& signature) { return number_field.of(signature.what); }

bool differ_in_grouping(const CallSignature& a, const CallSignature& b) {
  const auto rest = [](const CallSignature& signature) {
    return signature.what & ~(aggregated_field.with(1) | after_capture_field.with(1) | number_field.with(~0ull));
  };
  return rest(a) == rest(b) && a.count == b.count && aggregated_field.of(a.what) != aggregated_field.of(b.what);
}

bool differ_as_messages(const CallSignature& a, const CallSignature& b) {
  const Collective one = collective_of(a);
  return (one == Collective::send_recv || one == Collective::all_to_all_v) && one == collective_of(b) &&
         number_of(a) == number_of(b) && describe(a) != describe(b);
}

Collective collective_of(const CallSignature& signature) {
  return static_cast<Collective>(collective_field.of(signature.what));
}

std::string describe(const CallSignature& signature) {
  const Collective collective = collective_of(signature);
  const auto type = static_cast<DataType>(type_field.of(signature.what));
  const auto op = static_cast<ReduceOp>(op_field.of(signature.what));
  if (static_cast<int>(collective) >= collective_count || static_cast<int>(type) >= data_type_count ||
      static_cast<int>(op) >= reduce_op_count)
    return "a call that this version does not know";
  std::string text(name(collective));
  if (collective == Collective::barrier) return text;
  text += "(count " + std::to_string(signature.count) + ", " + std::string(name(type));
  if (is_reduction(collective)) text += ", " + std::string(name(op));
  if (has_root(collective)) text += ", root " + std::to_string(root_field.of(signature.what));
  if (registered_field.of(signature.what) != 0) text += ", registered buffers";
  const auto wire = static_cast<WireFormat>(wire_field.of(signature.what));
  if (wire != WireFormat::off) text += ", " + std::string(name(wire)) + " on the wire";
  if (const auto sms = sms_field.of(signature.what); sms != 0)
    text += sms == no_sms ? ", on no SMs" : ", on up to " + std::to_string(sms) + " SMs";
  const std::uint64_t algorithm = algorithm_field.of(signature.what);
  if (algorithm != 0 && algorithm <= catalogue().size()) text += ", by " + std::string(catalogue()[algorithm - 1].name);
  if (aggregated_field.of(signature.what) != 0) text += ", in a group with the call before it";
  return text + ")";
}

bool is_encoded(const Call& call, std::uint32_t ranks) {
  return call.wire != WireFormat::off && call.count != 0 && ranks > 1;
}

std::string wire_problem(const Call& call) { return wire::problem(call.collective, call.type, call.op); }

Status validate(const Call& call, std::uint32_t rank, std::uint32_t ranks) {
  if (has_root(call.collective) && call.root >= ranks)
    return invalid(call, "root " + std::to_string(static_cast<std::int32_t>(call.root)) +
                             " is not a rank; ranks are 0 to " + std::to_string(ranks - 1));
  if (call.collective == Collective::send_recv && call.peer >= ranks)
    return invalid(call, "peer " + std::to_string(static_cast<std::int32_t>(call.peer)) +
                             " is not a rank; ranks are 0 to " + std::to_string(ranks - 1));
  STRAIT_TRY(validate_size(call, ranks));
  if (call.collective == Collective::all_to_all_v) STRAIT_TRY(validate_counts(call, rank));
  const BufferSizes sizes = buffer_sizes(call, rank, ranks);
  if (sizes.send_bytes != 0 && call.send == nullptr) return invalid(call, "the send buffer is NULL");
  if (sizes.receive_bytes != 0 && call.receive == nullptr) return invalid(call, "the receive buffer is NULL");
  if (!is_in_place(call, rank) && overlap(call.send, sizes.send_bytes, call.receive, sizes.receive_bytes))
    return invalid(call, "send and receive buffers overlap without being the in-place form of this call");
  if (call.wire != WireFormat::off && call.algorithm != nullptr)
    return invalid(call,
                   "its options name an algorithm and a wire format, which has its own way. Leave one of them out");
  if (call.wire != WireFormat::off)
    if (const std::string problem = wire_problem(call); !problem.empty()) return invalid(call, problem);
  if (call.residual != nullptr) STRAIT_TRY(validate_residual(call, sizes));
  return {};
}

namespace {

const void* buffer_of(const Call& message) { return message.sends ? message.send : message.receive; }

/// Returns the messages of the rank to itself that have the same buffer at both ends, so that nothing moves, as in an
/// in-place scatter that is made of messages. The nth send pairs with the nth receive.
std::set<const Call*> messages_that_stay(std::span<const Call> messages, std::uint32_t rank) {
  std::vector<const Call*> sends, receives;
  for (const Call& message : messages)
    if (message.peer == rank) (message.sends ? sends : receives).push_back(&message);
  std::set<const Call*> stay;
  for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i)
    if (buffer_of(*sends[i]) == buffer_of(*receives[i]) && sends[i]->count == receives[i]->count)
      stay.insert({sends[i], receives[i]});
  return stay;
}

}  // namespace

Status check_no_overlap(std::span<const Call> messages, std::uint32_t rank) {
  struct Place {
    std::uintptr_t begin, end;
    const Call* message;
  };
  std::vector<Place> places;
  const std::set<const Call*> stay = messages_that_stay(messages, rank);
  for (const Call& message : messages) {
    const std::uintptr_t begin = begin_of(buffer_of(message));
    const std::size_t bytes = message.count * size_bytes(message.type);
    if (bytes != 0 && !stay.contains(&message)) places.push_back({begin, begin + bytes, &message});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  const Place *last = nullptr, *last_received = nullptr;  // of the places that begin earlier, the one that ends last
  const auto name = [](const Call& message) {
    return (message.sends ? "the send to rank " : "the receive from rank ") + std::to_string(message.peer);
  };
  for (const Place& place : places) {
    const Place* const other = place.message->sends ? last_received : last;
    if (other != nullptr && place.begin < other->end)
      return fail(Code::invalid_argument, "send-recv: in a group the buffer of " + name(*other->message) +
                                              " overlaps that of " + name(*place.message) +
                                              "; only what is sent may be shared");
    if (last == nullptr || place.end > last->end) last = &place;
    if (!place.message->sends && (last_received == nullptr || place.end > last_received->end)) last_received = &place;
  }
  return {};
}

Status check_own_messages(std::span<const Call> messages, std::uint32_t rank) {
  std::vector<CallSignature> sent, received;
  for (const Call& message : messages)
    if (message.peer == rank) (message.sends ? sent : received).push_back(signature(message));
  for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
    if (i >= sent.size() || i >= received.size())
      return fail(Code::invalid_usage,
                  "send-recv: rank " + std::to_string(rank) + " posts " + std::to_string(sent.size()) + " sends and " +
                      std::to_string(received.size()) + " receives to itself; a group must hold both of each pair");
    if (sent[i] != received[i])
      return fail(Code::invalid_usage, "send-recv: rank " + std::to_string(rank) + " sends itself " +
                                           describe(sent[i]) + " but receives " + describe(received[i]));
  }
  return {};
}

}  // namespace strait
