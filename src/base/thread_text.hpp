#pragma once

#include <cstddef>
#include <new>
#include <string>

namespace strait {

/// A text of this thread, of its own for each Tag. It may be used as long as the process: destructors of a program's
/// static objects call the library, too, and come after those of all that is thread_local.
template <class Tag>
std::string& thread_text() {
  alignas(std::string) thread_local std::byte place[sizeof(std::string)];
  struct Owner {
    std::string* const text = new (place) std::string;
    /// Leaves an empty text, which needs no memory but its place.
    ~Owner() { std::string().swap(*text); }
  };
  thread_local const Owner owner;
  return *std::launder(reinterpret_cast<std::string*>(place));
}

}  // namespace strait
