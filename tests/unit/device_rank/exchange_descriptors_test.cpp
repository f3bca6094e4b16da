// How GPU ranks exchange file descriptors of their memory. Without a GPU.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <vector>

#include "fake_device_rank.hpp"
#include "support/ranks.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

constexpr int ranks = 3;

ino_t inode_of(int fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  return status.st_ino;
}

class ExchangeOfDescriptors : public ::testing::Test {
 protected:
  void TearDown() override { fake_gpu.on_open = nullptr; }
  /// Makes a communicator of ranks that are threads of this process; returns their results, and errors in `messages`.
  static std::vector<straitResult_t> results(std::vector<std::string>& messages) {
    straitUniqueId id;
    STRAIT_EXPECT_OK(straitGetUniqueId(&id));
    std::vector<straitResult_t> all(ranks);
    messages.resize(ranks);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        straitConfig_t config = test_config();
        config.device = static_cast<int>(rank);
        straitComm_t comm = nullptr;
        all[rank] = straitCommInitRank(&comm, ranks, &id, static_cast<int>(rank), &config);
        if (comm == nullptr) messages[rank] = straitGetLastError(nullptr);
        STRAIT_EXPECT_OK(straitCommDestroy(comm));
      });
    threads.clear();
    return all;
  }
};

TEST_F(ExchangeOfDescriptors, GivesEveryRankThoseOfAllOthers) {
  std::vector<UniqueFd> own;
  for (int rank = 0; rank < ranks; ++rank) own.emplace_back(memfd_create("strait-test", MFD_CLOEXEC));
  fake_gpu.on_open = [&](const DeviceRank::Request& request) -> Status {
    STRAIT_ASSIGN(const auto descriptors, request.exchange(own[request.rank].get()));
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      if (peer == request.rank) continue;
      EXPECT_EQ(inode_of(descriptors[peer].get()), inode_of(own[peer].get()));
      EXPECT_NE(fcntl(descriptors[peer].get(), F_GETFD) & FD_CLOEXEC, 0) << "programs that are started inherit it";
    }
    return {};
  };
  std::vector<std::string> messages;
  EXPECT_THAT(results(messages), ::testing::Each(straitSuccess));
}

/// If one rank cannot keep the descriptors, for example because it has reached its limit, all ranks fail at once, and
/// none continues without the memory.
TEST_F(ExchangeOfDescriptors, FailsOnAllRanksWhereOneCannotKeepThem) {
  fake_gpu.on_open = [](const DeviceRank::Request& request) -> Status {
    const UniqueFd own(memfd_create("strait-test", MFD_CLOEXEC));
    constexpr int never_open = 1 << 30;
    STRAIT_TRY(request.exchange(request.rank == 1 ? never_open : own.get()).map([](const auto&) {}));
    ADD_FAILURE() << "rank " << request.rank << " goes on";
    return {};
  };
  std::vector<std::string> messages;
  const Stopwatch watch;
  EXPECT_THAT(results(messages), ::testing::Not(::testing::Contains(straitSuccess)));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(10));
  for (const std::string& message : messages)
    EXPECT_THAT(message, ::testing::HasSubstr("cannot keep a descriptor from rank 1"));
}

}  // namespace
}  // namespace strait::testing
