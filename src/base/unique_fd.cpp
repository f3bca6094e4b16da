#include "base/unique_fd.hpp"

#include <fcntl.h>

#include <cerrno>

namespace strait {

int move_above_stdio(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int why = errno;
  ::close(fd);
  errno = why;
  return moved;
}

}  // namespace strait
