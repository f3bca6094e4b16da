#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "topo/cuda_driver.hpp"
#include "topo/measurements.hpp"
#include "topology/json.hpp"

namespace strait::topo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Returns the fake driver's machine: both GPUs are behind one root port, and connected by an NVLink.
Topology machine() {
  auto topology = parse_topology_json(R"({"strait_topology": 1, "name": "fake", "hosts": [{"name": "host0", "devices": [
      {"name": "numa0", "kind": "numa", "cpus": "0-3"},
      {"name": "port0", "kind": "root_port", "parent": "numa0", "link": {"gbps": 12, "us": 0.3}},
      {"name": "gpu0", "kind": "gpu", "parent": "port0", "bus_id": "0000:41:00.0", "link": {"gbps": 12, "us": 0.3}},
      {"name": "gpu1", "kind": "gpu", "parent": "port0", "bus_id": "0000:42:00.0", "link": {"gbps": 12, "us": 0.3}}],
      "links": [{"kind": "nvlink", "from": "gpu0", "to": "gpu1", "gbps": 56, "us": 0.5}]}]})",
                                      "test");
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return std::move(topology).value();
}

std::string error_of(const char* library, int longest_ms = 5000) {
  const auto found = measure_gpus(machine(), library, longest_ms);
  EXPECT_FALSE(found);
  return found ? "" : found.error().message;
}

/// Returns how many resources the driver loaded from `library` still holds.
int left(const char* library) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  auto* count = reinterpret_cast<int (*)()>(::dlsym(handle, "fakeCudaLeft"));
  return count();  // not closed, since closing it would forget what is held
}

/// Matches a rate that may be somewhat lower on a busy machine, but never higher.
testing::Matcher<double> about(double gbps) { return AllOf(testing::Gt(0.4 * gbps), testing::Le(1.01 * gbps)); }

class Measured : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    left(FAKE_CUDA_GOOD);
    auto found = measure_gpus(machine(), FAKE_CUDA_GOOD);
    ASSERT_TRUE(found) << found.error().message;
    gpus = std::make_unique<GpuMeasurements>(std::move(*found));
  }
  static void TearDownTestSuite() { gpus.reset(); }
  static std::unique_ptr<GpuMeasurements> gpus;
};
std::unique_ptr<GpuMeasurements> Measured::gpus;

TEST_F(Measured, EveryLinkAloneAndAllAtOnce) {
  ASSERT_EQ(gpus->host_links.size(), 2U);
  for (const HostLink& link : gpus->host_links) {
    EXPECT_THAT(link.up_gbps, about(8));
    EXPECT_THAT(link.down_gbps, about(10));
    EXPECT_LT(link.up_us, 5000);
  }
  // The two GPUs share both directions: together they have no more than one alone.
  EXPECT_LE(gpus->host_links[0].up_all_gbps, 1.1 * 4);
  EXPECT_LE(gpus->host_links[0].down_all_gbps, 1.1 * 5);
  EXPECT_THAT(gpus->pair_gbps[0][1], about(16));
  EXPECT_THAT(gpus->pair_gbps[1][0], about(4));
  EXPECT_EQ(gpus->pair_gbps[0][0], 0);
  EXPECT_TRUE(gpus->p2p[0][1]);
  EXPECT_FALSE(gpus->p2p[1][0]);
  EXPECT_EQ(gpus->ring_gbps.size(), 2U);
  EXPECT_EQ(gpus->bus_ids[1], "0000:42:00.0");
}

TEST_F(Measured, GivesEverythingBack) { EXPECT_EQ(left(FAKE_CUDA_GOOD), 0); }

TEST_F(Measured, RatesBecomeThoseOfTheTopology) {
  const auto measured = with_measured_rates(machine(), *gpus, "test");
  ASSERT_TRUE(measured) << measured.error().message;
  const DeviceId gpu0 = *measured->find("host0/gpu0"), gpu1 = *measured->find("host0/gpu1");
  EXPECT_DOUBLE_EQ(measured->path(gpu0, gpu1).bandwidth_gbps, gpus->pair_gbps[0][1]);
  EXPECT_DOUBLE_EQ(measured->path(gpu1, gpu0).bandwidth_gbps, gpus->pair_gbps[1][0]);
  // On the way up to memory the port is the limit, with the rate that both GPUs had together.
  const DeviceId numa = measured->numa_of(gpu0);
  const double both_gbps = gpus->host_links[0].up_all_gbps + gpus->host_links[1].up_all_gbps;
  EXPECT_DOUBLE_EQ(measured->path(gpu0, numa).bandwidth_gbps, std::min(both_gbps, gpus->host_links[0].up_gbps));
  // The result is a file that can be read again.
  const auto again = parse_topology_json(to_json(*measured), "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->data().calibrations, measured->data().calibrations);
}

TEST_F(Measured, GpusThatTheTopologyDoesNotKnowChangeNothing) {
  GpuMeasurements others = *gpus;
  others.bus_ids = {"0000:51:00.0", "0000:52:00.0"};
  const auto measured = with_measured_rates(machine(), others, "test");
  ASSERT_TRUE(measured);
  EXPECT_TRUE(measured->data().calibrations.empty());
}

TEST_F(Measured, IsPrinted) {
  Measurements all;
  all.host = {{0, 1}, {{0, 30}, {30, 0}}, {{0, 0.1}, {0.1, 0}}, 30, 20};
  all.gpus.push_back(*gpus);
  EXPECT_THAT(to_text(all), AllOf(HasSubstr("cpu1"), HasSubstr("gpu1"), HasSubstr("Fake 1"), HasSubstr("gpu1->gpu0"),
                                  Not(HasSubstr("gpu0->gpu1"))));
  const auto json = nlohmann::json::parse(to_json(all));
  EXPECT_EQ(json["gpus"]["pair_gbps"][0][1], gpus->pair_gbps[0][1]);
  all.gpus.clear();
  all.no_gpus = "no UTF-8: \xfc";
  EXPECT_EQ(nlohmann::json::parse(to_json(all))["no_gpus"], "no UTF-8: \uFFFD");
  all.no_gpus = "there is no driver";
  EXPECT_THAT(to_text(all), HasSubstr("there is no driver"));
  EXPECT_TRUE(nlohmann::json::parse(to_json(all))["gpus"].is_null());
}

TEST(Driver, OpensTheGpusThatAreUsedAndNoOthers) {
  left(FAKE_CUDA_GOOD);
  auto opened = CudaDriver::open(FAKE_CUDA_GOOD);
  ASSERT_TRUE(opened) << opened.error().message;
  CudaDriver& driver = **opened;
  EXPECT_EQ(driver.gpus(), 2);
  EXPECT_EQ(driver.name(1).value_or(""), "Fake 1");
  EXPECT_EQ(left(FAKE_CUDA_GOOD), 0) << "no context is needed so far";
  // The fake GPU 1 has one byte less free than GPU 0, which shows that the right GPU was asked.
  EXPECT_EQ(driver.free_bytes(1).value_or(0), (std::size_t{1} << 30) - 1);
  auto staging = driver.host_memory(1024, 1);
  auto memory = driver.gpu_memory(1, 1024);
  auto stream = driver.stream(1);
  ASSERT_TRUE(staging && memory && stream);
  EXPECT_NE(stream->handle(), nullptr);
  EXPECT_EQ(left(FAKE_CUDA_GOOD), 4) << "one context, two allocations, one stream";
  ASSERT_TRUE(driver.to_gpu(*stream, *memory, *staging, 1024));
  ASSERT_TRUE(driver.wait(*stream, Deadline::after_ms(5000)));
  EXPECT_TRUE(driver.is_done(*stream).value_or(false));
}

TEST(Driver, SaysThatAStreamIsNotDone) {
  auto opened = CudaDriver::open(FAKE_CUDA_STUCK);
  ASSERT_TRUE(opened) << opened.error().message;
  auto stream = (*opened)->stream(0);
  ASSERT_TRUE(stream);
  EXPECT_FALSE((*opened)->is_done(*stream).value_or(true));
}

TEST(Missing, IsNamedWithARemedy) {
  EXPECT_THAT(error_of("libno-such-driver.so"), AllOf(HasSubstr("cannot be loaded"), HasSubstr("Install")));
  EXPECT_THAT(error_of(FAKE_CUDA_EMPTY), AllOf(HasSubstr("no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(error_of(FAKE_CUDA_OLD), AllOf(HasSubstr("cuMemcpyPeerAsync"), HasSubstr("Update")));
}

TEST(Broken, CopiesThatFailNameTheGpus) {
  left(FAKE_CUDA_FAILING);
  EXPECT_THAT(error_of(FAKE_CUDA_FAILING), AllOf(HasSubstr("from GPU 0 to GPU 1"), HasSubstr("illegal memory access")));
  EXPECT_EQ(left(FAKE_CUDA_FAILING), 0);
}

TEST(Broken, CopiesThatNeverEndAreAnErrorWithinTheDeadline) {
  left(FAKE_CUDA_STUCK);
  const auto found = measure_gpus(machine(), FAKE_CUDA_STUCK, 50);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::timeout);
  EXPECT_THAT(found.error().message, HasSubstr("work of GPU 0 does not end"));
  EXPECT_GT(left(FAKE_CUDA_STUCK), 0) << "freeing memory would wait for the copies";
}

}  // namespace
}  // namespace strait::topo
