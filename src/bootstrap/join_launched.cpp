#include "base/host_name.hpp"
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

/// In the words in which all ranks hear of it.
Error cannot_join(const LaunchInfo& info, const Error& error) {
  return {error.code,
          "rank " + std::to_string(info.rank) + " cannot join, on host " + host_name() + ": " + error.message};
}

Result<UniqueId> meet_locally(const LaunchInfo& info, const JoinOptions& options) {
  note_awaited(options.progress, info.rank > 0 ? "rank 0, which gives out the unique id on this host"
                                               : "the socket at which it gives out the unique id");
  if (info.rank > 0) return ask_local_root(info.job, options.wait);
  RootOptions root = root_options(options);
  root.job = info.job;
  STRAIT_ASSIGN(Socket door, listen_for_local_ranks(info.job, options.wait));
  root.hand_out = HandOut(std::move(door));
  auto id = create_unique_id(options.environment, std::move(root));
  if (id) return id;
  const Error error = cannot_join(info, id.error());
  const Deadline moment = earlier(options.wait.deadline, Deadline::after_ms(withdrawal_ms));
  refuse_local_ranks(info.job, info.ranks - 1, error, {moment, options.wait.abort});
  return tl::unexpected(error);
}

Result<UniqueId> meet_at_address(const LaunchInfo& info, const JoinOptions& options) {
  if (info.key_is_derived)
    log_warn(info.rank,
             "the key of this job is derived from its identifiers: others on this network who guess them can join. "
             "Set STRAIT_KEY");
  note_awaited(options.progress, "the address of " + info.root.host + ", where rank 0 listens");
  STRAIT_ASSIGN(UniqueId id, unique_id_at(info.root, info.key, options.environment, options.wait.deadline));
  if (info.rank > 0) return id;
  return host_unique_id(id, root_options(options));
}

/// Obtains the unique id. Sets the number of ranks if only the launcher's store knows it.
Result<UniqueId> meet(const LaunchInfo& info, JoinOptions& options) {
  if (info.meeting == Meeting::local) return meet_locally(info, options);
  if (info.meeting == Meeting::address) return meet_at_address(info, options);
  note_awaited(options.progress, "all ranks of the job, through the launcher's PMIx");
  auto make_id = [&] {
    return create_unique_id(options.environment, root_options(options)).map_error([&](const Error& error) {
      return cannot_join(info, error);
    });
  };
  STRAIT_ASSIGN(PmixMeeting met, meet_through_pmix(info.rank, make_id, options.wait));
  options.ranks = met.ranks;
  return met.id;
}

}  // namespace

Result<std::unique_ptr<Channel>> join_launched(const LaunchInfo& info, JoinOptions options) {
  options.rank = info.rank;
  options.ranks = info.ranks;
  if (options.progress != nullptr) options.progress->set_place(info.rank, info.ranks);
  if (info.meeting == Meeting::alone) {
    STRAIT_ASSIGN(PeerInfo self, local_peer_info(0, options.environment));
    return Channel::alone(std::move(self));
  }
  WaitReminder reminder(info.rank, options.remind_after_ms);  // one for all the waits until the root answers
  options.wait.reminder = &reminder;
  // A rank whose own settings are wrong waits for the root just long enough to tell it so.
  const Status fit = check_settings(options);
  if (!fit && info.rank > 0) options.wait.deadline = earlier(options.wait.deadline, Deadline::after_ms(withdrawal_ms));
  auto id = meet(info, options);
  if (!fit && !id) return tl::unexpected(cannot_join(info, fit.error()));
  if (!id) return tl::unexpected(std::move(id).error());
  if (info.meeting == Meeting::local && info.rank > 0)
    options.renew_id = [&info, &options] { return ask_local_root(info.job, options.wait); };
  return join(*id, options);
}

}  // namespace strait
