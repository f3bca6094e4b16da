#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace strait::doctor {

/// Sets an environment variable for the communicators that are created during its lifetime, and restores the previous
/// value. Not thread-safe: no other thread may run when it is constructed or destroyed, because it changes the
/// environment.
class ForNow {
 public:
  ForNow(const char* name, const std::string& value) : name_(name) {
    if (const char* set = std::getenv(name)) before_ = set;
    setenv(name, value.c_str(), 1);
  }
  ~ForNow() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  ForNow(const ForNow&) = delete;
  ForNow& operator=(const ForNow&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace strait::doctor
