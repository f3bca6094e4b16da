#pragma once

#include <cstddef>
#include <cstdint>

/// The part of UCX's binary interface (libucp.so.0, API 1.x) that is used here. So ucp.h need not be installed where
/// Strait is built, nor the library where it runs. Each structure begins with a mask of the fields that are given, so
/// that later versions, which have more fields, accept these. Tests compare the structures with ucp.h if it is
/// installed.
namespace strait::ucp_abi {

using Config = struct UcpConfig*;        ///< ucp_config_t*
using Context = struct UcpContext*;      ///< ucp_context_h
using WorkerHandle = struct UcpWorker*;  ///< ucp_worker_h
using Address = struct UcpAddress*;      ///< ucp_address_t*
using Endpoint = struct UcpEndpoint*;    ///< ucp_ep_h

/// ucs_status_t, which is one byte wide.
enum class Outcome : std::int8_t { ok = 0, in_progress = 1, busy = -15, last_error = -100 };

inline constexpr unsigned api_major = 1, api_minor = 13;

struct ContextParameters {
  std::uint64_t fields;
  std::uint64_t features;
  std::uint64_t more[8];
};
inline constexpr std::uint64_t context_features = 1;
inline constexpr std::uint64_t feature_tag = 1, feature_wakeup = 0x10;

struct WorkerParameters {
  std::uint64_t fields;
  std::int32_t thread_mode;
  std::int32_t padding;
  std::uint64_t more[23];
};
inline constexpr std::uint64_t worker_thread_mode = 1;
inline constexpr std::int32_t thread_mode_serialized = 1;

struct EndpointParameters {
  std::uint64_t fields;
  const void* address;
  std::int32_t error_mode;
  std::int32_t padding;
  void (*handle_error)(void* argument, Endpoint endpoint, Outcome outcome);
  void* argument;
  std::uint64_t more[8];
};
inline constexpr std::uint64_t endpoint_address = 1, endpoint_error_mode = 2, endpoint_error_handler = 4;
inline constexpr std::int32_t error_mode_peer = 1;

struct RequestParameters {
  std::uint32_t fields;
  std::uint32_t flags;
  void* unused[5];
  std::int32_t memory_type;
  std::int32_t padding;
  std::uint64_t more[2];
};
inline constexpr std::uint32_t request_flags = 0x10, request_memory_type = 0x40;
inline constexpr std::uint32_t close_by_force = 1;
inline constexpr std::int32_t memory_type_host = 0;

/// Whether the value that a function returned on starting an operation is an error. Such a function returns null if the
/// operation is done already, a request if it is in progress, or an error encoded as a pointer.
inline bool is_error(const void* request) {
  return reinterpret_cast<std::uintptr_t>(request) >=
         static_cast<std::uintptr_t>(static_cast<std::intptr_t>(Outcome::last_error));
}
inline Outcome error_of(const void* request) { return static_cast<Outcome>(reinterpret_cast<std::intptr_t>(request)); }

}  // namespace strait::ucp_abi
