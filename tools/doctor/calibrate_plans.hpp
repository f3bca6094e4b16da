#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strait::doctor {

/// Measures every plan of host ranks over loopback and shm, and saves how much longer each takes than the calibrated
/// rates predict. From then on selection uses both. Ratios measured earlier for other sizes and numbers of ranks are
/// kept. If `rank_counts` is empty, it is 2, 4, and the number of cores (at most 16). If `sizes_bytes` is empty, there
/// are six sizes from 1 KB to 32 MB. `path` is as in calibrate(). Returns the exit code: 0, or 2 if measuring or saving
/// failed.
int calibrate_plans(const std::string& path, std::vector<std::uint32_t> rank_counts,
                    std::vector<std::size_t> sizes_bytes);

}  // namespace strait::doctor
