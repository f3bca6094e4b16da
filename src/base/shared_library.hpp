#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

namespace strait {

/// A library that is loaded at run time, if it is installed, and what it lacks of the functions that are needed of it.
class SharedLibrary {
 public:
  SharedLibrary() = default;  ///< none
  /// `flags`: of dlopen(). With RTLD_NODELETE it stays loaded when this object ends, as libraries need that have
  /// threads or hooks of their own.
  explicit SharedLibrary(const std::string& path, int flags = RTLD_NOW | RTLD_LOCAL);

  bool is_loaded() const { return handle_ != nullptr; }
  /// Returns why it is not loaded.
  const std::string& problem() const { return problem_; }

  /// Sets `function`; to null if the library has none of that name.
  template <class Function>
  void find(Function*& function, const char* symbol) const {
    function = is_loaded() ? reinterpret_cast<Function*>(::dlsym(handle_.get(), symbol)) : nullptr;
  }
  /// Likewise, and missing() lists the names that were not found.
  template <class Function>
  void need(Function*& function, const char* symbol) {
    find(function, symbol);
    if (function == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(symbol);
  }
  const std::string& missing() const { return missing_; }

 private:
  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  std::unique_ptr<void, Close> handle_;
  std::string problem_, missing_;
};

}  // namespace strait
