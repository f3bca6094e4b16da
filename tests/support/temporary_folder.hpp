#pragma once

#include <cstdlib>

#include <filesystem>
#include <fstream>
#include <string>

namespace strait::testing {

/// A folder of a test, which ends with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "strait_test_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  /// Returns the path of what has this name in the folder.
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file, in place of one of that name, and makes the folders that it lies in.
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }

 private:
  std::string path_;
};

}  // namespace strait::testing
