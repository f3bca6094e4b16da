#include "base/log.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/local_meeting.hpp"
#include "bootstrap/pmix.hpp"

namespace strait {
namespace {

Result<UniqueId> meet_locally(const LaunchInfo& info, const JoinOptions& options) {
  note_awaited(options.progress, info.rank > 0 ? "rank 0, which gives out the unique id on this host"
                                               : "the socket at which it gives out the unique id");
  if (info.rank > 0) return ask_local_root(info.job, options.wait);
  RootOptions root;
  root.deadline = options.wait.deadline;
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
  note_awaited(options.progress, "the address of " + info.root.host + ", where rank 0 listens");
  STRAIT_ASSIGN(UniqueId id, unique_id_at(info.root, info.key, options.environment, options.wait.deadline));
  if (info.rank > 0) return id;
  return host_unique_id(id, {options.wait.deadline, {}, {}});
}

}  // namespace

Result<std::unique_ptr<Channel>> join_launched(const LaunchInfo& info, JoinOptions options) {
  options.rank = info.rank;
  options.ranks = info.ranks;
  if (options.progress != nullptr) options.progress->set_place(info.rank, info.ranks);
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
      note_awaited(options.progress, "all ranks of the job, through the launcher's PMIx");
      auto make_id = [&] { return create_unique_id(options.environment, {options.wait.deadline, {}, {}}); };
      STRAIT_ASSIGN(PmixMeeting met, meet_through_pmix(info.rank, make_id, options.wait));
      id = met.id;
      options.ranks = met.ranks;
      break;
    }
  }
  return join(id, options);
}

}  // namespace strait
