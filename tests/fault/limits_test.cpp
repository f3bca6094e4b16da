// A machine short of a resource: the error names what is missing and which limit to raise; no crash, no hang, no leak.
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "fault/leftovers.hpp"
#include "fault/rank_processes.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

void set_limit(int resource, rlim_t value) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(static_cast<__rlimit_resource_t>(resource), &limit), 0);
  limit.rlim_cur = value;
  ASSERT_EQ(setrlimit(static_cast<__rlimit_resource_t>(resource), &limit), 0);
}

/// Limits this process to `spare` more open files.
void leave_files(int spare) {
  const int lowest_free = dup(0);
  close(lowest_free);
  set_limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest_free + spare));
}

constexpr const char* says_files = "ulimit -n";

/// Rank 1 may open only `spare` more files. Either all ranks join, or all are told.
void join_with_few_files(int spare, bool& joined) {
  const Leftovers leftovers;
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    straitConfig_t config = test_config();
    config.init_timeout_ms = 500;  // a rank that cannot open a socket cannot tell the others
    const std::size_t before = open_files();
    if (rank == 1) leave_files(spare);
    straitComm_t comm = join(id, rank, 2, report, config);
    if (comm != nullptr) STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
    // The process's heap stays open.
    set_limit(RLIMIT_NOFILE, 1024);
    EXPECT_LE(open_files(), before + 1);
  });
  processes.expect_all_end_well();
  joined = processes.report(0).joined.load() != 0;
  EXPECT_EQ(joined, processes.report(1).joined.load() != 0);
  if (!joined) {
    EXPECT_THAT(processes.report(1).message, HasSubstr(says_files)) << spare << " files to spare";
    EXPECT_THAT(processes.report(0).message, HasSubstr(processes.report(0).result == straitTimeout ? ": 1" : "rank 1"));
  }
  EXPECT_EQ(leftovers.that_stay(), "");
}

TEST(FewFiles, JoiningWorksOrSaysSo) {
  bool joined = false;
  int spare = 0;
  while (!joined && spare < 24) join_with_few_files(spare++, joined);
  EXPECT_TRUE(joined) << "24 descriptors must be enough for a communicator of 2";
  EXPECT_GT(spare, 3);
}

TEST(FewFiles, TheUniqueId) {
  const pid_t child = fork_rank([] {
    leave_files(0);
    straitUniqueId id;
    EXPECT_EQ(straitGetUniqueId(&id), straitSystemError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(says_files));
  });
  EXPECT_EQ(wait_for(child, 10'000), 0);
}

TEST(FewFiles, SplitFailsAndTheParentGoesOn) {
  run_as_processes(2, [](straitComm_t comm, int rank, int ranks) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (rank == 0) leave_files(0);
    straitComm_t part = nullptr;
    EXPECT_EQ(straitCommSplit(comm, 0, 0, &part, nullptr), rank == 0 ? straitSystemError : straitRemoteError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(says_files));
    if (rank == 0) set_limit(RLIMIT_NOFILE, limit.rlim_cur);
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 100, 1, buffer));
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
    STRAIT_EXPECT_OK(checked_all_reduce(part, rank, ranks, 100, 2, buffer));
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
}

/// The rank that fails is not the root, which is where the others meet and which tells them of failures.
TEST(FewFiles, ARankThatCannotJoinItsPartIsNewsToAllAtOnce) {
  run_as_processes(4, [](straitComm_t comm, int rank, int ranks) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (rank == 3) leave_files(0);
    straitComm_t part = nullptr;
    const Stopwatch watch;
    const int color = rank == 1 ? -1 : 0;
    EXPECT_EQ(straitCommSplit(comm, color, 0, &part, nullptr), rank == 3 ? straitSystemError : straitRemoteError);
    EXPECT_LT(watch.elapsed(), milliseconds(1000));
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(says_files));
    EXPECT_EQ(part, nullptr);
    if (rank == 3) set_limit(RLIMIT_NOFILE, limit.rlim_cur);
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 100, 1, buffer));
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, 0, &part, nullptr));
    STRAIT_EXPECT_OK(checked_all_reduce(part, rank, ranks, 100, 2, buffer));
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
}

/// However many of its data connections rank 1 can make, no rank may wait for it until the deadline.
TEST(FewFiles, APartOverTcpSaysSoSoon) {
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    setenv("STRAIT_TRANSPORT", "tcp", 1);
    straitComm_t comm = join(id, rank, 2, report), part = nullptr;
    ASSERT_NE(comm, nullptr) << report.message;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    int spare = 0;
    for (; part == nullptr && spare < 24; ++spare) {
      if (rank == 1) leave_files(spare);
      const Stopwatch watch;
      const straitResult_t result = straitCommSplit(comm, 0, 0, &part, nullptr);
      if (rank == 1) set_limit(RLIMIT_NOFILE, limit.rlim_cur);
      EXPECT_LT(watch.elapsed(), seconds(4)) << spare << " files to spare";
      if (result == straitSuccess) break;
      // Before the ranks have met, rank 0 gets the same error code as rank 1.
      EXPECT_TRUE(result == straitSystemError || (rank == 0 && result == straitRemoteError)) << "is " << result;
      EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(says_files)) << spare << " files to spare";
    }
    EXPECT_GT(spare, 3);
    ASSERT_NE(part, nullptr);
    STRAIT_EXPECT_OK(straitBarrier(part, nullptr));
    STRAIT_EXPECT_OK(straitCommDestroy(part));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  processes.expect_all_end_well();
}

/// Makes every start of a thread fail in this process.
void leave_no_thread() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);  // more than the address space
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  ASSERT_THROW(std::thread([] {}).join(), std::system_error);
}

/// The rank that cannot go on tells the others, which must not wait until their deadline.
TEST(FewThreads, JoiningOverTcpSaysSo) {
  const Stopwatch watch;
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    setenv("STRAIT_TRANSPORT", "tcp", 1);
    if (rank == 1) leave_no_thread();
    EXPECT_EQ(join(id, rank, 3, report), nullptr);
  });
  processes.expect_all_end_well();
  EXPECT_LT(watch.elapsed(), seconds(5));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(processes.report(rank).result, rank == 1 ? straitSystemError : straitRemoteError);
    EXPECT_THAT(processes.report(rank).message, HasSubstr("ulimit -u")) << "rank " << rank;
  }
}

std::size_t address_space_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

TEST(LittleMemory, JoiningSaysSo) {
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    straitConfig_t config = test_config();
    config.init_timeout_ms = 3000;
    setenv("STRAIT_TRANSPORT", "shm", 1);  // the default would fall back to TCP, which needs less
    if (rank == 1) set_limit(RLIMIT_AS, address_space_bytes() + (4 << 20));
    EXPECT_EQ(join(id, rank, 2, report, config), nullptr);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(processes.report(rank).message, HasSubstr("ulimit -v")) << "rank " << rank;
  EXPECT_NE(processes.report(0).result, straitTimeout);
}

TEST(LittleMemory, TheSharedHeapSaysSo) {
  const pid_t child = fork_rank([] {
    set_limit(RLIMIT_AS, address_space_bytes() + (4 << 20));
    void* memory = nullptr;
    const straitResult_t result = straitMemAlloc(&memory, 1 << 20);
    EXPECT_TRUE(result == straitOutOfMemory || result == straitSystemError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("ulimit -v"));
  });
  EXPECT_EQ(wait_for(child, 10'000), 0);
}

/// Exceeding this limit while writing would end the process by a signal without a message.
TEST(SmallFiles, SharedMemoryIsRefusedAndRanksGoOverTcp) {
  RankProcesses processes(2, [&](int rank, const straitUniqueId& id, Report& report) {
    set_limit(RLIMIT_FSIZE, 1 << 20);
    void* memory = nullptr;
    EXPECT_EQ(straitMemAlloc(&memory, 4096), straitSystemError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("ulimit -f"));
    straitComm_t comm = join(id, rank, 2, report);
    ASSERT_NE(comm, nullptr) << report.message;
    const char *transport = nullptr, *why = nullptr;
    STRAIT_EXPECT_OK(straitCommGetTransport(comm, &transport, &why));
    EXPECT_STREQ(transport, "tcp");
    EXPECT_THAT(why, ::testing::AllOf(HasSubstr("shm: "), HasSubstr("shm_file: "), HasSubstr("ulimit -f")));
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, 2, 500, 1, buffer));
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  processes.expect_all_end_well();
}

/// Rank 1 has no address space left to map its peers' heaps. No rank may then use peers' memory; copies must still
/// work.
TEST(LittleMemory, RegistrationIsRefusedOnAllRanks) {
  constexpr int ranks = 3;
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    void *memory = nullptr, *handle = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&memory, 4096));
    if (rank == 1) set_limit(RLIMIT_AS, address_space_bytes() + (std::size_t{8} << 30));
    straitComm_t comm = join(id, rank, ranks, report);
    ASSERT_NE(comm, nullptr) << report.message;
    EXPECT_EQ(straitCommRegister(comm, memory, 4096, &handle), rank == 1 ? straitUnsupported : straitRemoteError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("could not be mapped"));
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("ulimit -v"));
    std::vector<std::int32_t> buffer;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 500, 1, buffer));
    auto* const values = static_cast<std::int32_t*>(memory);
    std::fill(values, values + 500, rank);
    STRAIT_EXPECT_OK(straitAllReduce(values, values, 500, straitInt32, straitSum, comm, nullptr));
    EXPECT_EQ(std::count(values, values + 500, ranks * (ranks - 1) / 2), 500);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
    STRAIT_EXPECT_OK(straitMemFree(memory));
  });
  processes.expect_all_end_well();
}

/// Allocates all memory that malloc can give under the limit, except for a few small pieces. If several threads have
/// allocated, malloc has several arenas. When a thread's arena is exhausted, malloc tries one other, a different one
/// each time, and then refuses; so only many refusals in a row show that no arena has memory left. Large pieces come
/// first, because the arenas are large.
std::vector<void*> hoard() {
  constexpr std::size_t spared = 8, spared_bytes = 512, most = 1 << 20;
  constexpr int refusals = 1000;
  std::vector<void*> pieces;
  pieces.reserve(most);
  set_limit(RLIMIT_AS, 1 << 20);
  std::size_t first_spared = 0;
  for (const std::size_t piece_bytes : {std::size_t{64} << 10, spared_bytes, std::size_t{24}}) {
    if (piece_bytes == spared_bytes) first_spared = pieces.size();
    for (int refused = 0; refused < refusals && pieces.size() < most;)
      if (void* const piece = std::malloc(piece_bytes))
        pieces.push_back(piece), refused = 0;
      else
        ++refused;
  }
  for (std::size_t i = 0; i < spared; ++i) std::free(std::exchange(pieces.at(first_spared + i), nullptr));
  return pieces;
}

/// An operation for which rank 1 has no memory must tell all ranks, not leave them waiting.
void expect_all_are_told(straitComm_t comm, int rank, straitRedOp_t op) {
  std::vector<std::int32_t> values(40'000);
  const std::vector<void*> hoarded = rank == 1 ? hoard() : std::vector<void*>();
  const straitResult_t result = straitAllReduce(values.data(), values.data(), 40'000, straitInt32, op, comm, nullptr);
  for (void* piece : hoarded) std::free(piece);
  if (rank == 1) set_limit(RLIMIT_AS, RLIM_INFINITY);
  EXPECT_EQ(result, straitOutOfMemory);
  EXPECT_THAT(straitGetLastError(comm), HasSubstr("ulimit -v"));
}

TEST(LittleMemory, AnOperationTellsAllRanks) {
  run_as_processes(2, [](straitComm_t comm, int rank, int ranks) {
    std::vector<std::int32_t> values;
    STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, 100, 1, values));
    expect_all_are_told(comm, rank, straitSum);
  });
}

TEST(LittleMemory, APremultipliedSumTellsAllRanks) {
  run_as_processes(2, [](straitComm_t comm, int rank, int) {
    const std::int32_t scalar = rank + 1;
    std::int32_t value = 10;
    straitRedOp_t op = straitSum;
    STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(&op, &scalar, straitInt32, straitScalarHostImmediate, comm));
    STRAIT_EXPECT_OK(straitAllReduce(&value, &value, 1, straitInt32, op, comm, nullptr));
    EXPECT_EQ(value, 30);
    expect_all_are_told(comm, rank, op);
  });
}

}  // namespace
}  // namespace strait::testing
