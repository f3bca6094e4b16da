#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"

namespace strait::perf {

/// All-reduce by a libnccl.so.2 that the user names, in the same process and on the same buffers, without NVLink
/// multicast.
class NcclBaseline {
 public:
  static Result<std::unique_ptr<NcclBaseline>> load(const std::string& path, const std::vector<int>& devices) {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    std::unique_ptr<NcclBaseline> baseline(new NcclBaseline);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return fail(Code::system_error, std::string("cannot load the baseline: ") + dlerror());
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    int (*init_all)(void**, int, const int*) = nullptr;
    int (*get_version)(int*) = nullptr;
    if (!find(init_all, "ncclCommInitAll") || !find(baseline->all_reduce_, "ncclAllReduce") ||
        !find(baseline->group_start_, "ncclGroupStart") || !find(baseline->group_end_, "ncclGroupEnd") ||
        !find(baseline->error_string_, "ncclGetErrorString") || !find(get_version, "ncclGetVersion"))
      return fail(Code::invalid_argument, path + " lacks NCCL's functions");
    get_version(&baseline->version);
    baseline->comms_.resize(devices.size());
    STRAIT_TRY(baseline->check(init_all(baseline->comms_.data(), static_cast<int>(devices.size()), devices.data())));
    return baseline;
  }

  /// DataType's values are NCCL's.
  Status all_reduce(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, std::size_t count,
                    DataType type, const std::vector<cudaStream_t>& streams) {
    STRAIT_TRY(check(group_start_()));
    for (std::size_t r = 0; r < comms_.size(); ++r)
      STRAIT_TRY(
          check(all_reduce_(inputs[r], outputs[r], count, static_cast<int>(type), /*sum*/ 0, comms_[r], streams[r])));
    return check(group_end_());
  }

  int version = 0;

 private:
  NcclBaseline() = default;
  Status check(int result) const {
    if (result == 0) return {};
    return fail(Code::cuda_error, std::string("the baseline failed: ") + error_string_(result));
  }
  int (*all_reduce_)(const void*, void*, std::size_t, int, int, void*, cudaStream_t) = nullptr;
  int (*group_start_)() = nullptr;
  int (*group_end_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  std::vector<void*> comms_;  ///< live as long as the process: ending them needs all ranks to be well
};

}  // namespace strait::perf
