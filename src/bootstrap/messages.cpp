#include "bootstrap/messages.hpp"

namespace strait {
namespace {

constexpr std::size_t max_name_bytes = 256;
constexpr std::size_t max_value_bytes = 4096;
constexpr std::size_t max_settings = 256;
constexpr std::size_t max_error_bytes = 65536;

}  // namespace

Bytes encode(const JoinMessage& message) {
  WireWriter out;
  out.number(message.rank);
  out.number(message.ranks);
  out.number(message.remaining_ms);
  out.text(message.host_name);
  out.number(message.pid);
  write_address(out, message.listener);
  out.number(static_cast<std::uint32_t>(message.settings.size()));
  for (const Setting& setting : message.settings) {
    out.text(setting.name);
    out.text(setting.value);
  }
  return out.take();
}

Result<JoinMessage> decode_join(std::span<const std::byte> payload) {
  WireReader in(payload);
  JoinMessage message;
  message.rank = in.number<std::int32_t>();
  message.ranks = in.number<std::int32_t>();
  message.remaining_ms = in.number<std::int64_t>();
  message.host_name = in.text(max_name_bytes);
  message.pid = in.number<std::int64_t>();
  message.listener = read_address(in);
  auto count = in.number<std::uint32_t>();
  if (count > max_settings) in.reject();
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    std::string name = in.text(max_name_bytes);
    message.settings.push_back({std::move(name), in.text(max_value_bytes)});
  }
  STRAIT_TRY(in.finish("join"));
  return message;
}

Bytes encode(const WelcomeMessage& message) {
  WireWriter out;
  out.raw(message.session);
  write_address(out, message.parent);
  return out.take();
}

Result<WelcomeMessage> decode_welcome(std::span<const std::byte> payload) {
  WireReader in(payload);
  WelcomeMessage message;
  in.fill(message.session);
  message.parent = read_address(in);
  STRAIT_TRY(in.finish("welcome"));
  return message;
}

Bytes encode(const LinkMessage& message) {
  WireWriter out;
  out.raw(message.session);
  out.number(message.rank);
  return out.take();
}

Result<LinkMessage> decode_link(std::span<const std::byte> payload) {
  WireReader in(payload);
  LinkMessage message;
  in.fill(message.session);
  message.rank = in.number<std::int32_t>();
  STRAIT_TRY(in.finish("link"));
  return message;
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

Bytes encode(const PeerInfo& info) {
  WireWriter out;
  out.number(info.rank);
  out.text(info.host_name);
  out.text(info.host_id);
  out.number(info.pid);
  out.raw(info.process_token);
  out.number(info.network_namespace);
  out.number(info.uid);
  return out.take();
}

Result<PeerInfo> decode_peer_info(std::span<const std::byte> payload) {
  WireReader in(payload);
  PeerInfo info;
  info.rank = in.number<std::int32_t>();
  info.host_name = in.text(max_name_bytes);
  info.host_id = in.text(max_name_bytes);
  info.pid = in.number<std::int64_t>();
  in.fill(info.process_token);
  info.network_namespace = in.number<std::uint64_t>();
  info.uid = in.number<std::uint32_t>();
  STRAIT_TRY(in.finish("peer information"));
  return info;
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
