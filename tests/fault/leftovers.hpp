#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

namespace strait::testing {

/// Returns all files and sockets of Strait that other processes of this host can see.
inline std::set<std::string> visible_remains() {
  std::set<std::string> found;
  std::error_code gone;
  for (const char* folder : {"/dev/shm", "/tmp"})
    for (const auto& entry : std::filesystem::directory_iterator(folder, gone))
      if (entry.path().filename().string().starts_with("strait-") && !entry.is_directory(gone))
        found.insert(entry.path());
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    if (const auto at = line.find("strait-"); at != std::string::npos) found.insert("@" + line.substr(at));
  return found;
}

/// Notes what exists at first, and reports what has been added and does not disappear. Other programs that use Strait
/// may run meanwhile; their files and sockets disappear by themselves, on a busy machine after many seconds.
class Leftovers {
 public:
  std::string that_stay() const {
    std::set<std::string> remains = visible_remains();
    for (const std::string& old : before_) remains.erase(old);
    for (int tries = 0; tries < 3000 && !remains.empty(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const auto now = visible_remains();
      std::erase_if(remains, [&](const std::string& name) { return !now.contains(name); });
    }
    std::string text;
    for (const std::string& name : remains) text += name + " ";
    return text;
  }

 private:
  std::set<std::string> before_ = visible_remains();
};

}  // namespace strait::testing
