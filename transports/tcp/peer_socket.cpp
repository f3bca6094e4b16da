#include "transports/tcp/peer_socket.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/shortage.hpp"

namespace strait::tcp {
namespace {

/// Bounded, so that a peer that sends without pause does not keep the engine from the others.
constexpr int most_reads = 8;
constexpr std::size_t most_parts = 32;

}  // namespace

PeerSocket::PeerSocket(Socket socket, Bytes unread, std::size_t slot_bytes, Place place, Take take)
    : socket_(std::move(socket)),
      slot_bytes_(slot_bytes),
      place_(std::move(place)),
      take_(std::move(take)),
      staging_(std::make_unique<std::byte[]>(std::max(staging_bytes, unread.size() + header_bytes))),
      staged_bytes_(unread.size()),
      spare_(last_words) {
  std::copy(unread.begin(), unread.end(), staging_.get());
}

void PeerSocket::end(std::string reason) {
  if (!socket_) return;
  socket_.reset();
  queue_.clear();
  end_reason_ = std::move(reason);
}

void PeerSocket::read() {
  if (!parse()) return;  // what came with the handshake
  for (int i = 0; i < most_reads && socket_; ++i) {
    const std::array<iovec, 2> parts{
        {{payload_, payload_left_}, {staging_.get() + staged_bytes_, staging_bytes - staged_bytes_}}};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got == 0) return end("it closed the connection");
    if (got < 0) {
      if (errno == EINTR) continue;
      if (is_shortage(errno))
        met_shortage_ = true;
      else if (errno != EAGAIN && errno != EWOULDBLOCK)
        end(std::generic_category().message(errno));
      return;
    }
    const auto bytes = static_cast<std::size_t>(got);
    const std::size_t of_payload = std::min(bytes, payload_left_);
    const bool drained = bytes < payload_left_ + staging_bytes - staged_bytes_;
    payload_ += of_payload;
    payload_left_ -= of_payload;
    staged_bytes_ += bytes - of_payload;
    if (of_payload > 0 && payload_left_ == 0 && !complete_frame()) return;
    if (!parse() || drained) return;
  }
}

bool PeerSocket::parse() {
  while (socket_) {
    if (payload_left_ > 0) {
      const std::size_t part = std::min(payload_left_, staged_bytes_ - used_of_stage_);
      std::memcpy(payload_, staging_.get() + used_of_stage_, part);
      payload_ += part;
      payload_left_ -= part;
      used_of_stage_ += part;
      if (payload_left_ > 0) break;
      if (!complete_frame()) return false;
      continue;
    }
    if (staged_bytes_ - used_of_stage_ < header_bytes) break;
    const std::span<const std::byte, header_bytes> next(staging_.get() + used_of_stage_, header_bytes);
    auto header = decode(next, slot_bytes_);
    if (!header) {
      end("it sent " + header.error().message);
      return false;
    }
    frame_ = *header;
    if (!begin_frame()) return false;
    used_of_stage_ += header_bytes;  // only now, because begin_frame() may throw
  }
  // Less than a header is left, so the staging buffer never fills up.
  staged_bytes_ -= used_of_stage_;
  std::memmove(staging_.get(), staging_.get() + std::exchange(used_of_stage_, 0), staged_bytes_);
  return static_cast<bool>(socket_);
}

bool PeerSocket::begin_frame() {
  if (frame_.following_bytes() == 0) return complete_frame();
  payload_ = place_(frame_);
  payload_left_ = frame_.following_bytes();
  if (payload_ == nullptr) end("it sent a message that there is no place for");
  return payload_ != nullptr;
}

bool PeerSocket::complete_frame() {
  payload_ = nullptr;
  if (!take_(frame_)) end("it sent a frame that fits no state of the connection");
  return static_cast<bool>(socket_);
}

void PeerSocket::queue(const FrameHeader& header, std::span<const std::byte> payload) {
  if (!socket_) return;
  if (spare_.size() <= last_words) reserve(1);
  push(header, payload);
}

void PeerSocket::queue_last(const FrameHeader& header, std::span<const std::byte> payload) noexcept {
  if (socket_ && !spare_.empty()) push(header, payload);
}

void PeerSocket::push(const FrameHeader& header, std::span<const std::byte> payload) noexcept {
  spare_.front() = {encode(header), payload};
  queue_.splice(queue_.end(), spare_, spare_.begin());
}

void PeerSocket::flush() {
  while (socket_ && !queue_.empty()) {
    std::array<iovec, most_parts> parts;
    std::size_t count = 0;
    std::size_t skip = sent_of_front_;
    for (auto out = queue_.begin(); out != queue_.end() && count + 2 <= most_parts; ++out) {
      if (skip < header_bytes) parts[count++] = {out->header.data() + skip, header_bytes - skip};
      const std::size_t begin = skip > header_bytes ? skip - header_bytes : 0;
      if (begin < out->payload.size())
        parts[count++] = {const_cast<std::byte*>(out->payload.data()) + begin, out->payload.size() - begin};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      drop_sent(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (is_shortage(errno)) {
      met_shortage_ = true;
      return;
    } else if (errno != EINTR) {
      // What the peer sent before it closed still counts, and may contain the reason.
      const std::string reason = std::generic_category().message(errno);
      read();
      return end(reason);
    }
  }
}

void PeerSocket::move_unsent(std::span<const std::byte> payload, std::byte* to) {
  for (Out& out : queue_) {
    if (out.payload.data() != payload.data() || payload.empty()) continue;
    const bool has_begun = &out == &queue_.front() && sent_of_front_ > header_bytes;
    const std::size_t sent = has_begun ? sent_of_front_ - header_bytes : 0;
    std::memcpy(to + sent, payload.data() + sent, payload.size() - sent);
    out.payload = {to, payload.size()};
  }
}

void PeerSocket::move_arriving(std::span<std::byte> place, std::byte* to) {
  if (payload_left_ == 0) return;
  const std::size_t arrived = frame_.payload_bytes - payload_left_;
  if (payload_ - arrived == place.data()) payload_ = to + arrived;
}

void PeerSocket::drop_sent(std::size_t bytes) {
  bytes += sent_of_front_;
  while (!queue_.empty() && bytes >= header_bytes + queue_.front().payload.size()) {
    bytes -= header_bytes + queue_.front().payload.size();
    spare_.splice(spare_.begin(), queue_, queue_.begin());
  }
  sent_of_front_ = bytes;
}

bool PeerSocket::has_unread() const {
  int bytes = 0;
  return socket_ && ::ioctl(socket_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

std::size_t PeerSocket::unacknowledged_bytes() const {
  int bytes = 0;
  if (!socket_ || ::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0) return 0;
  return static_cast<std::size_t>(bytes);
}

}  // namespace strait::tcp
