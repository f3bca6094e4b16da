#include "support/emulated_gpu.hpp"
//
#include "kernels/add.cuh"
#include "peers.hpp"

namespace strait::testing {
namespace {

void run_add(const kernels::Add& add, DataType type, std::uint32_t index, std::uint32_t blocks, std::uint32_t seed) {
  run_threads(32, blocks, index, seed, [&] {
    spec::visit(type, [&]<DataType t>() {
      constexpr kernels::KernelType kind = kernels::kernel_type(t);
      if (add.op == ReduceOp::sum)
        kernels::add_chunks<kind, kind != kernels::KernelType::others>(add);
      else
        kernels::add_chunks<kind, false>(add);
    });
  });
}

}  // namespace

PeerRank::PeerRank(Peers& peers, std::uint32_t rank, const FakeStreams::Options& streams, std::uint32_t blocks,
                   bool has_windows)
    : peers_(peers), rank_(rank), blocks_(blocks) {
  auto owned = std::make_unique<FakeStreams>(streams);
  driver = owned.get();
  copy_engine::PeerCopies::Setup own = setup(std::move(owned));
  if (!has_windows) own.window_bytes = 0;
  if (has_windows)
    messages = copy_engine::PeerMessages::open({.driver = own.driver,
                                                .rank = own.rank,
                                                .ranks = own.ranks,
                                                .windows_there = own.windows_there,
                                                .windows_here = own.windows_here,
                                                .window_bytes = own.window_bytes,
                                                .host_words = own.host_words,
                                                .device_words = own.device_words,
                                                .has_failed = own.has_failed})
                   .value();
  copies = copy_engine::PeerCopies::open(std::move(own)).value();
  stream = driver->create_stream().value();
}

copy_engine::PeerCopies::Setup PeerRank::setup(std::unique_ptr<FakeStreams> streams) {
  auto words = peers_.machine.setup(rank_, {}, std::move(streams));
  copy_engine::PeerCopies::Setup setup{
      .driver = std::move(words.driver),
      .rank = rank_,
      .ranks = words.ranks,
      .windows_there = {},
      .windows_here = {},
      .window_bytes = peers_.window_bytes,
      .contributed_there = {},
      .contributed_here = {},
      .host_words = words.host,
      .device_words = words.device,
      .launch = [this](const CopyCall& call, const kernels::Add& add,
                       copy_engine::StreamDriver::Stream on) { return launch(call, add, on); },
      .has_failed = words.has_failed};
  for (std::uint32_t peer = 0; peer < words.ranks; ++peer) {
    setup.windows_there[peer] = peers_.window(rank_, peer);
    setup.windows_here[peer] = peers_.window(peer, rank_);
    setup.contributed_there[peer] = peers_.contributed(rank_, peer);
    setup.contributed_here[peer] = peers_.contributed(peer, rank_);
  }
  return setup;
}

std::uint32_t PeerRank::hash_of(const CopyCall& call) {
  const auto what = static_cast<std::uint64_t>(call.collective) << 24 | static_cast<std::uint64_t>(call.type) << 16 |
                    static_cast<std::uint64_t>(call.op) << 8 | call.root;
  return static_cast<std::uint32_t>(mix(mix(what) + call.count));
}

void PeerRank::drain() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!driver->is_idle(stream)) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    copies->release_waits();
    if (messages) messages->release_waits();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void PeerRank::end_at(Stop* stop) {
  using namespace std::chrono_literals;
  if (stop != nullptr) {
    while (!stop->is_reached() && !driver->is_idle(stream)) std::this_thread::sleep_for(100us);
    std::this_thread::sleep_for(3ms);
    peers_.fail();
    std::this_thread::sleep_for(2ms);
    stop->open();
  }
  while (!peers_.machine.failed() && !driver->is_idle(stream)) std::this_thread::sleep_for(100us);
  drain();
}

Status PeerRank::launch(const CopyCall& call, kernels::Add add, copy_engine::StreamDriver::Stream on) {
  add.shares_done = shares_done_;
  add.ring.rank = rank_;
  add.ring.ranks = add.ring.averaged = peers_.machine.ranks();
  add.ring.mailbox = &peers_.mailbox(rank_);
  add.ring.launch_counts = &peers_.launch_counts(rank_);
  add.ring.slow_ns = kernels::never_slow_ns;
  add.ring.timeout_ns = 60'000'000'000;
  const auto begin = [this, type = call.type, add] {
    for (std::uint32_t index = 0; index < blocks_; ++index)
      kernels_.emplace_back([=, this] { run_add(add, type, index, blocks_, ++seed_); });
  };
  driver->launch(on, begin, [this] { kernels_.clear(); });
  return {};
}

}  // namespace strait::testing
