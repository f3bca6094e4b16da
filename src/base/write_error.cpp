#include "base/write_error.hpp"

#include <cerrno>
#include <utility>

namespace strait {
namespace {

const char* remedy_of(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
      return "Make room there, or name a file elsewhere";
    case EFBIG:
      return "Raise the limit of file sizes (ulimit -f)";
    case EISDIR:
      return "Name a file, such as one in it";
    case ENOENT:
      return "Make the folder, or name a file elsewhere";
    case EROFS:
    case ENOTDIR:
    case ENAMETOOLONG:
      return "Name a file elsewhere";
    default:
      return "Check the folder and its permissions";
  }
}

}  // namespace

tl::unexpected<Error> fail_to_write(std::string what, int errno_value) {
  return fail_errno(std::move(what), errno_value, remedy_of(errno_value));
}

}  // namespace strait
