#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace strait::testing {

/// A folder of a test, which ends with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/strait_test_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace strait::testing
