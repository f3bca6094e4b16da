#include "bootstrap/frame.hpp"

#include <algorithm>
#include <utility>

namespace strait {
namespace {

/// Returns the first bytes as text, in which a reader may recognise another program's greeting.
std::string printable(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes.first(std::min<std::size_t>(bytes.size(), frame_header_bytes))) {
    auto c = std::to_integer<unsigned char>(b);
    text += c >= 32 && c < 127 ? static_cast<char>(c) : '.';
  }
  return text;
}

}  // namespace

void append_frame(Bytes& out, FrameType type, std::span<const std::byte> payload) {
  Serializer header;
  header.number(frame_magic);
  header.number(static_cast<std::uint16_t>(type));
  header.number(static_cast<std::uint32_t>(payload.size()));
  Bytes head = header.take();
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), payload.begin(), payload.end());
}

void FrameParser::feed(std::span<const std::byte> bytes) {
  if (consumed_ > 0 && consumed_ >= buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(consumed_));
    consumed_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Bytes FrameParser::take_rest() {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(consumed_));
  consumed_ = 0;
  return std::exchange(buffer_, {});
}

Result<std::optional<Frame>> FrameParser::next() {
  auto waiting = std::span<const std::byte>(buffer_).subspan(consumed_);
  if (waiting.size() >= sizeof(frame_magic) && Deserializer(waiting).number<std::uint16_t>() != frame_magic)
    return fail(Code::remote_error,
                "the peer does not speak Strait's protocol: it sent \"" + printable(waiting) + "\"");
  if (waiting.size() < frame_header_bytes) return std::nullopt;
  Deserializer header(waiting.subspan(sizeof(frame_magic)));
  auto type = header.number<std::uint16_t>();
  auto payload_bytes = header.number<std::uint32_t>();
  if (type < static_cast<int>(FrameType::hello) || type > static_cast<int>(FrameType::account))
    return fail(Code::remote_error, "a frame of unknown type " + std::to_string(type));
  if (payload_bytes > max_payload_bytes_)
    return fail(Code::remote_error, "a frame of " + std::to_string(payload_bytes) + " bytes; at most " +
                                        std::to_string(max_payload_bytes_) + " are accepted");
  if (waiting.size() < frame_header_bytes + payload_bytes) return std::nullopt;
  auto payload = waiting.subspan(frame_header_bytes, payload_bytes);
  Frame frame{static_cast<FrameType>(type), Bytes(payload.begin(), payload.end())};
  consumed_ += frame_header_bytes + payload_bytes;
  return frame;
}

}  // namespace strait
