#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstddef>

#include "base/deadline.hpp"
#include "transports/tcp/ucx/ucx.hpp"

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>
// The hand-written declarations match the library's.
namespace strait::ucp_abi {
static_assert(sizeof(Outcome) == sizeof(ucs_status_t));
static_assert(static_cast<int>(Outcome::in_progress) == UCS_INPROGRESS);
static_assert(static_cast<int>(Outcome::busy) == UCS_ERR_BUSY);
static_assert(static_cast<int>(Outcome::last_error) == UCS_ERR_LAST);
static_assert(api_major == UCP_API_MAJOR && api_minor <= UCP_API_MINOR);
static_assert(sizeof(ContextParameters) >= sizeof(ucp_params_t));
static_assert(offsetof(ContextParameters, features) == offsetof(ucp_params_t, features));
static_assert(context_features == UCP_PARAM_FIELD_FEATURES);
static_assert(feature_tag == UCP_FEATURE_TAG && feature_wakeup == UCP_FEATURE_WAKEUP);
static_assert(sizeof(WorkerParameters) >= sizeof(ucp_worker_params_t));
static_assert(offsetof(WorkerParameters, thread_mode) == offsetof(ucp_worker_params_t, thread_mode));
static_assert(worker_thread_mode == UCP_WORKER_PARAM_FIELD_THREAD_MODE);
static_assert(thread_mode_serialized == UCS_THREAD_MODE_SERIALIZED);
static_assert(sizeof(EndpointParameters) >= sizeof(ucp_ep_params_t));
static_assert(offsetof(EndpointParameters, address) == offsetof(ucp_ep_params_t, address));
static_assert(offsetof(EndpointParameters, error_mode) == offsetof(ucp_ep_params_t, err_mode));
static_assert(offsetof(EndpointParameters, handle_error) == offsetof(ucp_ep_params_t, err_handler.cb));
static_assert(offsetof(EndpointParameters, argument) == offsetof(ucp_ep_params_t, err_handler.arg));
static_assert(endpoint_address == UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
static_assert(endpoint_error_mode == UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
static_assert(endpoint_error_handler == UCP_EP_PARAM_FIELD_ERR_HANDLER);
static_assert(error_mode_peer == UCP_ERR_HANDLING_MODE_PEER);
static_assert(sizeof(RequestParameters) >= sizeof(ucp_request_param_t));
static_assert(offsetof(RequestParameters, flags) == offsetof(ucp_request_param_t, flags));
static_assert(offsetof(RequestParameters, memory_type) == offsetof(ucp_request_param_t, memory_type));
static_assert(request_flags == UCP_OP_ATTR_FIELD_FLAGS && request_memory_type == UCP_OP_ATTR_FIELD_MEMORY_TYPE);
static_assert(close_by_force == UCP_EP_CLOSE_FLAG_FORCE && memory_type_host == UCS_MEMORY_TYPE_HOST);
}  // namespace strait::ucp_abi
#endif

namespace strait::testing {
namespace {

using ucx::Worker;

/// Two workers in this process.
class Workers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      auto worker = Worker::open(rank, 2);
      if (!worker && worker.error().code == Code::unsupported) GTEST_SKIP() << worker.error().message;
      ASSERT_TRUE(worker) << worker.error().message;
      workers[rank] = std::move(*worker);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_FALSE(workers[rank]->is_connected(1 - rank));
      ASSERT_TRUE(workers[rank]->connect(1 - rank, workers[1 - rank]->address()));
      EXPECT_TRUE(workers[rank]->is_connected(1 - rank));
      EXPECT_FALSE(workers[rank]->is_connected(rank));
    }
  }
  /// Makes progress on both workers until the condition holds, or for 20 s; returns whether it holds.
  template <class Condition>
  bool soon(const Condition& condition) {
    const Deadline deadline = Deadline::after_ms(20'000);
    while (!condition()) {
      if (deadline.expired()) return false;
      for (auto& worker : workers)
        if (worker) worker->progress();
    }
    return true;
  }
  std::array<std::unique_ptr<Worker>, 2> workers;
};

std::byte value_of(std::size_t message, std::size_t place) { return static_cast<std::byte>(message * 31 + place * 7); }

/// This holds whether messages come before they are asked for or after, and in both directions.
TEST_F(Workers, BringTheNthMessageToTheNthPlace) {
  const std::array<std::size_t, 7> lengths{1, 0, 17, 16 << 10, 300'001, 4 << 20, 5};
  for (const bool asks_first : {false, true}) {
    std::array<std::array<Bytes, 7>, 2> sent, received;
    std::array<bool, 14> arrived{};
    const auto send_all = [&] {
      for (std::uint32_t rank = 0; rank < 2; ++rank)
        for (std::size_t m = 0; m < lengths.size(); ++m) {
          Bytes& bytes = sent[rank][m];
          for (std::size_t i = 0; i < lengths[m]; ++i) bytes.push_back(value_of(2 * m + rank, i));
          workers[rank]->send(1 - rank, bytes);
        }
    };
    if (!asks_first) send_all();
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      for (std::size_t m = 0; m < lengths.size(); ++m) {
        received[rank][m].assign(lengths[m], std::byte{0xee});
        workers[rank]->receive(1 - rank, received[rank][m], arrived[2 * m + rank]);
      }
    if (asks_first) send_all();
    ASSERT_TRUE(soon([&] { return !workers[0]->is_busy() && !workers[1]->is_busy(); }));
    for (const bool each : arrived) EXPECT_TRUE(each);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(received[rank], sent[1 - rank]);
      EXPECT_EQ(workers[rank]->failure(1 - rank), "");
      EXPECT_FALSE(workers[rank]->has_lost(1 - rank));
    }
  }
}

TEST_F(Workers, TellByTheDescriptorThatThereIsSomethingToDo) {
  bool has_arrived = false;
  Bytes place(100);
  workers[1]->receive(0, place, has_arrived);
  pollfd readable{workers[1]->fd(), POLLIN, 0};
  ASSERT_TRUE(soon([&] { return workers[1]->prepare_sleep() && ::poll(&readable, 1, 50) == 0; })) << "once connected";
  const Bytes bytes(100, std::byte{7});
  workers[0]->send(1, bytes);
  const Deadline deadline = Deadline::after_ms(20'000);
  while (!has_arrived && !deadline.expired()) {
    workers[0]->progress();
    if (::poll(&readable, 1, 1) > 0) workers[1]->progress();
    while (!has_arrived && !workers[1]->prepare_sleep()) workers[1]->progress();
  }
  EXPECT_TRUE(has_arrived);
  EXPECT_EQ(place, bytes);
}

/// A message that the peer never sent is not lost before this rank asks for it.
TEST_F(Workers, LoseWhatAPeerTakesWithIt) {
  bool has_arrived = false;
  Bytes first(100), place(1 << 20);
  workers[1]->receive(0, first, has_arrived);
  const Bytes bytes(100, std::byte{7});
  workers[0]->send(1, bytes);
  ASSERT_TRUE(soon([&] { return has_arrived; }));
  EXPECT_FALSE(workers[1]->has_lost(0));
  workers[1]->receive(0, place, has_arrived);
  workers[0].reset();
  ASSERT_TRUE(soon([&] { return workers[1]->has_lost(0); }));
  EXPECT_NE(workers[1]->failure(0).find("UCX: "), std::string::npos);
  EXPECT_FALSE(has_arrived);
  EXPECT_FALSE(workers[1]->is_sending_to(0));
}

/// When the peer or the path to it failed, data that UCX had accepted for sending may have got no further than UCX's
/// own copy.
TEST_F(Workers, MayLoseWhatIsSent) {
  bool has_arrived = false;
  Bytes place(100);
  const Bytes bytes(100, std::byte{7});
  workers[0]->send(1, bytes);
  workers[1]->receive(0, place, has_arrived);
  ASSERT_TRUE(soon([&] { return has_arrived && !workers[0]->is_busy(); }));
  EXPECT_FALSE(workers[0]->has_lost(1));
  workers[1].reset();
  ASSERT_TRUE(soon([&] { return !workers[0]->failure(1).empty(); }));
  EXPECT_FALSE(workers[0]->is_busy());
  EXPECT_TRUE(workers[0]->has_lost(1));
}

/// Messages from several peers come in any order.
TEST(SeveralWorkers, AreToldApart) {
  std::array<std::unique_ptr<Worker>, 3> workers;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    auto worker = Worker::open(rank, 3);
    if (!worker && worker.error().code == Code::unsupported) GTEST_SKIP() << worker.error().message;
    ASSERT_TRUE(worker) << worker.error().message;
    workers[rank] = std::move(*worker);
  }
  for (const std::uint32_t sender : {1, 2}) {
    ASSERT_TRUE(workers[0]->connect(sender, workers[sender]->address()));
    ASSERT_TRUE(workers[sender]->connect(0, workers[0]->address()));
  }
  std::array<bool, 3> arrived{};
  std::array<Bytes, 3> places;
  const Deadline deadline = Deadline::after_ms(20'000);
  const auto until = [&](const bool& done) {
    while (!done && !deadline.expired())
      for (auto& worker : workers) worker->progress();
  };
  for (const std::uint32_t sender : {1, 2}) {
    places[sender].resize(1000);
    workers[0]->receive(sender, places[sender], arrived[sender]);
  }
  for (const std::uint32_t sender : {2, 1}) {
    const Bytes bytes(1000, static_cast<std::byte>(sender));
    workers[sender]->send(0, bytes);
    until(arrived[sender]);
    EXPECT_EQ(places[sender], bytes);
  }
}

}  // namespace
}  // namespace strait::testing
