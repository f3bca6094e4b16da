#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bootstrap/launch.hpp"

/// One rank of a launched job: joins twice by what the launcher set and checks an all-gather. `pmix` as the argument
/// makes the ranks meet through PMIx also on one host.
using namespace strait;

namespace {

Status join_once(LaunchInfo info, bool through_pmix) {
  if (through_pmix) info.meeting = Meeting::pmix;
  JoinOptions options;
  options.wait.deadline = Deadline::after_ms(20'000);
  STRAIT_ASSIGN(auto channel, join_launched(info, options));
  STRAIT_ASSIGN(auto all, channel->all_gather(as_byte_span(std::to_string(info.rank)), options.wait));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (std::string text(reinterpret_cast<const char*>(all[rank].data()), all[rank].size());
        text != std::to_string(rank))
      return fail(Code::internal_error, "rank " + std::to_string(rank) + " sent " + text);
  return channel->barrier(options.wait);
}

Status run(bool through_pmix, int expected_ranks) {
  STRAIT_ASSIGN(LaunchInfo info, read_launch_environment(Environment()));
  if (info.ranks != expected_ranks)
    return fail(Code::internal_error,
                "the launcher (" + info.launcher + ") says " + std::to_string(info.ranks) + " ranks");
  STRAIT_TRY(join_once(info, through_pmix));
  return through_pmix ? Status{} : join_once(info, false);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return EXIT_FAILURE;
  auto status = run(argc > 2 && std::string_view(argv[2]) == "pmix", std::atoi(argv[1]));
  if (status) return EXIT_SUCCESS;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return EXIT_FAILURE;
}
