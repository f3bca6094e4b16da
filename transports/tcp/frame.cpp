#include "transports/tcp/frame.hpp"

#include <string>

namespace strait::tcp {
namespace {

constexpr std::uint16_t data_magic = 0x5444;

template <class T>
void store(std::byte* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

template <class T>
T load(const std::byte* from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(std::to_integer<std::uint8_t>(from[i])) << (8 * i));
  return value;
}

std::size_t longest_payload(FrameKind kind, std::size_t slot_bytes) {
  if (kind == FrameKind::slot || kind == FrameKind::announced) return slot_bytes;
  return kind == FrameKind::error ? max_error_bytes : 0;
}

}  // namespace

HeaderBytes encode(const FrameHeader& header) {
  HeaderBytes bytes{};
  store(bytes.data(), data_magic);
  store(bytes.data() + 2, static_cast<std::uint8_t>(header.kind));
  store(bytes.data() + 4, header.payload_bytes);
  store(bytes.data() + 8, header.stream);
  store(bytes.data() + 16, header.a);
  store(bytes.data() + 24, header.b);
  return bytes;
}

Result<FrameHeader> decode(std::span<const std::byte, header_bytes> bytes, std::size_t slot_bytes) {
  const auto kind = load<std::uint8_t>(&bytes[2]);
  if (load<std::uint16_t>(&bytes[0]) != data_magic || bytes[3] != std::byte{0} ||
      kind < static_cast<std::uint8_t>(FrameKind::slot) || kind > static_cast<std::uint8_t>(FrameKind::exiting))
    return fail(Code::remote_error, "something that is no frame of Strait's data connections");
  FrameHeader header{static_cast<FrameKind>(kind), load<std::uint32_t>(&bytes[4]), load<std::uint64_t>(&bytes[8]),
                     load<std::uint64_t>(&bytes[16]), load<std::uint64_t>(&bytes[24])};
  if (const std::size_t most = longest_payload(header.kind, slot_bytes); header.payload_bytes > most)
    return fail(Code::remote_error, "a frame of " + std::to_string(header.payload_bytes) + " bytes where at most " +
                                        std::to_string(most) + " are accepted");
  const auto is_error = [](std::uint64_t code) {
    return code > static_cast<std::uint64_t>(Code::success) && code <= static_cast<std::uint64_t>(Code::in_progress);
  };
  if (header.kind == FrameKind::error && !is_error(header.a))
    return fail(Code::remote_error, "an error of the unknown code " + std::to_string(header.a));
  return header;
}

}  // namespace strait::tcp
