#include "base/cpus.hpp"

#include <gmock/gmock.h>
#include <sched.h>

#include <thread>

namespace strait {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(Cpus, ListIsStrict) {
  EXPECT_THAT(cpus_of_list("", 16), Optional(IsEmpty()));
  EXPECT_THAT(cpus_of_list("0-2,8,1-1", 16), Optional(ElementsAre(0, 1, 2, 8, 1)));
  EXPECT_THAT(cpus_of_list("15", 16), Optional(ElementsAre(15)));
  for (const char* wrong : {",", "1,", ",1", "1,,2", "-", "1-", "-1", "2-1", "x", "1 ", " 1", "1-2-3", "+1", "16",
                            "0-16", "4294967296", "0x1"})
    EXPECT_FALSE(cpus_of_list(wrong, 16)) << '"' << wrong << '"';
}

TEST(Cpus, AllowedAreThoseOfTheThread) {
  const std::uint32_t last = allowed_cpus().back();
  std::thread([last] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(allowed_cpus(), ElementsAre(last));
  }).join();
}

}  // namespace
}  // namespace strait
