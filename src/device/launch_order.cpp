#include "device/launch_order.hpp"

#include <atomic>
#include <map>
#include <utility>

namespace strait {

Result<std::unique_ptr<LaunchOrder>> LaunchOrder::join(int device, std::uint32_t sms,
                                                       std::unique_ptr<StreamDriver> driver) {
  std::unique_ptr<LaunchOrder> order(new LaunchOrder(gpu_of(device), sms, std::move(driver)));
  for (Starts& each : order->starts_) {
    STRAIT_ASSIGN(each.last, order->driver_->create_event());
  }
  const std::scoped_lock lock(order->gpu_->mutex);
  order->gpu_->members.push_back(order.get());
  return order;
}

LaunchOrder::LaunchOrder(std::shared_ptr<Gpu> gpu, std::uint32_t sms, std::unique_ptr<StreamDriver> driver)
    : gpu_(std::move(gpu)), sms_(sms), driver_(std::move(driver)), number_([] {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
      }()) {}

LaunchOrder::~LaunchOrder() {
  const std::scoped_lock lock(gpu_->mutex);
  std::erase(gpu_->members, this);
  for (LaunchOrder* other : gpu_->members)
    for (Starts& each : other->starts_) each.seen.erase(number_);
  for (const Starts& each : starts_)
    if (each.last != nullptr) driver_->destroy_event(each.last);
}

std::shared_ptr<LaunchOrder::Gpu> LaunchOrder::gpu_of(int device) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Gpu>> gpus;
  const std::scoped_lock lock(mutex);
  std::weak_ptr<Gpu>& known = gpus[device];
  std::shared_ptr<Gpu> gpu = known.lock();
  if (!gpu) known = gpu = std::make_shared<Gpu>();
  return gpu;
}

void LaunchOrder::Starts::add(std::uint32_t blocks) {
  while (!largest.empty() && largest.back().blocks <= blocks) largest.pop_back();
  largest.push_back({++launches, blocks});
}

std::uint32_t LaunchOrder::Starts::blocks_from(std::uint64_t number) const {
  for (const Launch& each : largest)
    if (each.number + 1 >= number) return each.blocks;
  return 0;
}

/// Returns the blocks of the last launch of a line, and of all that may run at the same time.
std::uint64_t LaunchOrder::blocks_beside(const Starts& own) const {
  std::uint64_t all = 0;
  for (const LaunchOrder* each : gpu_->members) {
    const auto seen = own.seen.find(each->number_);
    for (std::size_t line = 0; line < each->starts_.size(); ++line) {
      const Starts& starts = each->starts_[line];
      const std::uint64_t awaited = seen == own.seen.end() ? 0 : seen->second[line];
      all += starts.blocks_from(&starts == &own ? own.launches : awaited);
    }
  }
  return all;
}

/// The launches of a line follow one another, so what one of them has awaited the later ones need not.
Status LaunchOrder::await_others(Starts& own, void* stream) {
  if (blocks_beside(own) <= sms_) return {};
  for (const LaunchOrder* other : gpu_->members) {
    if (other == this) continue;
    auto& seen = own.seen[other->number_];
    for (std::size_t line = 0; line < seen.size(); ++line) {
      const Starts& starts = other->starts_[line];
      if (seen[line] == starts.recorded) continue;
      STRAIT_TRY(driver_->wait(stream, starts.last));
      seen[line] = starts.recorded;
    }
  }
  return {};
}

}  // namespace strait
