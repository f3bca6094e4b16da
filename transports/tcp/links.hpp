#pragma once

#include "transport/link.hpp"
#include "transports/tcp/engine.hpp"

/// The ends of links and signals over an engine. Each call takes the engine's lock; if it finds nothing to take, it
/// first lets the engine read what has arrived.
namespace strait::tcp {

class TcpSendLink final : public SendLink {
 public:
  TcpSendLink(Engine& engine, Outgoing& link) : engine_(engine), link_(link) {}
  std::byte* try_reserve() noexcept override;
  std::vector<std::size_t> holders() const override;
  void publish(const CallSignature& signature, std::size_t used_bytes) noexcept override;
  /// The socket takes most messages at once, so filling a slot first would be an unnecessary copy.
  bool sends_from_anywhere() const override { return true; }
  void publish_from(const CallSignature& signature, std::span<const std::byte> bytes) noexcept override;

 private:
  bool is_held_by(std::size_t reader) const { return link_.next - link_.released[reader] >= engine_.geometry().depth; }
  bool is_held() const;

  Engine& engine_;
  Outgoing& link_;
};

class TcpReceiveLink final : public ReceiveLink {
 public:
  TcpReceiveLink(Engine& engine, Incoming& link) : engine_(engine), link_(link) {}
  const std::byte* try_acquire(CallSignature& signature) noexcept override {
    return try_acquire_into({}, {}, signature);
  }
  bool receives_anywhere() const override { return true; }
  const std::byte* try_acquire_into(std::span<std::byte> place, const CallSignature& expected,
                                    CallSignature& signature) noexcept override;
  void release() noexcept override;

 private:
  Engine& engine_;
  Incoming& link_;
};

class TcpSignalSender final : public SignalSender {
 public:
  TcpSignalSender(Engine& engine, std::uint64_t stream, std::uint32_t to) : engine_(engine), stream_(stream), to_(to) {}
  void add() noexcept override;

 private:
  Engine& engine_;
  std::uint64_t stream_;
  std::uint32_t to_;
};

class TcpSignalWaiter final : public SignalWaiter {
 public:
  TcpSignalWaiter(Engine& engine, const std::uint64_t& arrived, std::uint32_t from)
      : engine_(engine), arrived_(arrived), from_(from) {}
  bool try_take() noexcept override;

 private:
  Engine& engine_;
  const std::uint64_t& arrived_;
  std::uint32_t from_;
  std::uint64_t taken_ = 0;
};

}  // namespace strait::tcp
