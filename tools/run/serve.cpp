#include "run/serve.hpp"

#include <cstdlib>
#include <filesystem>

#include "base/shared_library.hpp"

namespace strait::tools::run {

namespace fs = std::filesystem;
namespace {

/// Relative to this program's folder: in a build tree, and in an installation.
constexpr const char* places[] = {"../lib/strait/nccl/libnccl.so.2",
                                  "../" STRAIT_LIBRARY_FOLDER "/strait/nccl/libnccl.so.2"};

/// LD_PRELOAD is a list separated by blanks and colons, so such a path cannot contain them.
bool can_be_preloaded(const std::string& path) { return path.find_first_of(" :\t\n") == std::string::npos; }

/// Returns the path with symbolic links resolved, or the path as given if LD_PRELOAD can take only that.
Result<std::string> resolve(const fs::path& path) {
  std::error_code error;
  const fs::path found = fs::canonical(path, error);
  if (error)
    return fail(Code::invalid_argument, "there is no " + path.lexically_normal().string() + ": " + error.message() +
                                            ". Build the target nccl_dropin, or name the library with --library");
  const std::string link = fs::absolute(path).lexically_normal().string();
  return can_be_preloaded(found.string()) || !can_be_preloaded(link) ? found.string() : link;
}

/// Prepends `first` to the list in an environment variable.
void put_first(const char* variable, const std::string& first) {
  const char* others = std::getenv(variable);
  setenv(variable, (others == nullptr || *others == '\0' ? first : first + ":" + others).c_str(), 1);
}

}  // namespace

Result<std::string> find_library(const std::string& given) {
  if (!given.empty()) return resolve(given);
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(Code::system_error, "/proc/self/exe cannot be read: " + error.message());
  for (const char* place : places)
    if (auto found = resolve(self.parent_path() / place)) return found;
  return resolve(self.parent_path() / places[0]);
}

Result<int> try_library(const std::string& path) {
  const SharedLibrary library(path);
  if (!library.is_loaded()) return fail(Code::system_error, "the library cannot be loaded: " + library.problem());
  int (*get_version)(int*) = nullptr;
  library.find(get_version, "ncclGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0)
    return fail(Code::invalid_argument, path + " does not say which NCCL it is. Is STRAIT_NCCL_VERSION right?");
  return version;
}

Status set_environment(const std::string& path) {
  if (!can_be_preloaded(path))
    return fail(Code::invalid_argument, "LD_PRELOAD takes no path with a blank or a colon, such as " + path +
                                            ". Install Strait elsewhere, or name a link to it with --library");
  put_first("LD_PRELOAD", path);
  // For programs that open "libnccl.so", which is not the name of the preloaded library.
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (fs::equivalent(folder / "libnccl.so", path, error)) put_first("LD_LIBRARY_PATH", folder.string());
  for (const char* variable : {"VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH", "SGLANG_DIFFUSION_NCCL_SO_PATH"})
    setenv(variable, path.c_str(), 1);
  setenv("STRAIT_NCCL_PROOF", "1", 0);
  return {};
}

}  // namespace strait::tools::run
