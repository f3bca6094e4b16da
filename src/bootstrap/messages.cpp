#include "bootstrap/messages.hpp"

namespace strait {
namespace {

constexpr std::size_t max_name_bytes = 256;
constexpr std::size_t max_value_bytes = 4096;
constexpr std::size_t max_settings = 256;
constexpr std::size_t max_error_bytes = 65536;

/// Encoder and Decoder have the same functions, so that one list of a message's fields (pass()), in the order in which
/// they are sent, serves both directions.
class Encoder {
 public:
  template <class T>
  void number(const T& value) {
    out_.number(value);
  }
  void text(const std::string& value, std::size_t /*max_bytes*/) { out_.text(value); }
  template <std::size_t n>
  void bytes(const std::array<std::byte, n>& value) {
    out_.raw(value);
  }
  void address(const SocketAddress& value) { write_address(out_, value); }
  void settings(const std::vector<Setting>& values) {
    out_.number(static_cast<std::uint32_t>(values.size()));
    for (const Setting& setting : values) {
      out_.text(setting.name);
      out_.text(setting.value);
    }
  }
  Bytes take() { return out_.take(); }

 private:
  WireWriter out_;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> payload) : in_(payload) {}

  template <class T>
  void number(T& value) {
    value = in_.number<T>();
  }
  void text(std::string& value, std::size_t max_bytes) { value = in_.text(max_bytes); }
  template <std::size_t n>
  void bytes(std::array<std::byte, n>& value) {
    in_.fill(value);
  }
  void address(SocketAddress& value) { value = read_address(in_); }
  void settings(std::vector<Setting>& values) {
    const auto count = in_.number<std::uint32_t>();
    if (count > max_settings) in_.reject();
    for (std::uint32_t i = 0; i < count && !in_.failed(); ++i) {
      std::string name = in_.text(max_name_bytes);
      values.push_back({std::move(name), in_.text(max_value_bytes)});
    }
  }
  Status finish(std::string_view what) const { return in_.finish(what); }

 private:
  WireReader in_;
};

template <class Wire>
void pass(Wire& wire, JoinMessage& message) {
  wire.number(message.rank);
  wire.number(message.ranks);
  wire.number(message.remaining_ms);
  wire.text(message.host_name, max_name_bytes);
  wire.number(message.pid);
  wire.address(message.listener);
  wire.settings(message.settings);
}

template <class Wire>
void pass(Wire& wire, WelcomeMessage& message) {
  wire.bytes(message.session);
  wire.address(message.parent);
}

template <class Wire>
void pass(Wire& wire, LinkMessage& message) {
  wire.bytes(message.session);
  wire.number(message.rank);
}

template <class Wire>
void pass(Wire& wire, PeerInfo& info) {
  wire.number(info.rank);
  wire.text(info.host_name, max_name_bytes);
  wire.text(info.host_id, max_name_bytes);
  wire.number(info.pid);
  wire.bytes(info.process_token);
  wire.number(info.network_namespace);
  wire.number(info.uid);
  wire.address(info.meeting);
}

template <class Message>
Bytes encode_fields(Message message) {
  Encoder wire;
  pass(wire, message);
  return wire.take();
}

template <class Message>
Result<Message> decode_fields(std::span<const std::byte> payload, std::string_view what) {
  Decoder wire(payload);
  Message message;
  pass(wire, message);
  STRAIT_TRY(wire.finish(what));
  return message;
}

}  // namespace

Bytes encode(const JoinMessage& message) { return encode_fields(message); }
Result<JoinMessage> decode_join(std::span<const std::byte> payload) {
  auto message = decode_fields<JoinMessage>(payload, "join");
  if (message && message->remaining_ms < 0) return fail(Code::remote_error, "a join message with a negative time");
  return message;
}

Bytes encode(const WelcomeMessage& message) { return encode_fields(message); }
Result<WelcomeMessage> decode_welcome(std::span<const std::byte> payload) {
  return decode_fields<WelcomeMessage>(payload, "welcome");
}

Bytes encode(const LinkMessage& message) { return encode_fields(message); }
Result<LinkMessage> decode_link(std::span<const std::byte> payload) {
  return decode_fields<LinkMessage>(payload, "link");
}

Bytes encode(const PeerInfo& info) { return encode_fields(info); }
Result<PeerInfo> decode_peer_info(std::span<const std::byte> payload) {
  return decode_fields<PeerInfo>(payload, "peer information");
}

Bytes encode(const Error& error) {
  WireWriter out;
  out.number(static_cast<std::int32_t>(error.code));
  out.text(std::string_view(error.message).substr(0, max_error_bytes));
  return out.take();
}

Result<Error> decode_error(std::span<const std::byte> payload) {
  WireReader in(payload);
  auto code = in.number<std::int32_t>();
  std::string message = in.text(max_error_bytes);
  if (code <= static_cast<int>(Code::success) || code > static_cast<int>(Code::in_progress)) in.reject();
  STRAIT_TRY(in.finish("error"));
  return Error{static_cast<Code>(code), std::move(message)};
}

void write_head(WireWriter& out, const OperationHead& head) {
  out.number(head.operation);
  out.number(head.sequence);
  out.number(head.origin);
}

OperationHead read_head(WireReader& in) {
  OperationHead head;
  head.operation = in.number<std::uint8_t>();
  head.sequence = in.number<std::uint64_t>();
  head.origin = in.number<std::int32_t>();
  return head;
}

}  // namespace strait
