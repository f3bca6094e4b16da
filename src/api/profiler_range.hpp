#pragma once

#include <cstdint>
#include <string>

namespace strait {

/// A range on the calling thread's line in a profiler that takes NVTX ranges (Nsight Systems), from here to the end of
/// the scope. Without one attached it costs the look at a pointer, and no text is made. In builds without NVTX's header
/// there is nothing.
class ProfilerRange {
 public:
  /// `text()` is what the profiler shows; `bytes` what it may add up.
  template <class Text>
  ProfilerRange(std::uint64_t bytes, Text&& text) {
    if (is_watched()) begin(text(), bytes);
  }
  ~ProfilerRange() {
    if (is_open_) end();
  }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
#ifdef STRAIT_HAS_NVTX
  static bool is_watched();
  void begin(const std::string& text, std::uint64_t bytes);
  static void end();
#else
  static constexpr bool is_watched() { return false; }
  void begin(const std::string& /*text*/, std::uint64_t /*bytes*/) {}
  static void end() {}
#endif
  bool is_open_ = false;
};

}  // namespace strait
