#include "topology/verbs.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/shared_library.hpp"
#include "topology/verbs_abi.hpp"

namespace strait {
namespace {

using namespace verbs_abi;

struct Symbols {
  Device* (*list)(int*) = nullptr;
  void (*free_list)(Device*) = nullptr;
  const char* (*name)(Device) = nullptr;
  Context (*open)(Device) = nullptr;
  int (*close)(Context) = nullptr;
  int (*query_device)(Context, DeviceAttributes*) = nullptr;
  int (*query_port)(Context, std::uint8_t, PortAttributes*) = nullptr;
  int (*query_gid)(Context, std::uint8_t, int, std::uint8_t*) = nullptr;
  int (*query_gid_entry)(Context, std::uint32_t, std::uint32_t, GidEntry*, std::uint32_t, std::size_t) = nullptr;
};

struct FreeList {
  void (*free_list)(Device*) = nullptr;
  void operator()(Device* list) const { free_list(list); }
};
struct CloseContext {
  int (*close)(Context) = nullptr;
  void operator()(Context context) const { close(context); }
};
using OpenContext = std::unique_ptr<IbvContext, CloseContext>;

std::string state_text(std::int32_t state) {
  constexpr std::array<const char*, 6> states{"no change", "down",   "initialising",
                                              "armed",     "active", "active, waiting"};
  const auto index = static_cast<std::size_t>(state);
  return index < states.size() ? states[index] : "state " + std::to_string(state);
}

double lane_gigabits(std::uint8_t speed) {
  switch (speed) {
    case 1:
      return 2.5;
    case 2:
      return 5;
    case 4:
    case 8:  // FDR10
      return 10;
    case 16:
      return 14;
    case 32:
      return 25;
    case 64:
      return 50;
    case 128:
      return 100;
    default:
      return 0;
  }
}

std::uint32_t lane_count(std::uint8_t width) {
  switch (width) {
    case 1:
      return 1;
    case 2:
      return 4;
    case 4:
      return 8;
    case 8:
      return 12;
    case 16:
      return 2;
    default:
      return 0;
  }
}

GidType gid_type(std::uint32_t type) {
  return type == type_infiniband ? GidType::infiniband
         : type == type_roce_v1  ? GidType::roce_v1
         : type == type_roce_v2  ? GidType::roce_v2
                                 : GidType::unknown;
}

/// Whether a GID table entry is unused: all zeros, or a prefix without an interface identifier.
bool is_empty(const std::array<std::uint8_t, 16>& gid) {
  return std::all_of(gid.begin() + 8, gid.end(), [](std::uint8_t byte) { return byte == 0; });
}

std::string gid_text(const std::array<std::uint8_t, 16>& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size()) != nullptr ? text.data() : "";
}

class Verbs {
 public:
  explicit Verbs(const std::string& library) : library_(library) {
    if (!library_.is_loaded()) {
      note("libibverbs cannot be loaded, so that RDMA cannot be used and GIDs are unknown: " + library_.problem() +
           ". Install rdma-core (libibverbs1, ibverbs-providers)");
      return;
    }
    bind_all();
    if (!library_.missing().empty()) {
      note(library + " lacks functions that every libibverbs has (" + library_.missing() + "): it is not used");
      return;
    }
    list_devices();
  }

  VerbsSurvey take() { return std::move(survey_); }

 private:
  void note(std::string text) { survey_.notes.push_back(std::move(text)); }

  void bind_all() {
    library_.need(calls_.list, "ibv_get_device_list");
    library_.need(calls_.free_list, "ibv_free_device_list");
    library_.need(calls_.name, "ibv_get_device_name");
    library_.need(calls_.open, "ibv_open_device");
    library_.need(calls_.close, "ibv_close_device");
    library_.need(calls_.query_device, "ibv_query_device");
    library_.need(calls_.query_port, "ibv_query_port");
    library_.need(calls_.query_gid, "ibv_query_gid");
    // Since rdma-core 32; ibv_query_gid does not tell a GID's type.
    library_.find(calls_.query_gid_entry, "_ibv_query_gid_ex");
  }

  void list_devices() {
    int count = 0;
    errno = 0;
    const std::unique_ptr<Device, FreeList> list(calls_.list(&count), {calls_.free_list});
    if (!list) {
      note("libibverbs does not list devices: " + std::string(errno != 0 ? std::strerror(errno) : "no reason given") +
           ". Is the kernel module ib_uverbs loaded, and /dev/infiniband in this container?");
      return;
    }
    survey_.answered = true;
    for (int i = 0; i < count; ++i) {
      const Device device = list.get()[i];
      const char* name = device != nullptr ? calls_.name(device) : nullptr;
      if (name == nullptr) continue;
      SurveyedHca& hca = survey_.hcas.emplace_back();
      hca.name = name;
      describe(device, hca);
    }
  }

  void describe(Device device, SurveyedHca& hca) {
    errno = 0;
    const OpenContext context(calls_.open(device), {calls_.close});
    if (!context) {
      note(hca.name + " cannot be opened: " + std::string(errno != 0 ? std::strerror(errno) : "no reason given") +
           ". Its driver's library (ibverbs-providers) or access to /dev/infiniband is missing; RDMA cannot use it");
      return;
    }
    DeviceAttributes attributes{};
    if (const int status = calls_.query_device(context.get(), &attributes); status != 0) {
      note(hca.name + " does not describe itself: " + std::strerror(status));
      return;
    }
    for (std::uint8_t number = 1; number <= attributes.ports && number != 0; ++number) {
      PortAttributes port{};
      if (const int status = calls_.query_port(context.get(), number, &port); status != 0) {
        note(hca.name + " port " + std::to_string(number) + " does not answer: " + std::strerror(status));
        continue;
      }
      hca.ports.push_back(describe(hca.name, context.get(), number, port));
    }
  }

  SurveyedPort describe(const std::string& hca, Context context, std::uint8_t number, const PortAttributes& port) {
    constexpr double bits_per_byte = 8;
    SurveyedPort found{.number = number,
                       .active = port.state == port_active,
                       .state = state_text(port.state),
                       .link_layer = port.link_layer == layer_ethernet     ? "Ethernet"
                                     : port.link_layer == layer_infiniband ? "InfiniBand"
                                                                           : "",
                       .gbps = lane_gigabits(port.active_speed) * lane_count(port.active_width) / bits_per_byte};
    constexpr std::int32_t most_gids = 1024;
    for (std::int32_t index = 0; index < std::min(port.gids, most_gids); ++index) {
      GidEntry entry{};
      entry.type = UINT32_MAX;
      if (const int status = query_gid(context, number, index, entry); status != 0) {
        if (status == ENODATA) continue;  // an unused entry
        note("the GIDs of " + hca + " port " + std::to_string(number) + " are unknown from number " +
             std::to_string(index) + " on: " + (status > 0 ? std::strerror(status) : "no reason given"));
        return found;
      }
      if (!is_empty(entry.gid))
        found.gids.push_back({static_cast<std::uint32_t>(index), gid_type(entry.type), gid_text(entry.gid)});
    }
    found.has_gids = true;
    return found;
  }

  int query_gid(Context context, std::uint8_t port, std::int32_t index, GidEntry& entry) const {
    if (calls_.query_gid_entry == nullptr) return calls_.query_gid(context, port, index, entry.gid.data());
    return calls_.query_gid_entry(context, port, static_cast<std::uint32_t>(index), &entry, 0, sizeof entry);
  }

  SharedLibrary library_;
  Symbols calls_;
  VerbsSurvey survey_;
};

/// Ranks GIDs by preference. RoCE v2 with an IPv4 address is routed wherever IP is; RoCE v1 stays within one Ethernet
/// segment.
int rank_of(const SurveyedGid& gid) {
  if (gid.type != GidType::roce_v2) return 0;
  return gid.text.starts_with("::ffff:") ? 2 : 1;
}

}  // namespace

const SurveyedGid* SurveyedPort::best_gid() const {
  const auto best = std::max_element(
      gids.begin(), gids.end(), [](const SurveyedGid& a, const SurveyedGid& b) { return rank_of(a) < rank_of(b); });
  return best == gids.end() ? nullptr : &*best;
}

const SurveyedHca* VerbsSurvey::find(const std::string& name) const {
  const auto found = std::find_if(hcas.begin(), hcas.end(), [&](const SurveyedHca& hca) { return hca.name == name; });
  return found == hcas.end() ? nullptr : &*found;
}

VerbsSurvey survey_verbs(const std::string& library) { return Verbs(library).take(); }

}  // namespace strait
