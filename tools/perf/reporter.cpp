#include "perf/reporter.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "files.hpp"
#include "perf/last_times.hpp"
#include "perf/plot.hpp"
#include "perf/table.hpp"
#include "safe_print.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto terminal_interval = std::chrono::milliseconds(200);
constexpr auto log_interval = std::chrono::seconds(10);

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Terminals without escape sequences (those of Emacs, of some CI) call themselves dumb, or nothing.
bool overwrites_lines() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

}  // namespace

Progress::Progress()
    : terminal_(overwrites_lines()), next_(Clock::now() + (terminal_ ? Clock::duration{} : log_interval)) {}

void Progress::show(const std::string& what) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(terminal_interval) : Clock::duration(log_interval));
  if (terminal_)
    tools::print(stderr, "\r{}\x1b[K", what);
  else
    tools::print(stderr, "strait perf: {}\n", what);
  shown_ = terminal_;
}

void Progress::clear() {
  if (shown_) tools::print(stderr, "\r\x1b[K");
  shown_ = false;
}

Reporter::Reporter(const Options& options, int library_version) : report_{options, library_version, {}, {}, {}} {}

void Reporter::begin(std::vector<RankInfo> ranks, int threads, TransportInfo transport,
                     std::optional<BaselineInfo> baseline, std::optional<LinkRates> links) {
  report_.ranks = std::move(ranks);
  report_.transport = std::move(transport);
  report_.baseline = std::move(baseline);
  report_.links = links;
  print(header(report_.options, report_.ranks, threads, report_.transport, report_.baseline, links));
}

void Reporter::limit_sizes(std::size_t min_bytes, std::size_t max_bytes) {
  report_.options.min_bytes = min_bytes;
  report_.options.max_bytes = max_bytes;
  remark("Reducing maxBytes to " + std::to_string(max_bytes) + " due to memory limitation");
}

void Reporter::remark(const std::string& line) { print("# " + line + "\n"); }

void Reporter::add(const Row& row) {
  progress_.clear();
  print(table_row(row, report_.options.cpu_time, report_.links.has_value()));
  report_.rows.push_back(row);
}

Status Reporter::finish() {
  progress_.clear();
  print(footer(report_.options, summarise(report_.rows)));
  const Options& o = report_.options;
  if (!o.json_path.empty()) STRAIT_TRY(tools::write_file(o.json_path, to_json(report_)));
  if (!o.plot_path.empty())
    STRAIT_TRY(tools::write_file(o.plot_path, o.plot_path.ends_with(".html") ? plot_html(report_) : plot_svg(report_)));
  keep();
  return {};
}

/// For `strait explain`. Nobody asked for it, so that where it fails a line is enough.
void Reporter::keep() {
  const Environment environment;
  const auto path = last_times_path(environment);
  const Status kept = path ? keep_times(*path, report_, environment) : tl::unexpected(path.error());
  if (!kept) remark("these times are not kept for `strait explain`: " + kept.error().message);
}

}  // namespace strait::perf
