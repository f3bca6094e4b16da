#include "bootstrap/connection.hpp"

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/shortage.hpp"

namespace strait {
namespace {

/// Waits for a moment, because poll would return at once: a shortage of memory does not change the socket's readiness.
void wait_out_shortage() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

}  // namespace

void Connection::send(FrameType type, std::span<const std::byte> payload) {
  append_frame(outgoing_, type, payload);
  flush();
}

void Connection::flush() {
  while (wants_write()) {
    auto count = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (is_shortage(errno)) {
      return wait_out_shortage();
    } else if (errno != EINTR) {
      // What the peer sent before it closed may contain the reason: read that first.
      int error = errno;
      fill();
      end(error);
    }
  }
  outgoing_.clear();
  sent_ = 0;
}

void Connection::fill() {
  // Bounded, so that a peer that sends without pause does not keep the caller from the others.
  constexpr int max_reads = 16;
  std::array<std::byte, 65536> chunk;
  for (int i = 0; i < max_reads && !ended_; ++i) {
    auto count = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (count > 0) {
      parser_.feed(std::span(chunk).first(static_cast<std::size_t>(count)));
    } else if (count == 0) {
      end(0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (is_shortage(errno)) {
      return wait_out_shortage();
    } else if (errno != EINTR) {
      end(errno);
    }
  }
}

void Connection::end(int errno_value) {
  if (ended_) return;
  ended_ = true;
  end_reason_ = errno_value == 0 ? "it closed the connection" : std::generic_category().message(errno_value);
}

Result<Frame> Connection::receive(const Wait& wait) {
  while (true) {
    STRAIT_ASSIGN(auto frame, next());
    if (frame) return std::move(*frame);
    if (ended_) return fail(Code::remote_error, peer_ + " is gone: " + end_reason_);
    if (wait.aborted()) return fail(Code::aborted, "aborted while waiting for " + peer_);
    if (wait.deadline.expired()) return fail(Code::timeout, peer_ + " did not answer by the deadline");
    wait.remind(peer_ +
                " accepted the connection but does not answer. Check that the process that listens there is not " +
                "stopped or out of file descriptors (see its log), and that it is not another program");
    pollfd fd{socket_.get(), poll_events(), 0};
    poll_slice({&fd, 1}, wait.deadline);
    flush();
    fill();
  }
}

Status Connection::flush_all(const Wait& wait) {
  while (wants_write()) {
    if (wait.aborted()) return fail(Code::aborted, "aborted while sending to " + peer_);
    if (wait.deadline.expired()) return fail(Code::timeout, peer_ + " took no data by the deadline");
    pollfd fd{socket_.get(), POLLOUT, 0};
    poll_slice({&fd, 1}, wait.deadline);
    flush();
  }
  if (ended_) return fail(Code::remote_error, peer_ + " is gone: " + end_reason_);
  return {};
}

}  // namespace strait
