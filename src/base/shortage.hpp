#pragma once

#include <new>
#include <system_error>
#include <type_traits>

#include "base/error.hpp"

namespace strait {

inline tl::unexpected<Error> cannot_start_thread(const std::system_error& error) {
  return fail_errno("cannot start a thread", error.code().value(), "Raise the limit on processes (ulimit -u)");
}

/// What `work` gives; where it throws for want of memory or of a thread, that is its error.
template <class F>
std::invoke_result_t<F> or_shortage(F&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory,
                "no memory left. Check the limit of address space (ulimit -v) and the memory limit of the container");
  } catch (const std::system_error& error) {
    return cannot_start_thread(error);
  }
}

}  // namespace strait
