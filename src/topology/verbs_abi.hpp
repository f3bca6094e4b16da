#pragma once

#include <array>
#include <cstdint>

/// The part of libibverbs' binary interface that Strait uses, stable since version 1.1. So verbs.h need not be
/// installed where Strait is built, nor the library where it runs. The tests compare this with verbs.h if that is
/// installed.
namespace strait::verbs_abi {

using Device = struct IbvDevice*;    ///< struct ibv_device*
using Context = struct IbvContext*;  ///< struct ibv_context*

struct DeviceAttributes {
  char firmware[64];
  std::uint64_t guids_and_sizes[4];
  std::uint32_t vendor_part_revision[3];
  std::int32_t limits[29];
  std::uint16_t max_pkeys;
  std::uint8_t local_ca_ack_delay;
  std::uint8_t ports;
};

/// Larger than the struct that Strait knows, because later versions of the library may write more fields.
struct PortAttributes {
  std::int32_t state;
  std::int32_t max_mtu;
  std::int32_t active_mtu;
  std::int32_t gids;
  std::uint32_t flags_and_counters[4];
  std::uint16_t pkeys_and_lids[3];
  std::uint8_t subnet[5];
  std::uint8_t active_width;
  std::uint8_t active_speed;
  std::uint8_t physical_state;
  std::uint8_t link_layer;
  std::uint8_t more[128];
};

struct GidEntry {
  std::array<std::uint8_t, 16> gid;
  std::uint32_t index;
  std::uint32_t port;
  std::uint32_t type;
  std::uint32_t net_device;
};

inline constexpr std::int32_t port_active = 4;
inline constexpr std::uint8_t layer_infiniband = 1, layer_ethernet = 2;
inline constexpr std::uint32_t type_infiniband = 0, type_roce_v1 = 1, type_roce_v2 = 2;

}  // namespace strait::verbs_abi
