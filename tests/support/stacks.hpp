#pragma once

#include <sys/types.h>

#include <array>
#include <cstdio>
#include <string>

namespace strait::testing {

/// Prints the stack of each thread of another process, by gdb. For processes that do not end in time.
inline void print_stacks(pid_t pid) {
  std::printf("== where process %d is\n", static_cast<int>(pid));
  std::fflush(stdout);
  const std::string command = "timeout 60 gdb -batch -nx -p " + std::to_string(pid) +
                              " -ex 'thread apply all backtrace 16' 2>/dev/null | grep -E '^(Thread|#)'";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 512> line{};
  bool any = false;
  while (pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr)
    any = std::fputs(line.data(), stdout) >= 0;
  if (pipe != nullptr) pclose(pipe);
  if (!any) std::puts("   (not known: there is no gdb, or it may not look)");
}

}  // namespace strait::testing
