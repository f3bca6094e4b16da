#include "base/log.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/pmix.hpp"

namespace strait {
namespace {

RootOptions root_options(const JoinOptions& options) {
  RootOptions root;
  root.deadline = options.wait.deadline;
  root.remind_after_ms = options.remind_after_ms;
  return root;
}

Result<UniqueId> meet_locally(const LaunchInfo& info, const JoinOptions& options) {
  if (info.rank > 0) return ask_local_root(info.job, options.wait);
  RootOptions root = root_options(options);
  root.job = info.job;
  STRAIT_ASSIGN(Socket door, listen_for_local_ranks(info.job, options.wait));
  root.hand_out = HandOut(std::move(door));
  return create_unique_id(options.environment, std::move(root));
}

Result<UniqueId> meet_at_address(const LaunchInfo& info, const JoinOptions& options) {
  if (info.key_is_derived)
    log_warn(info.rank,
             "the key of this job is derived from its identifiers: others on this network who guess them can join. "
             "Set STRAIT_KEY");
  STRAIT_ASSIGN(UniqueId id, unique_id_at(info.root, info.key, options.environment, options.wait.deadline));
  if (info.rank > 0) return id;
  return host_unique_id(id, root_options(options));
}

}  // namespace

Result<std::unique_ptr<Channel>> join_launched(const LaunchInfo& info, JoinOptions options) {
  options.rank = info.rank;
  options.ranks = info.ranks;
  WaitReminder reminder(info.rank, options.remind_after_ms);  // one for all the waits until the root answers
  options.wait.reminder = &reminder;
  UniqueId id;
  switch (info.meeting) {
    case Meeting::alone: {
      STRAIT_ASSIGN(PeerInfo self, local_peer_info(0, options.environment));
      return Channel::alone(std::move(self));
    }
    case Meeting::local: {
      STRAIT_ASSIGN(id, meet_locally(info, options));
      break;
    }
    case Meeting::address: {
      STRAIT_ASSIGN(id, meet_at_address(info, options));
      break;
    }
    case Meeting::pmix: {
      auto make_id = [&] { return create_unique_id(options.environment, root_options(options)); };
      STRAIT_ASSIGN(PmixMeeting met, meet_through_pmix(info.rank, make_id, options.wait));
      id = met.id;
      options.ranks = met.ranks;
      break;
    }
  }
  return join(id, options);
}

}  // namespace strait
