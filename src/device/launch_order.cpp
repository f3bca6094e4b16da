#include "device/launch_order.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

namespace strait {

Result<std::unique_ptr<LaunchOrder>> LaunchOrder::join(int device, std::uint32_t sms,
                                                       std::unique_ptr<StreamDriver> driver) {
  std::unique_ptr<LaunchOrder> order(new LaunchOrder(gpu_of(device), sms, std::move(driver)));
  STRAIT_ASSIGN(order->started_, order->driver_->create_event());
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
  for (LaunchOrder* other : gpu_->members) other->seen_.erase(number_);
  if (started_ != nullptr) driver_->destroy_event(started_);
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

/// This communicator's own launches follow one another, so what one of them has awaited the later ones need not.
Status LaunchOrder::await_others(std::uint32_t blocks, void* stream) {
  most_blocks_ = std::max(most_blocks_, blocks);
  std::uint64_t all = 0;
  for (const LaunchOrder* each : gpu_->members) all += each->most_blocks_;
  if (all <= sms_) return {};
  for (const LaunchOrder* other : gpu_->members) {
    if (other == this) continue;
    std::uint64_t& seen = seen_[other->number_];
    if (seen == other->launches_) continue;
    STRAIT_TRY(driver_->wait(stream, other->started_));
    seen = other->launches_;
  }
  return {};
}

}  // namespace strait
