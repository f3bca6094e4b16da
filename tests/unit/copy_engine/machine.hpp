#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/mapping.hpp"
#include "base/unique_fd.hpp"
#include "executor/copy_engine/staged_copies.hpp"
#include "support/fake_streams.hpp"

namespace strait::testing {

/// Whether host and device use one mapping. The thread sanitizer takes two addresses of the same word for different
/// words, and so would not see that accesses through them are ordered.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool one_view = true;
#else
inline constexpr bool one_view = false;
#endif

/// Memory that the ranks of a host share, mapped twice: for the host, and at other addresses for the devices.
class Machine {
 public:
  Machine(std::uint32_t ranks, std::size_t size_bytes)
      : ranks_(ranks), fd_(memfd_create("staging", MFD_CLOEXEC)), size_bytes_(size_bytes) {
    EXPECT_EQ(ftruncate(fd_.get(), static_cast<off_t>(size_bytes)), 0);
    host_ = Mapping::of_file(fd_.get(), size_bytes).value();
    if (!one_view) device_ = Mapping::of_file(fd_.get(), size_bytes).value();
  }
  std::uint32_t ranks() const { return ranks_; }
  std::byte* host() const { return host_.data(); }
  std::atomic<bool>& failed() { return failed_; }

  copy_engine::StagedCopies::Setup setup(std::uint32_t rank, const copy_engine::StagedOptions& options,
                                         std::unique_ptr<FakeStreams> driver) {
    if (!one_view) driver->forbid(host_.data(), size_bytes_);
    return {.driver = std::move(driver),
            .rank = rank,
            .ranks = ranks_,
            .host = host_.data(),
            .device = one_view ? host_.data() : device_.data(),
            .size_bytes = size_bytes_,
            .options = options,
            .has_failed = [this] { return failed_.load(); }};
  }

 private:
  std::uint32_t ranks_;
  UniqueFd fd_;
  std::size_t size_bytes_;
  Mapping host_, device_;
  std::atomic<bool> failed_ = false;
};

/// One rank of a machine, with a stream that stands for the user's.
struct Rank {
  Rank(Machine& machine, std::uint32_t own_rank, const copy_engine::StagedOptions& options,
       const FakeStreams::Options& streams)
      : rank(own_rank) {
    auto owned = std::make_unique<FakeStreams>(streams);
    driver = owned.get();
    copies = copy_engine::StagedCopies::open(machine.setup(rank, options, std::move(owned))).value();
    stream = driver->create_stream().value();
  }
  /// Ends all waits of this rank's streams, as the attendant thread does after a failure.
  void drain() const {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!driver->is_idle(stream)) {
      ASSERT_LT(std::chrono::steady_clock::now(), give_up);
      copies->release_waits();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::uint32_t rank;
  FakeStreams* driver = nullptr;
  std::unique_ptr<copy_engine::StagedCopies> copies;
  copy_engine::StreamDriver::Stream stream = nullptr;
};

inline void as_threads(std::uint32_t ranks, const std::function<void(std::uint32_t rank)>& body) {
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
}

/// Returns options with which even small messages take many rounds.
inline copy_engine::StagedOptions small_options(std::uint32_t depth = 4) {
  return {.depth = depth, .chunk_bytes = 64 << 10, .least_chunk_bytes = 4096, .wanted_rounds = 12};
}

}  // namespace strait::testing
