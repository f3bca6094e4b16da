#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait {

enum class GidType : std::uint8_t { infiniband, roce_v1, roce_v2, unknown };

struct SurveyedGid {
  std::uint32_t index = 0;
  GidType type = GidType::unknown;
  std::string text{};  ///< in the notation of IPv6 addresses
};

struct SurveyedPort {
  std::uint32_t number = 1;
  bool active = false;
  std::string state{};       ///< "active", "down", "initialising"
  std::string link_layer{};  ///< "InfiniBand", "Ethernet"
  double gbps = 0;           ///< 0: libibverbs does not tell
  bool has_gids = false;     ///< whether `gids` could be read
  std::vector<SurveyedGid> gids{};

  bool is_ethernet() const { return link_layer == "Ethernet"; }
  /// Returns the GID that RDMA should use: RoCE v2 with an IPv4 address, else RoCE v2, else the first; null if there is
  /// none.
  const SurveyedGid* best_gid() const;
};

struct SurveyedHca {
  std::string name{};  ///< "mlx5_0", as in sysfs
  std::vector<SurveyedPort> ports{};
};

/// What libibverbs tells, as far as it answers.
struct VerbsSurvey {
  bool answered = false;  ///< the library was loaded and gave a list of devices
  std::vector<SurveyedHca> hcas{};
  std::vector<std::string> notes{};  ///< what libibverbs did not answer, and why

  const SurveyedHca* find(const std::string& name) const;
};

/// Asks libibverbs. `library` is loaded for the duration of the call.
VerbsSurvey survey_verbs(const std::string& library);

}  // namespace strait
