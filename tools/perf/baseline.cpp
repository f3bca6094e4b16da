#include "perf/baseline.hpp"

#include <cstdint>
#include <utility>

#include "perf/bookkeeping.hpp"
#include "perf/call.hpp"

namespace strait::perf {

Result<std::unique_ptr<Baseline>> Baseline::join(const std::string& path, straitComm_t control, Gpu& gpu) {
  int rank = 0, ranks = 0;
  STRAIT_TRY(checked(straitCommUserRank(control, &rank), control, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(control, &ranks), control, "straitCommCount"));
  STRAIT_TRY(gpu.use());
  auto nccl = Nccl::load(path);
  Result<Nccl::UniqueId> id = nccl && rank == 0 ? (*nccl)->unique_id() : Nccl::UniqueId();
  // Those that wait in the baseline for a rank that is not coming would do so for long.
  std::int64_t ready = nccl && id ? 1 : 0;
  STRAIT_TRY(all_reduce(control, ready, Combination::min));
  if (!nccl) return tl::unexpected(std::move(nccl).error());
  if (!id) return tl::unexpected(std::move(id).error());
  if (ready == 0) return fail(Code::aborted, "another rank cannot load the baseline");
  STRAIT_TRY(broadcast(control, id->bytes.data(), id->bytes.size(), "Passing on the baseline's ticket"));
  std::unique_ptr<Baseline> baseline(new Baseline(std::move(*nccl), gpu));
  STRAIT_ASSIGN(baseline->comm_, baseline->nccl_->join(ranks, *id, rank));
  gpu.also_ask([raw = baseline.get()] { return raw->nccl_->async_error(raw->comm_); });
  return baseline;
}

Status Baseline::register_memory(void* data, std::size_t size_bytes, bool symmetric) {
  STRAIT_TRY(gpu_.use());
  STRAIT_ASSIGN(auto registration, nccl_->register_memory(comm_, data, size_bytes, symmetric));
  registrations_.push_back(registration);
  return {};
}

Baseline::~Baseline() {
  gpu_.also_ask(nullptr);
  if (comm_ == nullptr || !gpu_.use()) return;
  for (const Nccl::Registration& registration : registrations_) nccl_->deregister(comm_, registration);
  nccl_->destroy(comm_);
}

void Baseline::abort() {
  gpu_.also_ask(nullptr);
  if (const Nccl::Comm comm = std::exchange(comm_, nullptr); comm != nullptr && gpu_.use()) nccl_->abort(comm);
}

}  // namespace strait::perf
