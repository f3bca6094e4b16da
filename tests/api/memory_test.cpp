// Memory from straitMemAlloc, and buffers that all ranks registered so that peers read them directly.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "api/values.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t pool_bytes = 4 << 20;

/// A registered pool of `pool_bytes`, which is deregistered and freed at the end.
class Pool {
 public:
  explicit Pool(straitComm_t comm) : comm_(comm) {
    STRAIT_EXPECT_OK(straitMemAlloc(&memory_, pool_bytes));
    STRAIT_EXPECT_OK(straitCommRegister(comm, memory_, pool_bytes, &handle_));
  }
  ~Pool() {
    STRAIT_EXPECT_OK(straitCommDeregister(comm_, handle_));
    STRAIT_EXPECT_OK(straitMemFree(memory_));
  }
  std::int32_t* input() const { return static_cast<std::int32_t*>(memory_); }
  std::int32_t* output() const { return input() + pool_bytes / 8; }

 private:
  straitComm_t comm_;
  void* memory_ = nullptr;
  void* handle_ = nullptr;
};

using Values = std::vector<std::int32_t>;

Values concatenation(const std::function<Values(int)>& part, int parts) {
  Values all;
  for (int i = 0; i < parts; ++i) {
    const Values more = part(i);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

Values block(const Values& values, int index, std::size_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) * count);
  return Values(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void check_all_collectives(straitComm_t comm, const Pool& pool, int rank, int ranks, std::size_t count) {
  const std::size_t all = count * static_cast<std::size_t>(ranks);
  const auto source = [](int r, std::size_t n) { return numbers(n, static_cast<std::uint64_t>(r)); };
  const auto fill = [&](std::size_t n) {
    const Values mine = source(rank, n);
    std::copy(mine.begin(), mine.end(), pool.input());
    std::fill(pool.output(), pool.output() + all, -1);
  };
  const auto expect = [&](const Values& expected, const char* what) {
    EXPECT_EQ(Values(pool.output(), pool.output() + expected.size()), expected) << what << " of " << count;
  };
  const int root = ranks - 1;
  const bool is_root = rank == root;
  void* const root_output = is_root ? pool.output() : nullptr;
  void* const root_input = is_root ? pool.input() : nullptr;

  fill(count);
  STRAIT_EXPECT_OK(straitAllReduce(pool.input(), pool.output(), count, straitInt32, straitSum, comm, nullptr));
  expect(sum_of_numbers(count, 0, ranks), "all-reduce");
  STRAIT_EXPECT_OK(straitAllGather(pool.input(), pool.output(), count, straitInt32, comm, nullptr));
  expect(concatenation([&](int r) { return source(r, count); }, ranks), "all-gather");
  STRAIT_EXPECT_OK(straitBroadcast(root_input, pool.output(), count, straitInt32, root, comm, nullptr));
  expect(source(root, count), "broadcast");
  STRAIT_EXPECT_OK(straitReduce(pool.input(), root_output, count, straitInt32, straitSum, root, comm, nullptr));
  if (is_root) expect(sum_of_numbers(count, 0, ranks), "reduce");
  STRAIT_EXPECT_OK(straitGather(pool.input(), root_output, count, straitInt32, root, comm, nullptr));
  if (is_root) expect(concatenation([&](int r) { return source(r, count); }, ranks), "gather");
  fill(all);
  STRAIT_EXPECT_OK(straitReduceScatter(pool.input(), pool.output(), count, straitInt32, straitSum, comm, nullptr));
  expect(block(sum_of_numbers(all, 0, ranks), rank, count), "reduce-scatter");
  STRAIT_EXPECT_OK(straitAllToAll(pool.input(), pool.output(), count, straitInt32, comm, nullptr));
  expect(concatenation([&](int r) { return block(source(r, all), rank, count); }, ranks), "all-to-all");
  STRAIT_EXPECT_OK(straitScatter(root_input, pool.output(), count, straitInt32, root, comm, nullptr));
  expect(block(source(root, all), rank, count), "scatter");
  // In place, several times: no rank may still be reading when the next call writes.
  fill(count);
  for (int i = 0; i < 3; ++i)
    STRAIT_EXPECT_OK(straitAllReduce(pool.input(), pool.input(), count, straitInt32, straitMax, comm, nullptr));
  Values largest = source(0, count);
  for (int r = 1; r < ranks; ++r) {
    const Values other = source(r, count);
    for (std::size_t i = 0; i < count; ++i) largest[i] = std::max(largest[i], other[i]);
  }
  EXPECT_EQ(Values(pool.input(), pool.input() + count), largest) << "in place";
}

/// In premultiplied sums the summands are scaled copies, which lie in memory that no rank registered.
void check_premultiplied(straitComm_t comm, const Pool& pool, int rank, int ranks, std::size_t count) {
  const std::int32_t scalar = rank + 2;
  straitRedOp_t op = straitSum;
  STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(&op, &scalar, straitInt32, straitScalarHostImmediate, comm));
  const Values mine = numbers(count, static_cast<std::uint64_t>(rank));
  std::copy(mine.begin(), mine.end(), pool.input());
  std::int32_t* const output = rank == 0 ? pool.input() : pool.output();  // in place on one rank only
  STRAIT_EXPECT_OK(straitAllReduce(pool.input(), output, count, straitInt32, op, comm, nullptr));
  Values expected(count);
  for (int r = 0; r < ranks; ++r) {
    const Values input = numbers(count, static_cast<std::uint64_t>(r));
    for (std::size_t i = 0; i < count; ++i) expected[i] += (r + 2) * input[i];
  }
  EXPECT_EQ(Values(output, output + count), expected) << count;
  STRAIT_EXPECT_OK(straitRedOpDestroy(op, comm));
}

void check_registered(straitComm_t comm, int rank, int ranks) {
  const Pool pool(comm);
  for (std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{60'001}})
    check_all_collectives(comm, pool, rank, ranks, count);
  for (std::size_t count : {std::size_t{1000}, std::size_t{1}, std::size_t{60'001}})
    check_premultiplied(comm, pool, rank, ranks, count);
}
TEST(Registered, Processes) {
  for (int ranks : {2, 3, 4}) run_as_processes(ranks, check_registered);
}
TEST(Registered, Threads) { run_as_threads(3, check_registered); }

TEST(Registered, OneRankWithAnotherBufferIsTold) {
  const auto body = [](straitComm_t comm, int rank, int) {
    void *memory = nullptr, *handle = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&memory, 1 << 16));
    STRAIT_EXPECT_OK(straitCommRegister(comm, memory, 1 << 16, &handle));
    Values own(100);
    auto* buffer = rank == 1 ? own.data() : static_cast<std::int32_t*>(memory);
    EXPECT_EQ(straitAllReduce(buffer, buffer, 100, straitInt32, straitSum, comm, nullptr), straitMismatch);
    EXPECT_THAT(straitGetLastError(comm), HasSubstr("registered buffers"));
    STRAIT_EXPECT_OK(straitMemFree(memory));
  };
  run_as_processes(3, body);
}

TEST(Registered, MemoryFromElsewhereIsRefusedOnAllRanks) {
  run_as_processes(2, [](straitComm_t comm, int rank, int ranks) {
    void *memory = nullptr, *handle = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&memory, 4096));
    Values own(1024);
    const straitResult_t result = straitCommRegister(comm, rank == 1 ? own.data() : memory, 4096, &handle);
    EXPECT_EQ(result, rank == 1 ? straitInvalidArgument : straitRemoteError);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("straitMemAlloc"));
    const Values mine = numbers(10, static_cast<std::uint64_t>(rank));
    Values sum(10);
    STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), 10, straitInt32, straitSum, comm, nullptr));
    EXPECT_EQ(sum, sum_of_numbers(10, 0, ranks));
    STRAIT_EXPECT_OK(straitMemFree(memory));
  });
}

TEST(Registered, MoreThanABlockIsRefused) {
  run_as_processes(2, [](straitComm_t comm, int, int) {
    void *memory = nullptr, *handle = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&memory, 4096));
    EXPECT_EQ(straitCommRegister(comm, memory, 4097, &handle), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitMemFree(memory));
  });
}

TEST(Memory, BlocksAreSeparateZeroedAndReused) {
  std::array<void*, 3> blocks{};
  for (void*& pointer : blocks) {
    STRAIT_EXPECT_OK(straitMemAlloc(&pointer, 10'000));
    std::memset(pointer, 0xff, 10'000);
  }
  void* again = nullptr;
  STRAIT_EXPECT_OK(straitMemFree(blocks[1]));
  STRAIT_EXPECT_OK(straitMemAlloc(&again, 10'000));
  EXPECT_EQ(again, blocks[1]);
  EXPECT_EQ(*static_cast<std::uint64_t*>(again), 0u);
  EXPECT_EQ(static_cast<unsigned char*>(blocks[0])[9'999], 0xff);
  EXPECT_EQ(static_cast<unsigned char*>(blocks[2])[0], 0xff);
  EXPECT_EQ(straitMemFree(static_cast<char*>(again) + 16), straitInvalidArgument);
  for (void* pointer : blocks) STRAIT_EXPECT_OK(straitMemFree(pointer));
  EXPECT_EQ(straitMemFree(again), straitInvalidArgument) << "freed twice";
  STRAIT_EXPECT_OK(straitMemFree(nullptr));
}

TEST(Memory, MoreThanThereIs) {
  void* pointer = nullptr;
  EXPECT_EQ(straitMemAlloc(&pointer, std::size_t{1} << 60), straitOutOfMemory);
  EXPECT_EQ(straitMemAlloc(&pointer, ~std::size_t{0}), straitOutOfMemory);
  EXPECT_EQ(pointer, nullptr);
}

/// A forked child that allocates must not get memory that its parent hands out, too.
TEST(Memory, ForkedChildrenHaveAHeapOfTheirOwn) {
  void* before = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(&before, 4096));
  const pid_t child = fork_rank([] {
    void* pointer = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&pointer, 4096));
    std::memset(pointer, 0x11, 4096);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(*static_cast<unsigned char*>(pointer), 0x11);
  });
  void* after = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(&after, 4096));
  std::memset(after, 0x22, 4096);
  EXPECT_EQ(wait_for(child, 10000), 0);
  EXPECT_EQ(*static_cast<unsigned char*>(after), 0x22);
  STRAIT_EXPECT_OK(straitMemFree(before));
  STRAIT_EXPECT_OK(straitMemFree(after));
}

}  // namespace
}  // namespace strait::testing
