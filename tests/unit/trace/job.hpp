#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "communicator/flight_recorder.hpp"
#include "device/started_calls.hpp"
#include "support/temporary_folder.hpp"
#include "trace/files.hpp"

namespace strait::trace {

/// Returns the communicators of the newest run.
inline Result<std::vector<Flight>> flights_in(const std::string& folder) {
  STRAIT_ASSIGN(Recorded recorded, read_files({folder}));
  return std::move(recorded.runs.back().flights);
}

/// A communicator whose ranks do what the test says.
class Job {
 public:
  explicit Job(std::uint32_t ranks, const std::string& transport = "shm", int device = -1) : controls_(ranks) {
    std::vector<RankControl*> controls;
    for (RankControl& control : controls_) controls.push_back(&control);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      FlightRecorder::About about;
      about.communicator = 0xabcdef;
      about.rank = rank;
      for (std::uint32_t other = 0; other < ranks; ++other) about.names.push_back("rank " + std::to_string(other));
      about.host = "n7";
      about.pid = 100 + rank;
      about.transport = transport;
      about.shares_control = !transport.starts_with("tcp");
      about.device = device;
      about.is_idle = [this, rank] { return idle_[rank]; };
      about.progress = [this, rank] { return progress_[rank]; };
      recorders_.push_back(std::make_unique<FlightRecorder>(controls, about));
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void post(std::uint32_t rank, std::uint64_t sequence, Collective collective = Collective::all_reduce) {
    Call call;
    call.collective = collective;
    call.type = DataType::int32;
    call.count = 8;
    write_call(controls_[rank], sequence, {.signature = numbered(signature(call), sequence)});
  }
  void run(std::uint32_t rank, std::uint64_t sequence) {
    post(rank, sequence);
    recorders_[rank]->finish(sequence, false);
  }
  FlightRecorder& recorder(std::uint32_t rank) { return *recorders_[rank]; }
  RankControl& control(std::uint32_t rank) { return controls_[rank]; }
  void set_idle(std::uint32_t rank, bool idle) { idle_[rank] = idle; }
  void set_progress(std::uint32_t rank, DeviceProgress progress) { progress_[rank] = progress; }
  /// On its GPU.
  void start(std::uint32_t rank, std::uint64_t number, std::size_t count, bool has_parts = false) {
    Call call;
    call.count = count;
    call.type = DataType::int32;
    call.collective = Collective::all_reduce;
    started_[rank].note_call({.signature = signature(call), .is_captured = true, .has_parts = has_parts});
    counts_[rank].started.calls[number % kernels::kept_marks] = number << 32 | mark_of(signature(call));
    started_[rank].record(counts_[rank].started, mailboxes_[rank], controls_[rank]);
  }
  /// Likewise, and its kernel waits and says so.
  void start_and_wait(std::uint32_t rank, std::uint64_t number, std::size_t count) {
    Call call;
    call.count = count;
    call.type = DataType::int32;
    call.collective = Collective::all_reduce;
    started_[rank].note_call({.signature = signature(call), .is_captured = true});
    mailboxes_[rank].started.calls[number % kernels::kept_marks] = number << 32 | mark_of(signature(call));
    started_[rank].record_marks_of_waiting(mailboxes_[rank], controls_[rank]);
  }
  void start_message(std::uint32_t rank, std::uint64_t after) {
    Call call;
    call.collective = Collective::send_recv;
    call.count = 16;
    started_[rank].note_call({.signature = signature(call)});
    counts_[rank].started.messages = after << 32 | mark_of(signature(call));
    started_[rank].record(counts_[rank].started, mailboxes_[rank], controls_[rank]);
  }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }
  std::string folder() const { return folder_; }

  void dump(std::uint32_t rank) {
    ASSERT_TRUE(
        recorder(rank).dump(folder_ + "/" + recorder(rank).file_name(), "a test of rank " + std::to_string(rank)));
  }
  /// As if a rank's file had been written `later_us` after its rank posted this.
  void set_written(std::uint32_t rank, std::uint64_t sequence, double later_us) {
    const std::string path = folder_ + "/" + recorder(rank).file_name();
    std::ifstream file(path);
    auto json = nlohmann::json::parse(file);
    for (const auto& call : json["seen"][rank]["calls"])
      if (call["sequence"] == sequence) json["unix_us"] = call["posted_unix_us"].get<double>() + later_us;
    std::ofstream(path, std::ios::trunc) << json;
  }
  /// As if a rank's file were of a version that did not write whether ranks share their records.
  void make_old(std::uint32_t rank) {
    const std::string path = folder_ + "/" + recorder(rank).file_name();
    std::ifstream file(path);
    auto json = nlohmann::json::parse(file);
    json.erase("shares_control");
    std::ofstream(path, std::ios::trunc) << json;
  }
  std::string said(bool all_calls = false) const {
    const auto flights = flights_in(folder_);
    EXPECT_TRUE(flights) << (flights ? "" : flights.error().message);
    return flights && flights->size() == 1 ? report(flights->front(), all_calls) : "";
  }

 private:
  std::vector<RankControl> controls_;
  std::vector<std::unique_ptr<FlightRecorder>> recorders_;
  std::array<std::optional<bool>, 4> idle_{};
  std::array<std::optional<DeviceProgress>, 4> progress_{};
  std::array<kernels::Mailbox, 4> mailboxes_{};
  std::array<kernels::LaunchCounts, 4> counts_{};
  std::array<StartedCalls, 4> started_;
  testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

/// So long that who has not come since is behind.
inline void wait_a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(110)); }

}  // namespace strait::trace
