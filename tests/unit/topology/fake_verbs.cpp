// A fake libibverbs with one card, mlx5_0, that has two ports. Builds:
//   FAKE_INFINIBAND: port 1 has four lanes of 100 Gb/s, port 2 is down.
//   FAKE_ROCE: both ports are Ethernet with two lanes of 100 Gb/s; GIDs for IPv6 and for IPv4, each as RoCE v1 and v2.
//   FAKE_ROCE_V1: the same in an old library that does not tell the types of GIDs.   FAKE_NO_GID: no GID is in use.
//   FAKE_SPARSE: lacks some functions.           FAKE_ABSENT: there is no list.   FAKE_EMPTY: the list is empty.
//   FAKE_CLOSED: the card cannot be opened.      FAKE_BROKEN: ports do not answer.
//   FAKE_NO_TABLE: GIDs cannot be read.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "topology/verbs_abi.hpp"

namespace {
using namespace strait::verbs_abi;
[[maybe_unused]] int card;
#if defined(FAKE_ROCE) || defined(FAKE_ROCE_V1) || defined(FAKE_NO_GID)
constexpr bool ethernet = true;
#else
constexpr bool ethernet = false;
#endif

/// GIDs in use: for Ethernet, 0 and 1 are link-local, and 2 and 3 are for 10.0.0.1; for InfiniBand there is only 0.
[[maybe_unused]] bool fill(unsigned index, std::uint8_t* gid) {
  std::memset(gid, 0, 16);
#ifdef FAKE_NO_GID
  gid[0] = 0xfe;  // a prefix without an interface
  return index == 0;
#else
  if (index >= (ethernet ? 4U : 1U)) return false;
  if (index < 2) gid[0] = 0xfe, gid[1] = 0x80, gid[8] = 2, gid[15] = 7;
  if (index >= 2) gid[10] = gid[11] = 0xff, gid[12] = 10, gid[15] = 1;
  return true;
#endif
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Device* ibv_get_device_list([[maybe_unused]] int* count) {
#ifdef FAKE_ABSENT
  errno = ENOSYS;
  return nullptr;
#else
  auto* list = static_cast<Device*>(std::calloc(2, sizeof(Device)));
#ifdef FAKE_EMPTY
  *count = 0;
#else
  list[0] = reinterpret_cast<Device>(&card);
  *count = 1;
#endif
  return list;
#endif
}
EXPORT void ibv_free_device_list(Device* list) { std::free(list); }
EXPORT const char* ibv_get_device_name(Device) { return "mlx5_0"; }
EXPORT Context ibv_open_device([[maybe_unused]] Device device) {
#ifdef FAKE_CLOSED
  errno = EACCES;
  return nullptr;
#else
  return reinterpret_cast<Context>(device);
#endif
}
EXPORT int ibv_close_device(Context) { return 0; }
EXPORT int ibv_query_device(Context, DeviceAttributes* attributes) { return attributes->ports = 2, 0; }

#ifndef FAKE_SPARSE
EXPORT int ibv_query_port(Context, [[maybe_unused]] std::uint8_t number, [[maybe_unused]] PortAttributes* port) {
#ifdef FAKE_BROKEN
  return ENODEV;
#else
  *port = {};
  constexpr std::int32_t down = 1;
  port->state = ethernet || number == 1 ? port_active : down;
  port->gids = 8;
  port->active_width = ethernet ? 16 : 2;  // two lanes, four lanes
  port->active_speed = 128;                // 100 Gb/s
  port->link_layer = ethernet ? layer_ethernet : layer_infiniband;
  return 0;
#endif
}
EXPORT int ibv_query_gid(Context, std::uint8_t, [[maybe_unused]] int index, [[maybe_unused]] std::uint8_t* gid) {
#ifdef FAKE_NO_TABLE
  return -1;
#else
  fill(static_cast<unsigned>(index), gid);
  return 0;
#endif
}
#if !defined(FAKE_ROCE_V1) && !defined(FAKE_NO_TABLE)
EXPORT int _ibv_query_gid_ex(Context, std::uint32_t port, std::uint32_t index, GidEntry* entry, std::uint32_t,
                             std::size_t) {
  if (!fill(index, entry->gid.data())) return ENODATA;
  entry->index = index;
  entry->port = port;
  entry->type = !ethernet ? type_infiniband : index % 2 == 0 ? type_roce_v1 : type_roce_v2;
  return 0;
}
#endif
#endif
