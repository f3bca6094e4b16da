#include "select/selector.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/time_text.hpp"

namespace strait {
namespace {

constexpr std::size_t most_choices = 4096;  // bounds the memory of a program that never repeats a size

/// Whether this is the first warning of this cause in the process, which may make many communicators.
bool is_first_warning(const std::string& who) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  return warned.insert(who).second;
}

}  // namespace

std::size_t message_bytes(Collective collective, std::size_t count, DataType type, std::uint32_t ranks) {
  return larger_buffer_count(collective, count, ranks) * size_bytes(type);
}

std::size_t Selector::QueryHash::operator()(const SelectQuery& query) const {
  const std::uint64_t what = std::uint64_t(query.collective) | std::uint64_t(query.type) << 8 |
                             std::uint64_t(query.op) << 16 | std::uint64_t(query.peer_memory) << 24 |
                             std::uint64_t(query.root) << 32;
  return mix(mix(mix(what) ^ query.count) ^ reinterpret_cast<std::uintptr_t>(query.algorithm));
}

Selector::Selector(Settings settings) : settings_(std::move(settings)), levels_(level_model(settings_.model)) {}

PlanRequest Selector::request(const SelectQuery& query) const {
  PlanRequest request;
  request.collective = query.collective;
  request.ranks = settings_.model.ranks;
  request.root = query.root;
  request.shape = settings_.shape;
  request.multicast = settings_.multicast;
  request.peer_memory = query.peer_memory;
  return request;
}

Result<const Choice*> Selector::choose(const SelectQuery& query) {
  if (last_choice_ != nullptr && query == last_query_) return last_choice_;
  auto found = choices_.find(query);
  if (found == choices_.end()) {
    STRAIT_ASSIGN(Choice choice, decide(query));
    if (choices_.size() >= most_choices) choices_.clear();
    found = choices_.emplace(query, std::move(choice)).first;
  }
  last_query_ = query;
  last_choice_ = &found->second;
  return last_choice_;
}

Result<Choice> Selector::predict(const SelectQuery& query, const SelectOptions& options) const {
  if (settings_.model.ranks <= most_simulated_ranks)
    return strait::choose(request(query), query.type, query.op, query.count, settings_.model, options);
  return strait::choose(request(query), query.type, query.op, query.count, levels_, options);
}

Result<Choice> Selector::decide(const SelectQuery& query) const {
  const PlanRequest wanted = request(query);
  SelectOptions options = settings_.options;
  std::string who = "the environment";
  const std::size_t bytes = message_bytes(query.collective, query.count, query.type, wanted.ranks);
  if (query.algorithm != nullptr) {
    options.algorithm = query.algorithm->name;
    who = "a call";
  } else if (const Override* entry = settings_.tuning.find(query.collective, bytes, query.type, wanted.ranks)) {
    if (options.algorithm.empty()) options.algorithm = entry->algorithm;
    if (options.slice_bytes == 0) options.slice_bytes = std::min(entry->slice_bytes, options.max_slice_bytes);
    if (options.lanes == 0) options.lanes = entry->lanes;
    if (settings_.options.algorithm.empty() && settings_.options.slice_bytes == 0) who = entry->place;
  }
  const Algorithm* forced = find_algorithm(options.algorithm);
  if (!options.algorithm.empty() && (forced == nullptr || !forced->supports(wanted))) options.algorithm.clear();
  STRAIT_ASSIGN(Choice choice, predict(query, options));
  if (!options.algorithm.empty() || options.slice_bytes != 0 || options.lanes != 0) warn_if_slower(query, choice, who);
  return choice;
}

void Selector::warn_if_slower(const SelectQuery& query, const Choice& wanted, const std::string& who) const {
  constexpr double noticeable = 1.05;
  if (!settings_.warns || !log_enabled(LogLevel::warn)) return;
  SelectOptions free;
  free.max_slice_bytes = settings_.options.max_slice_bytes;
  const auto choice = predict(query, free);
  if (!choice || wanted.predicted_us < noticeable * choice->predicted_us) return;
  if (!is_first_warning(who)) return;
  log_warn(0, who + " asks for " + wanted.algorithm + " in slices of " + std::to_string(wanted.slice_bytes) +
                  " bytes, predicted to take " + time_text(wanted.predicted_us) + " for " +
                  std::string(name(query.collective)) + " of " + std::to_string(query.count) + " " +
                  std::string(name(query.type)) + "; the choice would be " + choice->algorithm + " with " +
                  time_text(choice->predicted_us) + ". There may be more such calls");
}

}  // namespace strait
