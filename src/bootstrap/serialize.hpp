#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"

namespace strait {

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> as_byte_span(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// Appends values in the little-endian form in which they travel.
class Serializer {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void number(T value) {
    auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
  }
  void raw(std::span<const std::byte> data) { bytes_.insert(bytes_.end(), data.begin(), data.end()); }
  void text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    raw(as_byte_span(text));
  }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads what a Serializer wrote, from bytes that a stranger may have sent. Past the end it yields zeros and remembers:
/// a decoder reads everything and then asks finish() once.
class Deserializer {
 public:
  explicit Deserializer(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_integral_v<T> T number() {
    auto part = raw(sizeof(T));
    std::make_unsigned_t<T> bits = 0;
    for (std::size_t i = 0; i < part.size(); ++i)
      bits = static_cast<std::make_unsigned_t<T>>(
          bits | (std::make_unsigned_t<T>(std::to_integer<std::uint8_t>(part[i])) << (8 * i)));
    return static_cast<T>(bits);
  }
  std::span<const std::byte> raw(std::size_t count) {
    if (count > bytes_.size()) {
      reject();
      return {};
    }
    auto part = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return part;
  }
  std::span<const std::byte> rest() { return raw(bytes_.size()); }
  template <std::size_t n>
  void fill(std::array<std::byte, n>& out) {
    auto part = raw(n);
    if (!part.empty()) std::memcpy(out.data(), part.data(), n);
  }
  std::string text(std::size_t max_bytes) {
    auto size = number<std::uint32_t>();
    if (size > max_bytes) {
      reject();
      return {};
    }
    auto part = raw(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  /// Makes the rest fail: a field has a value that it must not have.
  void reject() {
    failed_ = true;
    bytes_ = {};
  }
  bool failed() const { return failed_; }
  /// An error unless all bytes were read, and no more.
  Status finish(std::string_view what) const {
    if (failed_)
      return fail(Code::remote_error,
                  "a malformed " + std::string(what) + " frame: too short, or a field out of range");
    if (!bytes_.empty())
      return fail(Code::remote_error, "a malformed " + std::string(what) + " frame: bytes left over");
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace strait
