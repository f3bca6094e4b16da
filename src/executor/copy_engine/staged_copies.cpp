#include "executor/copy_engine/staged_copies.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace strait::copy_engine {
namespace {
using Kind = MemoryOperation::Kind;
constexpr auto poll_interval = std::chrono::microseconds(200);
}  // namespace

Result<std::unique_ptr<StagedCopies>> StagedCopies::open(Setup setup) {
  const StagedOptions& options = setup.options;
  if (setup.ranks < 2 || setup.rank >= setup.ranks)
    return fail(Code::invalid_argument, "rank " + std::to_string(setup.rank) + " of " + std::to_string(setup.ranks) +
                                            ": copies through host memory are for 2 ranks and more");
  if (options.least_chunk_bytes == 0)
    return fail(Code::invalid_argument, "copies through host memory need chunks of at least one byte");
  STRAIT_ASSIGN(const StagedWindows windows,
                StagedWindows::within(setup.size_bytes, setup.ranks, options.depth, options.chunk_bytes));
  std::unique_ptr<StagedCopies> copies(new StagedCopies(std::move(setup), windows));
  STRAIT_TRY(copies->prepare());
  return copies;
}

StagedCopies::StagedCopies(Setup setup, const StagedWindows& windows)
    : setup_(std::move(setup)), flags_(windows, setup_.rank, setup_.host) {}

Status StagedCopies::prepare() {
  STRAIT_TRY(flags_.agree(setup_.options));
  StreamDriver& driver = *setup_.driver;
  STRAIT_TRY(up_.open(driver));
  STRAIT_TRY(down_.open(driver));
  STRAIT_ASSIGN(begin_, driver.create_event());
  return {};
}

StagedCopies::~StagedCopies() {
  StreamDriver& driver = *setup_.driver;
  while (!up_.is_idle(driver) || !down_.is_idle(driver)) {
    if (setup_.has_failed()) release_waits();
    std::this_thread::sleep_for(poll_interval);
  }
  up_.close(driver);
  down_.close(driver);
  if (begin_ != nullptr) driver.destroy_event(begin_);
}

bool StagedCopies::supports(const CopyCall& call) const {
  return Rounds::supports(call.collective) && call.count > 0 && rounds_of(call).count() <= most_rounds;
}

/// If an operation ended between two calls of this, progress() has changed, because words only grow.
std::optional<Wait> StagedCopies::wait() {
  if (!flags_.is_running()) {
    standstill_.reset();
    return std::nullopt;
  }
  return Wait{.duration = standstill_.look(flags_.progress()), .rank = flags_.last_rank()};
}

void StagedCopies::start_from(std::uint64_t rounds) { flags_.start_from(rounds); }

Status StagedCopies::enqueue(const CopyCall& call, StreamDriver::Stream stream) {
  if (!supports(call))
    return fail(Code::unsupported, std::string(name(call.collective)) + " of " + std::to_string(call.count) +
                                       " elements through host memory");
  const Operation operation{.rounds = rounds_of(call), .first_round = flags_.rounds()};
  // This comes first, so that release_waits() covers every wait that is enqueued below.
  flags_.add_rounds(operation.rounds.count());
  STRAIT_TRY(fork(stream));
  STRAIT_TRY(enqueue_rounds(operation));
  STRAIT_TRY(up_.join(*setup_.driver, stream));
  return down_.join(*setup_.driver, stream);
}

/// Uploads run ahead of downloads. But no command is enqueued before one that it waits for, on this rank or another,
/// because on streams that share one hardware queue that would deadlock. A lane's word for a round is written together
/// with its next command, so uploads may lead by two rounds less than there are slots. With fewer than three slots the
/// words must be written at once.
Status StagedCopies::enqueue_rounds(const Operation& operation) {
  const std::uint64_t count = operation.rounds.count(), end = operation.first_round + count;
  const std::uint64_t lead = windows().depth < 3 ? 0 : windows().depth - 2;
  operation.rounds.append_own(down_.copies);
  add(down_, Kind::write, windows().begun(setup_.rank), end);
  if (!operation.rounds.downloads(setup_.rank)) add(down_, Kind::write, windows().downloaded(setup_.rank), end);
  if (!operation.rounds.uploads(setup_.rank)) add(up_, Kind::write, windows().uploaded(setup_.rank), end);
  STRAIT_TRY(flush(up_));
  STRAIT_TRY(flush(down_));
  for (std::uint64_t step = 0; step < count + lead; ++step) {
    if (step < count) STRAIT_TRY(upload(operation, step));
    if (lead == 0 || step + 1 == count) STRAIT_TRY(flush(up_));
    if (step >= lead) STRAIT_TRY(download(operation, step - lead));
    if (lead == 0) STRAIT_TRY(flush(down_));
  }
  return flush(down_);
}

/// Waits until no rank needs this rank's previous chunk in the slot any more, so that it may be overwritten.
void StagedCopies::add_credit_waits(std::uint64_t round) {
  const std::uint64_t depth = windows().depth;
  if (round < depth) return;
  for (std::uint32_t rank = 0; rank < windows().ranks; ++rank)
    add(up_, Kind::wait_at_least, windows().downloaded(rank), round + 1 - depth);
}

Status StagedCopies::upload(const Operation& operation, std::uint64_t round) {
  if (!operation.rounds.uploads(setup_.rank)) return {};
  const std::uint64_t global = operation.first_round + round;
  add_credit_waits(global);
  operation.rounds.append_uploads(round, static_cast<std::uint32_t>(global % windows().depth), setup_.device,
                                  up_.copies);
  STRAIT_TRY(flush(up_));
  add(up_, Kind::write, windows().uploaded(setup_.rank), global + 1);
  return {};
}

Status StagedCopies::download(const Operation& operation, std::uint64_t round) {
  if (!operation.rounds.downloads(setup_.rank)) return {};
  const std::uint64_t global = operation.first_round + round;
  for (std::uint32_t rank = 0; rank < windows().ranks; ++rank)
    if (operation.rounds.uploads(rank)) add(down_, Kind::wait_at_least, windows().uploaded(rank), global + 1);
  operation.rounds.append_downloads(round, static_cast<std::uint32_t>(global % windows().depth), setup_.device,
                                    down_.copies);
  STRAIT_TRY(flush(down_));
  add(down_, Kind::write, windows().downloaded(setup_.rank), global + 1);
  return {};
}

/// Does not use Lane::fork(), which queries the capture each time: there is none here.
Status StagedCopies::fork(StreamDriver::Stream from) {
  StreamDriver& driver = *setup_.driver;
  STRAIT_TRY(driver.record(begin_, from));
  STRAIT_TRY(driver.wait(up_.stream, begin_));
  return driver.wait(down_.stream, begin_);
}

void StagedCopies::add(CopyLane& lane, Kind kind, std::size_t offset, std::uint64_t value) {
  lane.add(kind, setup_.device + offset, static_cast<std::uint32_t>(value));
}

Status StagedCopies::flush(CopyLane& lane) {
  STRAIT_TRY(lane.flush(*setup_.driver));
  for (const RowCopy& copy : lane.copies) STRAIT_TRY(setup_.driver->copy(copy, lane.stream));
  lane.copies.clear();
  return {};
}

}  // namespace strait::copy_engine
