#include "doctor/team.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/cpus.hpp"

namespace strait::doctor {
namespace {

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

constexpr int turns = 2000;

struct alignas(64) Word {
  std::atomic<std::uint64_t> value{0};
};

}  // namespace

std::vector<int> usable_cores() {
  const std::vector<std::uint32_t> cpus = allowed_cpus();
  return {cpus.begin(), cpus.end()};
}

void Team::run(const std::function<void(int)>& body) {
  arrived_ = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < size(); ++thread)
    threads.emplace_back([&, thread] {
      pin(cores_[static_cast<std::size_t>(thread)]);
      meet();
      body(thread);
    });
}

void Team::meet() {
  const auto all = static_cast<std::uint64_t>(size());
  const std::uint64_t round = arrived_.fetch_add(1) / all;
  for (int spins = 0; arrived_.load() < (round + 1) * all; ++spins)
    if (spins > 10000) sched_yield();
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quick_quarter(std::vector<double> times) {
  const auto place = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

double handover_us(Team& pair, bool yields, int repeats) {
  Word words[2];
  std::vector<double> times;
  pair.run([&](int thread) {
    std::uint64_t turn = 0;
    for (int i = 0; i < repeats; ++i) {
      const double began = now_us();
      for (int t = 0; t < turns; ++t) {
        ++turn;
        const auto wait = [&] {
          while (words[1 - thread].value.load(std::memory_order_acquire) < turn)
            if (yields) sched_yield();
        };
        if (thread == 1) wait();
        words[thread].value.store(turn, std::memory_order_release);
        if (thread == 0) wait();
      }
      if (thread == 0) times.push_back((now_us() - began) / (2 * turns));
    }
  });
  return quick_quarter(std::move(times));
}

}  // namespace strait::doctor
