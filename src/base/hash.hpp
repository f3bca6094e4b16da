#pragma once

#include <cstdint>
#include <string_view>

namespace strait {

/// Mixes 64 bits so that every output bit depends on every input bit: the output function of SplitMix64 (Steele, Lea
/// and Flood, Fast splittable pseudorandom number generators, 2014). To hash several numbers: mix(mix(first) ^ second),
/// ...
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// Hashes text: FNV-1a.
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace strait
