#include "communicator/side_streams.hpp"

#include <utility>

namespace strait {

Result<std::unique_ptr<SideStreams>> SideStreams::open(std::unique_ptr<staged::StreamDriver> driver) {
  std::unique_ptr<SideStreams> streams(new SideStreams(std::move(driver)));
  STRAIT_ASSIGN(streams->begun_, streams->driver_->create_event());
  STRAIT_TRY(streams->add().map([](const staged::Lane*) {}));
  return streams;
}

/// What they were given goes on.
SideStreams::~SideStreams() {
  for (staged::Lane& lane : lanes_) lane.close(*driver_);
  if (begun_ != nullptr) driver_->destroy_event(begun_);
}

Result<staged::Lane*> SideStreams::add() {
  staged::Lane& lane = lanes_.emplace_back();
  STRAIT_TRY(lane.open(*driver_));
  return &lane;
}

Result<staged::Lane*> SideStreams::find_free(std::uint64_t capture_id) {
  for (staged::Lane& lane : lanes_) {
    STRAIT_ASSIGN(const staged::StreamState state, driver_->look_at(lane.stream));
    if (state.capture_id == 0 || state.capture_id == capture_id) return &lane;
  }
  return add();
}

Result<SideStreams::Stream> SideStreams::fork(Stream stream) {
  STRAIT_ASSIGN(const staged::StreamState state, driver_->look_at(stream));
  STRAIT_ASSIGN(forked_, find_free(state.capture_id));
  STRAIT_TRY(driver_->record(begun_, stream));
  STRAIT_TRY(driver_->wait(forked_->stream, begun_));
  return forked_->stream;
}

}  // namespace strait
