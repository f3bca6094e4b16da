#include "bootstrap/handshake.hpp"

#include <sodium.h>

namespace strait {
namespace {

using Proof = std::array<std::byte, crypto_auth_hmacsha256_BYTES>;
static_assert(crypto_auth_hmacsha256_KEYBYTES == std::tuple_size_v<Key>);

const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

/// The roles are part of the text, so that neither side can answer by echoing the other's proof.
constexpr std::string_view client_role = "strait client";
constexpr std::string_view server_role = "strait server";

Bytes transcript(std::string_view role, Purpose purpose, const Nonce& client, const Nonce& server) {
  Serializer out;
  out.text(role);
  out.number(static_cast<std::uint8_t>(purpose));
  out.raw(client);
  out.raw(server);
  return out.take();
}

Proof prove(const Key& key, const Bytes& text) {
  Proof proof;
  crypto_auth_hmacsha256(raw(proof.data()), raw(text.data()), text.size(), raw(key.data()));
  return proof;
}

bool holds(const Proof& proof, const Key& key, const Bytes& text) {
  return crypto_auth_hmacsha256_verify(raw(proof.data()), raw(text.data()), text.size(), raw(key.data())) == 0;
}

}  // namespace

Status start_crypto() {
  if (sodium_init() < 0)
    return fail(Code::system_error, "libsodium cannot start: this host has no source of random numbers (/dev/urandom)");
  return {};
}

Key random_key() {
  Key key;
  random_bytes(key);
  return key;
}

void random_bytes(std::span<std::byte> out) { randombytes_buf(out.data(), out.size()); }

Key derive_key(std::span<const std::byte> secret, std::string_view context) {
  Key key;
  crypto_generichash(raw(key.data()), key.size(), reinterpret_cast<const unsigned char*>(context.data()),
                     context.size(), secret.empty() ? nullptr : raw(secret.data()), secret.size());
  return key;
}

ClientHandshake::ClientHandshake(const Key& key, Purpose purpose, std::string server)
    : key_(key), purpose_(purpose), server_(std::move(server)) {
  random_bytes(nonce_);
}

Bytes ClientHandshake::hello() const {
  Serializer out;
  out.number(protocol_version);
  out.number(static_cast<std::uint8_t>(purpose_));
  out.raw(nonce_);
  return out.take();
}

Result<Bytes> ClientHandshake::answer(const Frame& challenge) const {
  if (challenge.type != FrameType::challenge)
    return fail(Code::remote_error, server_ + " does not follow Strait's protocol");
  Deserializer in(challenge.payload);
  auto version = in.number<std::uint16_t>();
  if (!in.failed() && version != protocol_version)
    return fail(Code::mismatch, server_ + " speaks version " + std::to_string(version) +
                                    " of the start-up protocol and this rank version " +
                                    std::to_string(protocol_version) + ": use one version of Strait on all ranks");
  Nonce server_nonce{};
  Proof proof{};
  in.fill(server_nonce);
  in.fill(proof);
  STRAIT_TRY(in.finish("challenge"));
  if (!holds(proof, key_, transcript(server_role, purpose_, nonce_, server_nonce)))
    return fail(Code::mismatch, "the key of the unique id was rejected by " + server_ +
                                    ": it has another key. The id belongs to another "
                                    "job, or STRAIT_KEY differs between ranks");
  Proof mine = prove(key_, transcript(client_role, purpose_, nonce_, server_nonce));
  return Bytes(mine.begin(), mine.end());
}

ServerHandshake::ServerHandshake(const Key& key, Purpose purpose) : key_(key), purpose_(purpose) {
  random_bytes(nonce_);
}

Result<Bytes> ServerHandshake::take_hello(const Frame& frame) {
  if (frame.type != FrameType::hello) return fail(Code::remote_error, "a frame other than a hello");
  Deserializer in(frame.payload);
  auto version = in.number<std::uint16_t>();
  auto purpose = in.number<std::uint8_t>();
  in.fill(client_nonce_);
  // A hello of another version may have other fields. It is answered all the same, so that the client reports the
  // difference.
  if (in.failed() || version == protocol_version) STRAIT_TRY(in.finish("hello"));
  if (purpose != static_cast<std::uint8_t>(purpose_)) return fail(Code::remote_error, "a hello for another purpose");
  Proof proof = prove(key_, transcript(server_role, purpose_, client_nonce_, nonce_));
  Serializer out;
  out.number(protocol_version);
  out.raw(nonce_);
  out.raw(proof);
  client_version_ = version;
  state_ = State::expects_proof;
  return out.take();
}

Result<Bytes> ServerHandshake::take(const Frame& frame) {
  if (state_ == State::expects_hello) return take_hello(frame);
  if (state_ != State::expects_proof || frame.type != FrameType::proof)
    return fail(Code::remote_error, "a frame other than a proof");
  Deserializer in(frame.payload);
  Proof proof{};
  in.fill(proof);
  STRAIT_TRY(in.finish("proof"));
  if (!holds(proof, key_, transcript(client_role, purpose_, client_nonce_, nonce_)))
    return fail(Code::mismatch, "a proof made with another key");
  state_ = State::proven;
  return Bytes{};
}

}  // namespace strait
