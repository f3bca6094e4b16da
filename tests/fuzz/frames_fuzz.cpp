#include "frames_fuzz.hpp"

#include <algorithm>
#include <cstdlib>

#include "bootstrap/messages.hpp"
#include "bootstrap/unique_id.hpp"
#include "transports/tcp/frame.hpp"

namespace {

using namespace strait;

constexpr std::size_t max_payload_bytes = 4096;

/// Whatever a decoder accepts must have exactly one encoding: the bytes that it accepted.
template <class Decode>
void check_decoder(std::span<const std::byte> payload, const Decode& decode) {
  auto message = decode(payload);
  if (!message) return;
  Bytes again = encode(*message);
  if (!std::equal(again.begin(), again.end(), payload.begin(), payload.end())) std::abort();
}

void check_payload(std::span<const std::byte> payload) {
  check_decoder(payload, decode_join);
  check_decoder(payload, decode_welcome);
  check_decoder(payload, decode_link);
  check_decoder(payload, decode_error);
  check_decoder(payload, decode_peer_info);
  [[maybe_unused]] auto id = unpack_unique_id(payload);
}

/// Checks the header of a data connection's frame.
void check_data_frame(std::span<const std::byte> bytes) {
  constexpr std::size_t slot_bytes = 1 << 16;
  if (bytes.size() < tcp::header_bytes) return;
  const auto header = tcp::decode(bytes.first<tcp::header_bytes>(), slot_bytes);
  if (!header) return;
  if (header->payload_bytes > slot_bytes) std::abort();
  const tcp::HeaderBytes again = tcp::encode(*header);
  if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
}

void check_stream(std::span<const std::byte> stream, std::size_t step) {
  static const Key key{};
  FrameParser parser(max_payload_bytes);
  ServerHandshake server(key, Purpose::join);
  ClientHandshake client(key, Purpose::join, "server");
  while (!stream.empty()) {
    auto part = stream.first(std::min(step, stream.size()));
    stream = stream.subspan(part.size());
    parser.feed(part);
    while (true) {
      auto frame = parser.next();
      if (!frame) return;
      if (!*frame) break;
      if ((*frame)->payload.size() > max_payload_bytes) std::abort();
      check_payload((*frame)->payload);
      [[maybe_unused]] auto reply = server.take(**frame);
      // No input can contain a valid proof for this server's nonce.
      if (server.done() || client.answer(**frame)) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool started = start_crypto().has_value();
  if (!started || size == 0) return 0;
  auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  check_payload(bytes);
  check_data_frame(bytes);
  check_stream(bytes, std::size_t{data[0]} + 1);
  return 0;
}
