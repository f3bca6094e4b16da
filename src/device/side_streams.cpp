#include "device/side_streams.hpp"

#include <utility>

namespace strait {

Result<std::unique_ptr<SideStreams>> SideStreams::open(std::unique_ptr<copy_engine::StreamDriver> driver) {
  std::unique_ptr<SideStreams> streams(new SideStreams(std::move(driver)));
  STRAIT_ASSIGN(streams->begun_, streams->driver_->create_event());
  STRAIT_TRY(streams->lane_.open(*streams->driver_));
  return streams;
}

/// Does not wait: the streams' work goes on.
SideStreams::~SideStreams() {
  lane_.close(*driver_);
  if (begun_ != nullptr) driver_->destroy_event(begun_);
}

Result<SideStreams::Stream> SideStreams::fork(Stream stream) {
  STRAIT_ASSIGN(const copy_engine::StreamState state, driver_->look_at(stream));
  STRAIT_TRY(driver_->record(begun_, stream));
  STRAIT_TRY(lane_.fork(*driver_, begun_, state.capture_id));
  return lane_.stream;
}

}  // namespace strait
