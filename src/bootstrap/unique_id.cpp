#include "bootstrap/unique_id.hpp"

#include <algorithm>
#include <string_view>

#include "bootstrap/messages.hpp"

namespace strait {
namespace {

constexpr std::uint64_t unique_id_magic = 0x44492d5449415254;  // "TRAIT-ID"
constexpr std::string_view refusal = "refused:";               // in place of the magic number

}  // namespace

std::array<std::byte, unique_id_bytes> UniqueId::pack() const {
  Serializer out;
  out.number(unique_id_magic);
  out.number(protocol_version);
  out.number(static_cast<std::uint8_t>(root_may_be_late));
  write_address(out, root);
  out.raw(key);
  Bytes bytes = out.take();
  std::array<std::byte, unique_id_bytes> packed{};
  std::copy(bytes.begin(), bytes.end(), packed.begin());
  return packed;
}

Result<UniqueId> unpack_unique_id(std::span<const std::byte> bytes) {
  if (bytes.size() != unique_id_bytes)
    return fail(Code::invalid_argument,
                "a unique id has " + std::to_string(unique_id_bytes) + " bytes, not " + std::to_string(bytes.size()));
  Deserializer in(bytes);
  UniqueId id;
  auto magic = in.number<std::uint64_t>();
  auto version = in.number<std::uint16_t>();
  auto late = in.number<std::uint8_t>();
  id.root = read_address(in);
  in.fill(id.key);
  if (magic == unique_id_magic && version != protocol_version)
    return fail(Code::mismatch, "the unique id was made by a Strait with start-up protocol " + std::to_string(version) +
                                    ", this one has " + std::to_string(protocol_version) +
                                    ": use one version of Strait on all ranks");
  if (magic != unique_id_magic || in.failed() || late > 1 || id.root.port == 0)
    return fail(Code::invalid_argument, "these bytes are not a unique id of Strait: pass on all " +
                                            std::to_string(unique_id_bytes) +
                                            " bytes of the one that rank 0 got, unchanged");
  id.root_may_be_late = late == 1;
  return id;
}

Bytes pack_refusal(const Error& why) {
  const auto prefix = as_byte_span(refusal);
  Bytes bytes(prefix.begin(), prefix.end());
  const Bytes error = encode(why);
  bytes.insert(bytes.end(), error.begin(), error.end());
  return bytes;
}

Result<UniqueId> unpack_id_or_refusal(std::span<const std::byte> bytes) {
  const auto prefix = as_byte_span(refusal);
  if (bytes.size() < prefix.size() || !std::equal(prefix.begin(), prefix.end(), bytes.begin()))
    return unpack_unique_id(bytes);
  STRAIT_ASSIGN(Error why, decode_error(bytes.subspan(prefix.size())));
  return tl::unexpected(std::move(why));
}

}  // namespace strait
