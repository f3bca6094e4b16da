#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strait::doctor {

/// Measures every plan of host ranks, over loopback and shm, and keeps beside the calibrated rates how much longer each
/// takes than those predict: from then on selection knows both. `rank_counts` empty: 2, 4, and a rank a core (up to
/// 16). `path` as in calibrate(). The exit code: 0, or 2 if nothing could be saved.
int calibrate_plans(const std::string& path, std::vector<std::uint32_t> rank_counts);

}  // namespace strait::doctor
