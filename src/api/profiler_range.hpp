#pragma once

#include <cstdint>
#include <string>

namespace strait {

/// A range on the calling thread's timeline in profilers that support NVTX (Nsight Systems), from construction to the
/// end of the scope. Without an attached profiler it costs a check of a pointer, and the text is not built. In builds
/// without NVTX's header it does nothing.
class ProfilerRange {
 public:
  /// `text()` returns the label of the range; `bytes` is its payload, which a profiler may sum up.
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
