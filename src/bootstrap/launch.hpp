#pragma once

#include <optional>
#include <string>

#include "bootstrap/bootstrap.hpp"

/// Ranks started by a launcher: how they learn their numbers, and how they find one another.
namespace strait {

/// How the ranks of a job obtain their unique id.
enum class Meeting : std::uint8_t {
  alone,    ///< one rank: no unique id needed
  local,    ///< one host: rank 0 gives it to processes of the same user over an abstract unix socket
  pmix,     ///< rank 0 puts it into the launcher's PMIx store
  address,  ///< not exchanged: every rank knows rank 0's address and the key
};

struct LaunchInfo {
  std::string launcher;  ///< "none", "STRAIT_RANK", "torchrun", "Open MPI", "PMIx", "Slurm"
  int rank = 0;
  int ranks = 1;  ///< 0: PMIx is asked for the number later
  std::optional<int> local_rank;
  Meeting meeting = Meeting::alone;
  std::string job;              ///< identifies this job among others of the same user
  HostPort root;                ///< for Meeting::address
  Key key{};                    ///< for Meeting::address
  bool key_is_derived = false;  ///< the key is derived from the job's identifiers, which are not secret
};

/// Reads the environment that the launcher has set. The first of these that applies counts, innermost first:
///
///   STRAIT_RANK, STRAIT_RANKS     set by hand; for 2 or more ranks with STRAIT_ROOT and STRAIT_KEY
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT            torchrun and programs that imitate it
///   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE            mpirun of Open MPI
///   SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS     srun (a batch script by itself is one rank)
///   PMIX_RANK, PMIX_NAMESPACE                             any other PMIx launcher
///
/// If none applies, there is one rank. How the ranks meet:
///
///   1. If STRAIT_ROOT is set: at that address, with STRAIT_KEY.
///   2. If all ranks are on one host: over an abstract unix socket, both ends of which check the other's user. This
///      needs neither a key nor a port.
///   3. If the launcher has PMIx (Open MPI, srun --mpi=pmix): the unique id goes through its store.
///   4. torchrun and Slurm: with STRAIT_KEY, on rank 0's host, which the launcher names. The port is MASTER_PORT + 1000
///      (- 1000 for ports above 64535), because the launcher's own store uses MASTER_PORT; under Slurm it is 20000 plus
///      a hash of job and step, below 30000.
///
/// A job on several hosts whose launcher distributes no secret needs STRAIT_KEY. Without it this function fails, unless
/// STRAIT_ALLOW_DERIVED_KEY=1: then the key is a hash of the job's identifiers, and anyone who can reach the network
/// and guess these can join; a warning is logged. STRAIT_KEY is hashed with the job's identifiers, so one key can serve
/// many jobs. Addresses are left out of that hash, because hosts may spell them differently.
Result<LaunchInfo> read_launch_environment(const Environment& environment);

/// Obtains the unique id in the way that `info` says and joins the other ranks; `rank` and `ranks` of `options` are set
/// from `info`.
Result<std::unique_ptr<Channel>> join_launched(const LaunchInfo& info, JoinOptions options);

}  // namespace strait
