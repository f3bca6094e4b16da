#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "transport/control.hpp"

/// What travels on a data connection once both ends have proven the key: frames, each a header of fixed length and a
/// payload. All numbers are little-endian.
namespace strait::tcp {

enum class FrameKind : std::uint8_t {
  slot = 1,   ///< a message of a link: a and b are its signature (what, count); the payload fills a slot
  announced,  ///< likewise, of which the payload comes by UCX, and not here
  released,   ///< to the writer of a link: a messages in all have been given back
  signal,     ///< one more of the signal
  call,       ///< this rank posted collective `stream`: a and b are its signature
  error,      ///< the communicator has failed: a is the code, the payload the message
  left,       ///< this rank has destroyed its communicator; the connection ends here
  exiting,    ///< RankControl::exiting, of this rank
};

struct FrameHeader {
  FrameKind kind = FrameKind::left;
  std::uint32_t payload_bytes = 0;
  std::uint64_t stream = 0;  ///< which link or signal: slots::Key::hash(), equal at both ends
  std::uint64_t a = 0;
  std::uint64_t b = 0;

  /// Of the payload, as far as it follows.
  std::size_t following_bytes() const { return kind == FrameKind::announced ? 0 : payload_bytes; }
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

inline constexpr std::size_t header_bytes = 32;
inline constexpr std::size_t max_error_bytes = sizeof(ErrorRecord::message) - 1;
using HeaderBytes = std::array<std::byte, header_bytes>;

HeaderBytes encode(const FrameHeader& header);
/// Rejects everything that no Strait of this version sends, above all a payload longer than its place.
Result<FrameHeader> decode(std::span<const std::byte, header_bytes> bytes, std::size_t slot_bytes);

}  // namespace strait::tcp
