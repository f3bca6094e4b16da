// The roots of this process and their threads.
#include <unistd.h>

#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/shortage.hpp"
#include "bootstrap/root_service.hpp"

namespace strait {
namespace {

/// Keeps a thread object in a forked child, neither joined nor detached: the parent's thread does not exist there, and
/// its handle may by now name a thread of the child's own.
void abandon(std::thread thread) {
  static auto* const abandoned = new std::list<std::thread>;  // never destroyed
  abandoned->push_back(std::move(thread));
}

/// A root and its thread.
class RunningRoot {
 public:
  RunningRoot(UniqueId id, Socket listener, RootOptions options)
      : address_(id.root),
        job_(options.job),
        known_as_(options.known_as),
        owner_(::getpid()),
        root_(id, std::move(listener), std::move(options)) {
    thread_ = std::thread([this] {
      root_.run(stop_);
      finished_.store(true, std::memory_order_release);
    });
  }
  ~RunningRoot() {
    stop_.store(true, std::memory_order_relaxed);
    if (owner_ == ::getpid())
      thread_.join();
    else
      abandon(std::move(thread_));
  }
  RunningRoot(const RunningRoot&) = delete;
  RunningRoot& operator=(const RunningRoot&) = delete;

  bool finished() const { return finished_.load(std::memory_order_acquire); }
  bool failed() const { return root_.failed(); }
  const SocketAddress& address() const { return address_; }
  const std::string& job() const { return job_; }
  RootReport report() const {
    RootReport report{finished(), root_.roster().joined(), root_.strangers_dropped(), root_.roster().missing()};
    for (int& rank : report.missing)
      if (const auto place = static_cast<std::size_t>(rank); place < known_as_.size()) rank = known_as_[place];
    return report;
  }

 private:
  SocketAddress address_;
  std::string job_;
  std::vector<int> known_as_;
  pid_t owner_;
  Root root_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> finished_{false};
  std::thread thread_;
};

struct Registry {
  std::mutex mutex;
  std::list<std::unique_ptr<RunningRoot>> roots;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

/// Ends the roots for which `is_over` is true; waits for their threads after releasing the registry's lock.
template <class IsOver>
void end_roots(Registry& registry, const IsOver& is_over) {
  std::list<std::unique_ptr<RunningRoot>> over;
  std::lock_guard lock(registry.mutex);
  for (auto next = registry.roots.begin(); next != registry.roots.end();)
    if (const auto root = next++; is_over(**root)) over.splice(over.end(), registry.roots, root);
}

/// Listens at the address, in place of a failed earlier root of this process: ranks that it would still tell of the
/// failure are to join the new root. Tries for 1 s: that root may not have noticed yet that its own rank gave up.
Result<Socket> listen_in_place_of_failed(Registry& registry, const SocketAddress& address) {
  for (const Deadline soon = Deadline::after_ms(1000);;) {
    end_roots(registry, [&](const RunningRoot& root) { return root.failed() && root.address() == address; });
    auto listener = listen_at(address);
    if (listener || soon.expired() || !report_of_root(address)) return listener;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Result<UniqueId> start_root(UniqueId id, RootOptions options) {
  STRAIT_TRY(start_crypto());
  Registry& all = registry();
  end_roots(all, [&](const RunningRoot& root) {
    return root.finished() || (options.reserved != nullptr && root.address() == id.root);
  });
  STRAIT_ASSIGN(Socket listener,
                options.reserved != nullptr ? listen_on(*options.reserved) : listen_in_place_of_failed(all, id.root));
  STRAIT_ASSIGN(id.root, listener.local_address());
  std::lock_guard lock(all.mutex);
  try {
    all.roots.push_back(std::make_unique<RunningRoot>(id, std::move(listener), std::move(options)));
  } catch (const std::system_error& error) {
    return cannot_start_thread(error, "that waits for ranks");
  }
  return id;
}

void end_failed_root(const std::string& job) {
  end_roots(registry(), [&](const RunningRoot& root) { return root.failed() && root.job() == job; });
}

std::optional<RootReport> report_of_root(const SocketAddress& address) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  for (auto it = all.roots.rbegin(); it != all.roots.rend(); ++it)
    if ((*it)->address() == address) return (*it)->report();
  return std::nullopt;
}

}  // namespace strait
