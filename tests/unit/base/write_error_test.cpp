#include "base/write_error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace strait {
namespace {

TEST(WriteError, SaysWhatHelpsAgainstTheCause) {
  const auto message = [](int reason) { return fail_to_write("cannot write x", reason).value().message; };
  EXPECT_EQ(message(ENOSPC), "cannot write x: No space left on device. Make room there, or name a file elsewhere");
  EXPECT_EQ(message(EISDIR), "cannot write x: Is a directory. Name a file, such as one in it");
  EXPECT_EQ(message(EACCES), "cannot write x: Permission denied. Check the folder and its permissions");
}

}  // namespace
}  // namespace strait
