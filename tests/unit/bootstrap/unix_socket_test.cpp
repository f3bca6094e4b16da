#include <sys/un.h>

#include "bootstrap/local_meeting.hpp"
#include "ranks.hpp"
#include "support/another_user.hpp"
#include "support/free_port.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

/// At an abstract unix socket with that name.
HandOut hand_out_at(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  Socket listener(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener.get(), 8), 0);
  return HandOut(std::move(listener));
}

/// By descriptors whose last close takes long.
TEST(AtTheUnixSocket, AnotherUserHoldsNobodyUp) {
  const AnotherUser other;
  if (!other) GTEST_SKIP() << "needs privileges";
  const std::string name = "strait-test-" + std::to_string(::getpid());
  RootOptions options;
  options.hand_out = hand_out_at(name);
  ASSERT_TRUE(other.sends_to(name, SOCK_STREAM));
  const Stopwatch watch;
  const auto joined = join_all(make_id(std::move(options)), {options_of(0, 1, 10'000)});
  EXPECT_TRUE(joined[0]);
  HandOut unanswered = hand_out_at(name + "-unanswered");
  ASSERT_TRUE(other.sends_to(name + "-unanswered", SOCK_STREAM));
  unanswered.close();
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(5));
}

TEST(AtTheUnixSocket, AnotherUserIsSaidToHoldItAtOnce) {
  const AnotherUser other;
  if (!other) GTEST_SKIP() << "needs privileges";
  const FreePort port;
  const std::string job = port.text();
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  {
    const auto listener = listen_for_local_ranks(job, within_ms(1000));
    ASSERT_TRUE(listener) << listener.error().message;
    ASSERT_EQ(::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  }
  ASSERT_TRUE(other.listens_at({address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1}));
  const auto fails = FailsWith(Code::remote_error, HasSubstr("belongs to another user (uid 65534)"));
  EXPECT_THAT(listen_for_local_ranks(job, within_ms(2000)), fails);
  EXPECT_THAT(ask_local_root(job, within_ms(2000)), fails);
}

}  // namespace
}  // namespace strait::testing
