// What is left of errors for ncclGetLastError.
#include "nccl/result.hpp"

#include <gtest/gtest.h>

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

TEST(Result, NamesOfStraitsThatNcclHasTooAreNccls) {
  EXPECT_STREQ(kept_text("straitCommInitRank: straitDataType_t, straitMemAlloc or straitGroupEnd, strait"),
               "ncclCommInitRank: ncclDataType_t, straitMemAlloc or ncclGroupEnd, strait");
  EXPECT_STREQ(kept_text(""), "");
}

}  // namespace
}  // namespace strait::nccl
