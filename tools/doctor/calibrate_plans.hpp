#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strait::doctor {

/// Measures every plan of host ranks, over loopback and shm, and keeps beside the calibrated rates how much longer each
/// takes than those predict: from then on selection knows both. What is known of other sizes and numbers of ranks
/// stays. `rank_counts` empty: 2, 4, and a rank a core (up to 16). `sizes_bytes` empty: six from 1 KB to 32 MB. `path`
/// as in calibrate(). The exit code: 0, or 2 if nothing could be saved.
int calibrate_plans(const std::string& path, std::vector<std::uint32_t> rank_counts,
                    std::vector<std::size_t> sizes_bytes);

}  // namespace strait::doctor
