#include "words.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strait::tools {
namespace {

TEST(ParseSize, TakesSuffixesOfEitherCase) {
  EXPECT_EQ(parse_size("8"), 8U);
  EXPECT_EQ(parse_size("1K"), 1024U);
  EXPECT_EQ(parse_size("64m"), 64U << 20);
  EXPECT_EQ(parse_size("1G"), 1U << 30);
  EXPECT_EQ(parse_size("1.5K"), 1536U);
  EXPECT_EQ(parse_size("0"), 0U);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "1Q", "1KB", "1 K", "nan", "inf", "1e30"})
    EXPECT_FALSE(parse_size(text)) << text;
}

TEST(ParseNames, TakesOurNamesThoseOfNcclTestsAndAll) {
  EXPECT_EQ(parse_types("half"), std::vector{DataType::float16});
  EXPECT_EQ(parse_types("float16"), std::vector{DataType::float16});
  EXPECT_EQ(parse_types("all")->size(), static_cast<std::size_t>(data_type_count));
  EXPECT_EQ(parse_ops("all")->size(), static_cast<std::size_t>(reduce_op_count));
  EXPECT_EQ(parse_ops("mulsum"), std::vector{ReduceOp::premul_sum});
  EXPECT_EQ(parse_ops("premul_sum"), std::vector{ReduceOp::premul_sum});
  EXPECT_EQ(parse_collective("all-to-all-v"), Collective::all_to_all_v);
}

TEST(ParseNames, ErrorsListWhatIsKnown) {
  EXPECT_NE(parse_types("float33").error().message.find("bfloat16"), std::string::npos);
  EXPECT_NE(parse_collective("allreduce").error().message.find("all-reduce"), std::string::npos);
  EXPECT_NE(parse_wire("int2").error().message.find("fp8"), std::string::npos);
}

}  // namespace
}  // namespace strait::tools
