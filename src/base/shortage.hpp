#pragma once

#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>

#include "base/error.hpp"

namespace strait {

/// Returns the error of a thread that cannot be started. `which` continues the sentence: "that serves the connections".
/// `or_else` is another remedy: "set STRAIT_NETWORK_LANES lower".
inline tl::unexpected<Error> cannot_start_thread(const std::system_error& error, const std::string& which = "",
                                                 const std::string& or_else = "") {
  return fail_errno("cannot start a thread" + (which.empty() ? "" : " " + which), error.code().value(),
                    "Raise the limit on processes (ulimit -u)" + (or_else.empty() ? "" : ", or " + or_else));
}

/// Whether a socket call failed because the system has no memory for it at the moment. This is temporary, and says
/// nothing about the peer.
inline bool is_shortage(int errno_value) { return errno_value == ENOBUFS || errno_value == ENOMEM; }

inline tl::unexpected<Error> no_memory_left() {
  try {
    return fail(Code::out_of_memory,
                "no memory left. Check the limit of address space (ulimit -v) and the memory limit of the container");
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory,
                "out of memory");  // short enough for std::string's internal buffer, so it needs no memory
  }
}

/// Returns the result of `work` (a Status if it returns void). If it throws because there is no memory or no thread can
/// be started, returns that as an error.
template <class F, class Given = std::invoke_result_t<F>>
std::conditional_t<std::is_void_v<Given>, Status, Given> catch_shortage(F&& work) {
  try {
    if constexpr (std::is_void_v<Given>) {
      work();
      return {};
    } else {
      return work();
    }
  } catch (const std::bad_alloc&) {
    return no_memory_left();
  } catch (const std::system_error& error) {
    return cannot_start_thread(error);
  }
}

}  // namespace strait
