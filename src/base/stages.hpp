#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace strait {

/// Records how long consecutive stages took, as text for the log: "transport 3.1 ms, device 40.2 ms".
class Stages {
 public:
  /// Ends a stage that began with the end of the previous one, or with this object.
  void done(const char* stage) {
    const auto now = Clock::now();
    char text[96];
    std::snprintf(text, sizeof text, "%s%s %.1f ms", text_.empty() ? "" : ", ", stage,
                  std::chrono::duration<double, std::milli>(now - last_).count());
    text_ += text;
    last_ = now;
  }
  const std::string& text() const { return text_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  std::string text_;
};

}  // namespace strait
