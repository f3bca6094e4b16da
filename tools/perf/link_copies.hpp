#pragma once

#include <cstddef>

/// By what copies links are measured: large pieces, and so many of them that the first and the last do not matter.
namespace strait::perf::link_copies {

inline constexpr std::size_t piece_bytes = std::size_t{32} << 20;
inline constexpr int pieces = 24;
inline constexpr int longest_ms = 120'000;  // a tenth of a GB/s

}  // namespace strait::perf::link_copies
