#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/bootstrap.hpp"

namespace strait::testing {

using Variables = std::map<std::string, std::string>;

/// An environment that holds only these variables, on loopback unless they say otherwise.
inline Environment environment_of(Variables variables) {
  variables.emplace("STRAIT_SOCKET_IFNAME", "lo");
  auto shared = std::make_shared<const Variables>(std::move(variables));
  return Environment([shared](const char* name) -> const char* {
    auto it = shared->find(name);
    return it == shared->end() ? nullptr : it->second.c_str();
  });
}

inline Wait within_ms(std::int64_t duration_ms) { return {Deadline::after_ms(duration_ms), nullptr}; }

/// A numeric address with any free port.
inline SocketAddress address_of(const char* host) { return *resolve(host, 0, Deadline::never()); }

inline UniqueId make_id(RootOptions options = {}) {
  auto id = create_unique_id(environment_of({}), std::move(options));
  EXPECT_TRUE(id) << id.error().message;
  return id.value_or(UniqueId{});
}

inline JoinOptions options_of(int rank, int ranks, std::int64_t timeout_ms = 20'000, Variables variables = {}) {
  return {rank, ranks, {}, within_ms(timeout_ms), environment_of(std::move(variables))};
}

/// Runs body(rank) on a thread for each rank.
template <class Body>
void on_ranks(int ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

using Joined = Result<std::unique_ptr<Channel>>;

/// Joins with each of the options, on a thread each.
inline std::vector<Joined> join_all(const UniqueId& id, const std::vector<JoinOptions>& options) {
  std::vector<Joined> results(options.size());
  on_ranks(static_cast<int>(options.size()),
           [&](int i) { results[static_cast<std::size_t>(i)] = join(id, options[static_cast<std::size_t>(i)]); });
  return results;
}

/// Joins `ranks` ranks and runs body(channel) on each.
template <class Body>
void with_channels(int ranks, const Body& body) {
  UniqueId id = make_id();
  on_ranks(ranks, [&](int rank) {
    auto channel = join(id, options_of(rank, ranks));
    ASSERT_TRUE(channel) << channel.error().message;
    body(**channel);
  });
}

inline Bytes bytes_of(std::string_view text) {
  auto span = as_byte_span(text);
  return Bytes(span.begin(), span.end());
}

inline std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

MATCHER_P2(FailsWith, code, message, "fails with code " + std::to_string(static_cast<int>(code))) {
  if (arg) {
    *result_listener << "which succeeded";
    return false;
  }
  *result_listener << "whose error is " << static_cast<int>(arg.error().code) << ": " << arg.error().message;
  return arg.error().code == code && ::testing::Matches(message)(arg.error().message);
}

}  // namespace strait::testing
