#include "executor/copy_engine/staged_copies.hpp"

#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace strait::staged {
namespace {
using Kind = MemoryOperation::Kind;
constexpr auto look_every = std::chrono::microseconds(200);
}  // namespace

Result<std::unique_ptr<StagedCopies>> StagedCopies::open(Setup setup) {
  const StagedOptions& options = setup.options;
  if (setup.ranks < 2 || setup.rank >= setup.ranks)
    return fail(Code::invalid_argument, "rank " + std::to_string(setup.rank) + " of " + std::to_string(setup.ranks) +
                                            ": copies through host memory are for 2 ranks and more");
  if (options.reducers == 0 || options.least_chunk_bytes == 0)
    return fail(Code::invalid_argument,
                "copies through host memory need at least one CPU reducer a rank and chunks of "
                "at least one byte");
  STRAIT_ASSIGN(const StagedWindows windows,
                StagedWindows::within(setup.size_bytes, setup.ranks, options.depth, options.chunk_bytes));
  std::unique_ptr<StagedCopies> copies(new StagedCopies(std::move(setup), windows));
  STRAIT_TRY(copies->prepare());
  return copies;
}

StagedCopies::StagedCopies(Setup setup, const StagedWindows& windows)
    : setup_(std::move(setup)), flags_(windows, setup_.options.reducers, setup_.host) {
  reducers_ = std::make_unique<Reducers>(flags_, setup_.rank, setup_.options, setup_.has_failed);
}

Status StagedCopies::prepare() {
  STRAIT_TRY(flags_.agree(setup_.options));
  StreamDriver& driver = *setup_.driver;
  for (Lane* lane : {&up_, &down_}) {
    STRAIT_ASSIGN(lane->stream, driver.create_stream());
    STRAIT_ASSIGN(lane->done, driver.create_event());
  }
  STRAIT_ASSIGN(begin_, driver.create_event());
  return reducers_->start();
}

StagedCopies::~StagedCopies() {
  StreamDriver& driver = *setup_.driver;
  for (Lane* lane : {&up_, &down_}) {
    if (lane->stream == nullptr) continue;
    while (!driver.is_idle(lane->stream)) {
      if (!reducers_->is_aborted() && (flags_.is_aborted() || setup_.has_failed())) abort();
      std::this_thread::sleep_for(look_every);
    }
  }
  reducers_.reset();
  for (Lane* lane : {&up_, &down_}) {
    if (lane->done != nullptr) driver.destroy_event(lane->done);
    if (lane->stream != nullptr) driver.destroy_stream(lane->stream);
  }
  if (begin_ != nullptr) driver.destroy_event(begin_);
}

std::uint64_t StagedCopies::rounds(const StagedCall& call) const {
  return Rounds(call, windows(), setup_.options, setup_.rank).count();
}

std::optional<Wait> StagedCopies::wait() const {
  const auto duration = reducers_->running_for();
  if (!duration) return std::nullopt;
  return Wait{.duration = *duration, .rank = flags_.last_rank(setup_.rank)};
}

void StagedCopies::start_from(std::uint64_t rounds) { flags_.start_from(setup_.rank, rounds); }

Status StagedCopies::enqueue(const StagedCall& call, StreamDriver::Stream stream) {
  if (reducers_->is_aborted() || flags_.is_aborted())
    return fail(Code::aborted, "rank " + std::to_string(setup_.rank) +
                                   ": the copies through host memory were aborted, by this rank or another of this "
                                   "host. Destroy the communicator");
  if (!supports(call))
    return fail(Code::unsupported, std::string(name(call.collective)) + " of " + std::to_string(call.count) +
                                       " elements through host memory");
  const Operation operation{.rounds = Rounds(call, windows(), setup_.options, setup_.rank),
                            .type = call.type,
                            .op = call.op,
                            .first_round = flags_.rounds()};
  // First of all, so that an abort from now on releases every wait that is enqueued below.
  flags_.add_rounds(operation.rounds.count());
  reducers_->push(operation);
  Status done = fork(stream);
  if (done) done = enqueue_rounds(call, operation);
  if (done) done = join(up_, stream);
  if (done) done = join(down_, stream);
  if (!done) abort();
  return done;
}

/// Uploads go ahead of downloads, but no command is enqueued before one that it waits for, on this rank or another: on
/// streams that share one hardware queue that would never end. A lane's word for a round goes with its next command; so
/// uploads may lead by two rounds less than there are slots. With less than three slots words cannot wait.
Status StagedCopies::enqueue_rounds(const StagedCall& call, const Operation& operation) {
  const std::uint64_t count = operation.rounds.count(), end = operation.first_round + count;
  const std::uint64_t lead = windows().depth < 3 ? 0 : windows().depth - 2;
  operation.rounds.append_own(down_.copies);
  if (!downloads(operation)) add(down_, Kind::write, windows().downloaded(setup_.rank), end);
  if (!operation.rounds.uploads(setup_.rank)) add(up_, Kind::write, windows().uploaded(setup_.rank), end);
  STRAIT_TRY(flush(down_));
  for (std::uint64_t step = 0; step < count + lead; ++step) {
    if (step < count) STRAIT_TRY(upload(call, operation, step));
    if (lead == 0 || step + 1 == count) STRAIT_TRY(flush(up_));
    if (step >= lead) STRAIT_TRY(download(operation, step - lead));
    if (lead == 0) STRAIT_TRY(flush(down_));
  }
  return flush(down_);
}

/// Whether this rank's downloads go round by round. Those of a reduction do on every rank, for then they tell when the
/// reducers are done.
bool StagedCopies::downloads(const Operation& operation) const {
  return operation.rounds.reduces() || operation.rounds.downloads(setup_.rank);
}

/// What must have happened before this rank's upload slot may be written again.
void StagedCopies::add_credit_waits(const Operation& operation, std::uint64_t round, std::uint32_t slot) {
  const std::uint64_t depth = windows().depth;
  if (round < depth) return;
  if (operation.rounds.reduces() && round - depth >= operation.first_round) {
    // The reducers have read it: the last to use it was this operation.
    add(up_, Kind::wait_at_least, windows().reduced(slot), flags_.reduced_target(flags_.reductions(slot)));
    return;
  }
  for (std::uint32_t rank = 0; rank < windows().ranks; ++rank)
    add(up_, Kind::wait_at_least, windows().downloaded(rank), round + 1 - depth);
}

Status StagedCopies::upload(const StagedCall& call, const Operation& operation, std::uint64_t round) {
  const std::uint64_t global = operation.first_round + round;
  const auto slot = static_cast<std::uint32_t>(global % windows().depth);
  if (operation.rounds.uploads(setup_.rank)) {
    add_credit_waits(operation, global, slot);
    operation.rounds.append_uploads(round, slot, setup_.device, up_.copies);
    STRAIT_TRY(flush(up_));
    if (call.op == ReduceOp::premul_sum && operation.rounds.reduces()) {
      std::uint32_t halves[2];
      std::memcpy(halves, call.premul_scalar.data(), sizeof(halves));
      add(up_, Kind::write, windows().scalar(slot, setup_.rank), halves[0]);
      add(up_, Kind::write, windows().scalar(slot, setup_.rank) + sizeof(halves[0]), halves[1]);
    }
    add(up_, Kind::write, windows().uploaded(setup_.rank), global + 1);
  }
  if (operation.rounds.reduces()) flags_.add_reduction(slot);
  return {};
}

Status StagedCopies::download(const Operation& operation, std::uint64_t round) {
  if (!downloads(operation)) return {};
  const std::uint64_t global = operation.first_round + round;
  const auto slot = static_cast<std::uint32_t>(global % windows().depth);
  if (operation.rounds.reduces()) {
    // Of the uploads that went ahead none has used the slot again.
    add(down_, Kind::wait_at_least, windows().reduced(slot), flags_.reduced_target(flags_.reductions(slot)));
  } else {
    for (std::uint32_t rank = 0; rank < windows().ranks; ++rank)
      if (operation.rounds.uploads(rank)) add(down_, Kind::wait_at_least, windows().uploaded(rank), global + 1);
  }
  if (operation.rounds.downloads(setup_.rank))
    operation.rounds.append_downloads(round, slot, setup_.device, down_.copies);
  STRAIT_TRY(flush(down_));
  add(down_, Kind::write, windows().downloaded(setup_.rank), global + 1);
  return {};
}

Status StagedCopies::fork(StreamDriver::Stream from) {
  StreamDriver& driver = *setup_.driver;
  STRAIT_TRY(driver.record(begin_, from));
  STRAIT_TRY(driver.wait(up_.stream, begin_));
  STRAIT_TRY(driver.wait(down_.stream, begin_));
  // On the download stream, which has nothing to do yet.
  return driver.call(
      down_.stream, [](void* reducers) { static_cast<Reducers*>(reducers)->begin_next(); }, reducers_.get());
}

Status StagedCopies::join(Lane& lane, StreamDriver::Stream to) {
  STRAIT_TRY(setup_.driver->record(lane.done, lane.stream));
  return setup_.driver->wait(to, lane.done);
}

void StagedCopies::add(Lane& lane, Kind kind, std::size_t offset, std::uint64_t value) {
  lane.pending.push_back({.kind = kind, .word = setup_.device + offset, .value = static_cast<std::uint32_t>(value)});
}

/// Memory operations, then copies.
Status StagedCopies::flush(Lane& lane) {
  if (!lane.pending.empty()) STRAIT_TRY(setup_.driver->operate(lane.pending, lane.stream));
  lane.pending.clear();
  for (const RowCopy& copy : lane.copies) STRAIT_TRY(setup_.driver->copy(copy, lane.stream));
  lane.copies.clear();
  return {};
}

}  // namespace strait::staged
