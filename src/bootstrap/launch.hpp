#pragma once

#include <optional>
#include <string>

#include "bootstrap/bootstrap.hpp"

/// Ranks started by a launcher: which they are, and how they find one another.
namespace strait {

/// How the ranks of a job get their unique id.
enum class Meeting : std::uint8_t {
  alone,    ///< one rank: nobody to meet
  local,    ///< one host: rank 0 hands it to processes of its user over an abstract unix socket
  pmix,     ///< rank 0 puts it into the launcher's PMIx store
  address,  ///< no exchange: rank 0's address and the key are known to all
};

struct LaunchInfo {
  std::string launcher;  ///< "none", "STRAIT_RANK", "torchrun", "Open MPI", "PMIx", "Slurm"
  int rank = 0;
  int ranks = 1;  ///< 0: to be asked from PMIx
  std::optional<int> local_rank;
  Meeting meeting = Meeting::alone;
  std::string job;              ///< what tells this job from others of the same user
  HostPort root;                ///< for Meeting::address
  Key key{};                    ///< for Meeting::address
  bool key_is_derived = false;  ///< from the job's identifiers, which are no secret
};

/// Reads what the launcher set. The first that applies, innermost first:
///
///   STRAIT_RANK, STRAIT_RANKS     set by hand; from 2 ranks on with STRAIT_ROOT and STRAIT_KEY
///   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT            torchrun and programs that imitate it
///   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE            mpirun of Open MPI
///   SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS     srun (a batch script by itself is one rank)
///   PMIX_RANK, PMIX_NAMESPACE                             any other PMIx launcher
///
/// and without any, one rank. How they meet:
///
///   1. STRAIT_ROOT is set: at that address, with STRAIT_KEY.
///   2. All ranks are on one host: over an abstract unix socket whose both ends check the other's user. No key, no
///   port.
///   3. The launcher has PMIx (Open MPI, srun --mpi=pmix): the unique id goes through its store.
///   4. torchrun, Slurm: with STRAIT_KEY, on rank 0's host, which the launcher names. The port is MASTER_PORT + 1000
///   (less
///      1000 above 64535), because the launcher's own store has MASTER_PORT; under Slurm 20000 + a hash of job and
///      step, below 30000.
///
/// A job on several hosts for which the launcher hands out no secret needs STRAIT_KEY. Without it this is an error,
/// unless STRAIT_ALLOW_DERIVED_KEY=1: then the key is a hash of the job's identifiers, and whoever can reach the
/// network and guess those can join; a warning is logged. STRAIT_KEY is hashed with the job's identifiers (but no
/// address, which hosts may spell differently), so one key serves many jobs.
Result<LaunchInfo> read_launch_environment(const Environment& environment);

/// Meets the other ranks as `info` says and joins with them; rank and ranks of `options` are set from `info`.
Result<std::unique_ptr<Channel>> join_launched(const LaunchInfo& info, JoinOptions options);

}  // namespace strait
