// The copies by which ranks measure exchange rates, on a fake of the CUDA runtime.
#include "device/exchange_copies.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "executor/cuda/runtime.hpp"

/// CUDA's opaque stream handle. Commands run when the stream is queried, but not while the fake keeps streams busy.
struct CUstream_st {
  std::deque<std::function<void()>> commands;
  float now_ms = 0;
};
struct CUevent_st {
  float at_ms = -1;
};

namespace strait::testing {
namespace {

struct Copy {
  const std::byte *to, *from;
  std::size_t bytes;
  bool is_up;
};
struct FakeCuda {
  std::set<void*> alive;  ///< existing streams, events and memory
  std::vector<Copy> copies;
  int looks = 0;                 ///< number of queries for which streams remain busy
  int calls_until_error = -1;    ///< counts the calls that can fail; -1: none fails
  float up_ms = 1, down_ms = 2;  ///< duration of a copy
  float now_ms = 0;

  cudaError_t fails() { return calls_until_error >= 0 && calls_until_error-- == 0 ? cudaErrorUnknown : cudaSuccess; }
} fake;

void enqueue(CUstream_st* stream, std::function<void()> command) {
  if (stream->commands.empty()) stream->now_ms = std::max(stream->now_ms, fake.now_ms);
  stream->commands.push_back(std::move(command));
}
template <class T>
cudaError_t make(T** handle) {
  if (const cudaError_t error = fake.fails(); error != cudaSuccess) return error;
  fake.alive.insert(*handle = new T);
  return cudaSuccess;
}
template <class T>
cudaError_t end(T* handle) {
  EXPECT_EQ(fake.alive.erase(handle), 1u);
  delete handle;
  return cudaSuccess;
}

}  // namespace
}  // namespace strait::testing

using strait::testing::fake;

extern "C" {
cudaError_t CUDARTAPI cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t CUDARTAPI cudaSetDevice(int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaGetLastError() { return cudaSuccess; }
cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking)) << "waits for nobody";
  return strait::testing::make(stream);
}
cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) { return strait::testing::end(stream); }
cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) { return strait::testing::make(event); }
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) { return strait::testing::end(event); }
cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  strait::testing::enqueue(stream, [=] { event->at_ms = stream->now_ms; });
  return fake.fails();
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  strait::testing::enqueue(stream, [=] { stream->now_ms = std::max(stream->now_ms, event->at_ms); });
  return fake.fails();
}
cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  const bool is_up = kind == cudaMemcpyDeviceToHost;
  EXPECT_TRUE(is_up || kind == cudaMemcpyHostToDevice);
  strait::testing::enqueue(stream, [=] {
    std::memcpy(to, from, bytes);
    fake.copies.push_back({static_cast<const std::byte*>(to), static_cast<const std::byte*>(from), bytes, is_up});
    stream->now_ms += is_up ? fake.up_ms : fake.down_ms;
  });
  return fake.fails();
}
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  if (fake.looks-- > 0) return cudaErrorNotReady;
  for (; !stream->commands.empty(); stream->commands.pop_front()) stream->commands.front()();
  fake.now_ms = std::max(fake.now_ms, stream->now_ms);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  EXPECT_GE(from->at_ms, 0);
  EXPECT_GE(to->at_ms, 0);
  *ms = to->at_ms - from->at_ms;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  EXPECT_EQ(fake.alive.erase(memory), 1u);
  std::free(memory);
  return cudaSuccess;
}
}

namespace strait::cuda {
Status check(cudaError_t result, std::string_view what) {
  return result == cudaSuccess ? Status() : fail(Code::cuda_error, std::string(what));
}
Allocation::~Allocation() { EXPECT_EQ(driver_, nullptr); }
AddressRange::~AddressRange() { EXPECT_EQ(driver_, nullptr); }
Result<DeviceMemory> DeviceMemory::allocate(int /*device*/, std::size_t size_bytes, std::span<const int> /*peers*/) {
  STRAIT_TRY(check(testing::fake.fails(), "no memory"));
  DeviceMemory memory;
  memory.plain_ = std::calloc(1, size_bytes);
  testing::fake.alive.insert(memory.plain_);
  return memory;
}
}  // namespace strait::cuda

namespace strait::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
constexpr std::size_t mb = std::size_t{1} << 20, guard_bytes = 4096;

/// Host memory between guards that must not be accessed.
class ExchangeCopiesTest : public ::testing::Test {
 protected:
  ExchangeCopiesTest() { fake = {}; }
  ExchangeCopies::Setup setup(std::size_t bytes) {
    memory_.assign(bytes + 2 * guard_bytes, std::byte{0xa5});
    const std::span<std::byte> host(memory_.data() + guard_bytes, bytes);
    std::fill(host.begin(), host.end(), std::byte{0});
    return {0, host, [this] {
              ++asked_;
              return goes_on_;
            }};
  }
  void expect_untouched() const {
    const std::span all(memory_);
    EXPECT_THAT(all.first(guard_bytes), Each(std::byte{0xa5}));
    EXPECT_THAT(all.last(guard_bytes), Each(std::byte{0xa5}));
    EXPECT_EQ(std::count(memory_.begin(), memory_.end(), std::byte{0}), all.size() - 2 * guard_bytes);
  }
  std::vector<std::byte> memory_;
  Status goes_on_;
  int asked_ = 0;
};

TEST_F(ExchangeCopiesTest, CarryAllBytesBothWaysAndLeaveHostMemoryAsItWas) {
  for (const std::size_t host_bytes : {std::size_t{8192}, 900 * mb / 1000, 2 * mb, 9 * mb}) {
    auto copies = ExchangeCopies::open(setup(host_bytes));
    ASSERT_TRUE(copies);
    for (const std::size_t bytes : {mb / 2, 5 * mb}) {
      fake.copies.clear();
      const auto took = copies->copy(bytes);
      ASSERT_TRUE(took);
      std::size_t up = 0, down = 0;
      std::set<std::pair<const std::byte*, bool>> places;
      for (const Copy& copy : fake.copies) {
        (copy.is_up ? up : down) += copy.bytes;
        const std::byte* const host = copy.is_up ? copy.to : copy.from;
        EXPECT_GE(host, memory_.data() + guard_bytes);
        EXPECT_LE(host + copy.bytes, memory_.data() + guard_bytes + host_bytes);
        places.insert({host, copy.is_up});
      }
      EXPECT_EQ(up, bytes);
      EXPECT_EQ(down, bytes);
      EXPECT_EQ(places.size(), 2u) << "one for each way";
      EXPECT_EQ(took->count(), static_cast<std::int64_t>(fake.copies.size() / 2) * 2'000'000) << "of the slower way";
      expect_untouched();
    }
    EXPECT_TRUE(copies->have_ended());
  }
  EXPECT_TRUE(fake.alive.empty());
}

TEST_F(ExchangeCopiesTest, NeedRoom) {
  const auto copies = ExchangeCopies::open(setup(8191));
  ASSERT_FALSE(copies);
  EXPECT_THAT(copies.error().message, HasSubstr("have 8191 bytes, and need more"));
}

TEST_F(ExchangeCopiesTest, AskWhileTheyWaitWhetherTheSetUpGoesOn) {
  auto copies = ExchangeCopies::open(setup(mb));
  ASSERT_TRUE(copies);
  fake.looks = 5;
  EXPECT_TRUE(copies->copy(mb));
  EXPECT_EQ(asked_, 5);
}

/// Resources of copies that have not ended are not freed, because the copies may still use them.
TEST_F(ExchangeCopiesTest, AreLeftAloneWhereTheyDoNotEnd) {
  {
    auto copies = ExchangeCopies::open(setup(mb));
    ASSERT_TRUE(copies);
    const std::size_t alive = fake.alive.size();
    fake.looks = 1000;
    goes_on_ = fail(Code::aborted, "aborted on rank 1");
    const auto took = copies->copy(mb);
    ASSERT_FALSE(took);
    EXPECT_EQ(took.error().message, "copies between GPU 0 and host memory have not ended: aborted on rank 1");
    EXPECT_FALSE(copies->have_ended());
    const ExchangeCopies moved = std::move(*copies);
    EXPECT_FALSE(moved.have_ended());
    EXPECT_EQ(fake.alive.size(), alive);
  }
  EXPECT_FALSE(fake.alive.empty());
}

TEST_F(ExchangeCopiesTest, EndOrWereNeverThereWhereACallFails) {
  bool opened = false;
  for (int calls = 0; !opened; ++calls) {
    fake.calls_until_error = calls;
    opened = ExchangeCopies::open(setup(mb)).has_value();
    EXPECT_TRUE(fake.alive.empty()) << calls;
  }
  bool copied = false;
  for (int calls = 0; !copied; ++calls) {
    fake.calls_until_error = -1;
    auto copies = ExchangeCopies::open(setup(mb));
    ASSERT_TRUE(copies);
    fake.calls_until_error = calls;
    fake.looks = 3;
    asked_ = 0;
    const auto took = copies->copy(2 * mb);
    copied = took.has_value();
    if (!copied) {
      EXPECT_THAT(took.error().message, HasSubstr("copies between GPU 0 and host memory"));
    }
    EXPECT_EQ(asked_, 3) << "what was enqueued was waited for";
    EXPECT_TRUE(copies->have_ended());
  }
  EXPECT_TRUE(fake.alive.empty());
}

}  // namespace
}  // namespace strait::testing
