// How errors become ncclResult_t values and texts for ncclGetLastError().
#include "nccl/result.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

namespace strait::nccl {
namespace {

TEST(Result, WhatIsThrownIsNamedAndNoEarlierError) {
  EXPECT_EQ(failed(ncclInvalidArgument, "an error of an earlier call"), ncclInvalidArgument);
  EXPECT_EQ(guarded([]() -> ncclResult_t { throw std::bad_alloc(); }), ncclSystemError);
  EXPECT_STREQ(last_error(), "out of memory");
  EXPECT_EQ(guarded([]() -> ncclResult_t { throw std::runtime_error("something else"); }), ncclInternalError);
  EXPECT_STREQ(last_error(), "something else");
}

/// Programs written for an earlier version do not know the newer result.
TEST(Result, OfADeadlineIsOneOfTheVersionThatIsServed) {
  const auto exit_with_result = [](const char* version) {
    setenv("STRAIT_NCCL_VERSION", version, 1);
    std::_Exit(to_nccl(straitTimeout));
  };
  EXPECT_EXIT(exit_with_result("22809"), ::testing::ExitedWithCode(ncclRemoteError), "");
  EXPECT_EXIT(exit_with_result("23000"), ::testing::ExitedWithCode(ncclTimeout), "");
}

TEST(Result, NamesOfStraitsThatNcclHasTooAreNccls) {
  EXPECT_STREQ(kept_text("straitCommInitRank: straitDataType_t, straitMemAlloc or straitGroupEnd, strait"),
               "ncclCommInitRank: ncclDataType_t, straitMemAlloc or ncclGroupEnd, strait");
  EXPECT_STREQ(kept_text(""), "");
}

}  // namespace
}  // namespace strait::nccl
