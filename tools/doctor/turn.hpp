#pragma once

#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace strait::doctor {

/// The right to measure for a calibration file: held by one process at a time, because others would disturb it. It is a
/// lock on the file "<calibration file>.measuring", which is removed at the end.
class Turn {
 public:
  /// `lock`: the open and locked file `name`.
  Turn(std::string name, UniqueFd lock) : name_(std::move(name)), lock_(std::move(lock)) {}
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) = delete;
  ~Turn();

 private:
  std::string name_;
  UniqueFd lock_;
};

/// Waits, for at most 10 minutes, until no other process measures for the calibration file `path`.
Result<Turn> take_turn(const std::string& path);

}  // namespace strait::doctor
