#include "base/error.hpp"

#include <system_error>

namespace strait {

tl::unexpected<Error> fail_errno(std::string what, int errno_value, std::string remedy) {
  Code code = errno_value == ENOMEM ? Code::out_of_memory : Code::system_error;
  std::string message = std::move(what) + ": " + std::generic_category().message(errno_value);
  if (!remedy.empty()) message += ". " + remedy;
  return fail(code, std::move(message));
}

}  // namespace strait
