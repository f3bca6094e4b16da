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
  Serializer out_;
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
  Deserializer in_;
};

template <class Coder>
void pass(Coder& coder, JoinMessage& message) {
  coder.number(message.rank);
  coder.number(message.ranks);
  coder.number(message.remaining_ms);
  coder.text(message.host_name, max_name_bytes);
  coder.number(message.pid);
  coder.address(message.listener);
  coder.settings(message.settings);
  coder.number(message.known_as);
}

template <class Coder>
void pass(Coder& coder, WelcomeMessage& message) {
  coder.bytes(message.session);
  coder.address(message.parent);
}

template <class Coder>
void pass(Coder& coder, LinkMessage& message) {
  coder.bytes(message.session);
  coder.number(message.rank);
}

template <class Coder>
void pass(Coder& coder, PeerInfo& info) {
  coder.number(info.rank);
  coder.text(info.host_name, max_name_bytes);
  coder.text(info.host_id, max_name_bytes);
  coder.number(info.pid);
  coder.bytes(info.process_token);
  coder.number(info.network_namespace);
  coder.number(info.uid);
  coder.address(info.rejoin_address);
}

template <class Message>
Bytes encode_fields(Message message) {
  Encoder coder;
  pass(coder, message);
  return coder.take();
}

template <class Message>
Result<Message> decode_fields(std::span<const std::byte> payload, std::string_view what) {
  Decoder coder(payload);
  Message message;
  pass(coder, message);
  STRAIT_TRY(coder.finish(what));
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
  Serializer out;
  out.number(static_cast<std::int32_t>(error.code));
  out.text(std::string_view(error.message).substr(0, max_error_bytes));
  return out.take();
}

Result<Error> decode_error(std::span<const std::byte> payload) {
  Deserializer in(payload);
  auto code = in.number<std::int32_t>();
  std::string message = in.text(max_error_bytes);
  if (code <= static_cast<int>(Code::success) || code > static_cast<int>(Code::in_progress)) in.reject();
  STRAIT_TRY(in.finish("error"));
  return Error{static_cast<Code>(code), std::move(message)};
}

void write_head(Serializer& out, const OperationHead& head) {
  out.number(head.operation);
  out.number(head.sequence);
  out.number(head.origin);
}

OperationHead read_head(Deserializer& in) {
  OperationHead head;
  head.operation = in.number<std::uint8_t>();
  head.sequence = in.number<std::uint64_t>();
  head.origin = in.number<std::int32_t>();
  return head;
}

}  // namespace strait
