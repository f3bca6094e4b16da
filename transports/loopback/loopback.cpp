#include "transports/loopback/loopback.hpp"

#include <map>
#include <mutex>

#include "base/mapping.hpp"

namespace strait::loopback {
namespace {

/// Returns the segment of the communicator `name`. The first rank of this process that asks creates it; it is unmapped
/// when the last rank drops its reference.
Result<std::shared_ptr<Mapping>> find_or_make(const std::string& name, std::size_t size_bytes) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Mapping>> segments;
  const std::lock_guard lock(mutex);
  std::erase_if(segments, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = segments[name];
  if (auto segment = entry.lock()) return segment;
  STRAIT_ASSIGN(Mapping mapping, Mapping::anonymous(size_bytes));
  auto segment = std::make_shared<Mapping>(std::move(mapping));
  entry = segment;
  return segment;
}

}  // namespace

Result<std::unique_ptr<slots::SegmentTransport>> open(const std::string& name, const slots::Geometry& geometry,
                                                      std::uint32_t rank) {
  STRAIT_ASSIGN(auto mapping, find_or_make(name, slots::Segment::size_bytes(geometry)));
  std::vector<slots::PeerView> views(geometry.ranks, {slots::PeerView::Kind::same_addresses, nullptr});
  const slots::Segment segment(mapping->data(), geometry);
  return std::make_unique<slots::SegmentTransport>("loopback", segment, rank, std::move(views), nullptr,
                                                   std::vector<std::shared_ptr<void>>{mapping}, slots::PeerMemory::any);
}

}  // namespace strait::loopback
