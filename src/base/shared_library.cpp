#include "base/shared_library.hpp"

namespace strait {

SharedLibrary::SharedLibrary(const std::string& path, int flags) : handle_(::dlopen(path.c_str(), flags)) {
  if (is_loaded()) return;
  const char* why = ::dlerror();
  problem_ = why != nullptr ? why : path + " cannot be loaded";
}

}  // namespace strait
