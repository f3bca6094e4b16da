#pragma once

#include <cstddef>
#include <new>
#include <string>

namespace strait {

/// Returns a text of the calling thread, a separate one for each Tag. It stays usable until the process ends:
/// destructors of a program's static objects may call the library, and they run after those of thread_local objects.
template <class Tag>
std::string& thread_text() {
  alignas(std::string) thread_local std::byte place[sizeof(std::string)];
  struct Owner {
    std::string* const text = new (place) std::string;
    /// Leaves an empty string, which holds no memory outside of `place`.
    ~Owner() { std::string().swap(*text); }
  };
  thread_local const Owner owner;
  return *std::launder(reinterpret_cast<std::string*>(place));
}

}  // namespace strait
