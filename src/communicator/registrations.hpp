#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace strait {

/// The memory that a rank has registered with its communicator. The program refers to it by a handle, which only this
/// rank knows: handles are also used up by registrations that this rank refuses. Ranks refer to it by the number of the
/// collective that registered it.
class Registrations {
 public:
  std::uint64_t next_handle() { return ++handles_; }
  /// To be called once per collective registration, so that numbers are equal on all ranks.
  std::uint64_t next_number() { return ++numbers_; }

  void add(std::uint64_t handle, std::uint64_t number, const void* pointer, std::size_t bytes) {
    by_handle_[handle] = {reinterpret_cast<std::uintptr_t>(pointer), bytes, number};
  }
  void remove(std::uint64_t handle) { by_handle_.erase(handle); }
  /// Returns nothing if there is no such handle.
  std::optional<std::uint64_t> number_of(std::uint64_t handle) const {
    const auto found = by_handle_.find(handle);
    return found == by_handle_.end() ? std::nullopt : std::optional(found->second.number);
  }
  bool is_empty() const { return by_handle_.empty(); }
  bool contain(const void* pointer, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    return std::any_of(by_handle_.begin(), by_handle_.end(), [&](const auto& entry) {
      const Memory& memory = entry.second;
      return begin >= memory.begin && begin + bytes <= memory.begin + memory.bytes;
    });
  }

 private:
  struct Memory {
    std::uintptr_t begin;
    std::size_t bytes;
    std::uint64_t number;
  };
  std::map<std::uint64_t, Memory> by_handle_;
  std::uint64_t handles_ = 0, numbers_ = 0;
};

}  // namespace strait
