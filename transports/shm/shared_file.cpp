#include "transports/shm/shared_file.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "transports/shm/shared_heap.hpp"

namespace strait::shm {
namespace {

constexpr const char* folder = "/dev/shm";

std::string path_of(const Secret& secret) { return folder + ("/" + public_name(secret)); }

tl::unexpected<Error> no_room(std::size_t bytes) {
  struct statvfs status {};
  const bool known = statvfs(folder, &status) == 0;
  const auto megabytes = [&](auto blocks) { return std::to_string(blocks * status.f_frsize >> 20) + " MB"; };
  return fail(Code::out_of_memory,
              std::string(folder) + " has no room for " + std::to_string((bytes + (1 << 20) - 1) >> 20) + " MB" +
                  (known ? " (" + megabytes(status.f_bavail) + " free of " + megabytes(status.f_blocks) + ")" : "") +
                  ". Enlarge it: docker run --shm-size, or mount -o remount,size=...");
}

Result<UniqueFd> create(const RendezvousRequest& request) {
  STRAIT_TRY(check_file_size(request.segment_bytes + request.secret.password.size()));
  const std::string path = path_of(request.secret);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno("cannot create a file in " + std::string(folder), errno);
  const auto& password = request.secret.password;
  // posix_fallocate returns its error; errno is not set.
  const int reserved = posix_fallocate(fd.get(), 0, static_cast<off_t>(request.segment_bytes + password.size()));
  if (reserved == ENOSPC) return no_room(request.segment_bytes);
  if (reserved != 0) return fail_errno("cannot reserve memory in " + std::string(folder), reserved);
  if (pwrite(fd.get(), password.data(), password.size(), static_cast<off_t>(request.segment_bytes)) !=
      static_cast<ssize_t>(password.size()))
    return fail_errno("cannot write to " + path, errno);
  return fd;
}

Result<UniqueFd> open_created(const RendezvousRequest& request) {
  const std::string path = path_of(request.secret);
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return fail_errno("cannot open the file that rank 0 of this host made in " + std::string(folder), errno,
                      "Containers share it with --ipc=host or a common --ipc");
  decltype(request.secret.password) seen{};
  const bool is_right = pread(fd.get(), seen.data(), seen.size(), static_cast<off_t>(request.segment_bytes)) ==
                            static_cast<ssize_t>(seen.size()) &&
                        equal_in_constant_time(seen, request.secret.password);
  if (!is_right) return fail(Code::remote_error, path + " is not the file that rank 0 of this host made");
  return fd;
}

}  // namespace

Result<UniqueFd> share_file(const RendezvousRequest& request) {
  const bool creates = request.rank == 0;
  // All ranks must be here before the file exists: if the rank that makes it is killed, the others unlink it.
  STRAIT_TRY(request.agree({}));
  Result<UniqueFd> file;
  if (creates) file = create(request);
  Status all = request.agree(file ? Status() : tl::unexpected(file.error()));
  if (all) {
    if (!creates) file = open_created(request);
    all = request.agree(file ? Status() : tl::unexpected(file.error()));
  }
  // On failure every rank unlinks it, because the rank that made it may have been killed. The name belongs to this
  // communicator alone.
  if (creates || !all) unlink(path_of(request.secret).c_str());
  if (!all) return tl::unexpected(std::move(all).error());
  return file;
}

}  // namespace strait::shm
