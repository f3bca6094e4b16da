#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iosfwd>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace strait {

enum class VariableKind : std::uint8_t {
  text,
  integer,
  bytes,   ///< a whole number with an optional K, M or G (powers of 1024)
  choice,  ///< one of `choices`
};

/// 65536, 64K or 4M (powers of 1024); nothing if it is anything else.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// One environment variable: all there is to say about it, for its reader, the documentation and the check at init.
struct Variable {
  std::string_view name;
  VariableKind kind;
  std::string_view default_value;  ///< "": unset
  bool equal_on_all_ranks;         ///< compared when ranks join; a difference is an error
  std::string_view meaning;
  std::string_view choices = "";  ///< of a choice: "auto|portable|avx2"; of a number: words that may stand for one
  std::int64_t minimum = 0;       ///< of a number
  std::int64_t maximum = std::numeric_limits<std::int64_t>::max();
};

/// Every environment variable that Strait defines. (Those of launchers are read in src/bootstrap/launch.cpp.)
inline constexpr Variable environment_table[] = {
    {"STRAIT_DEBUG", VariableKind::choice, "warn", false, "How much is logged to stderr.", "off|warn|info|trace"},
    {"STRAIT_RANK", VariableKind::integer, "", false,
     "This process's rank, where no launcher says it. Goes with STRAIT_RANKS and, from 2 ranks on, STRAIT_ROOT and "
     "STRAIT_KEY.",
     "", 0, 1'000'000},
    {"STRAIT_RANKS", VariableKind::integer, "", false, "The number of ranks, where no launcher says it.", "", 1,
     1'000'000},
    {"STRAIT_ROOT", VariableKind::text, "", false,
     "Where rank 0 listens while ranks join: host:port, 192.0.2.1:port or [2001:db8::1]:port. Overrides the "
     "launcher's."},
    {"STRAIT_KEY", VariableKind::text, "", false,
     "The job's shared secret, 64 hexadecimal digits (openssl rand -hex 32): whoever has it can join."},
    {"STRAIT_ALLOW_DERIVED_KEY", VariableKind::choice, "0", false,
     "1: where a launcher of several hosts hands out no secret and STRAIT_KEY is unset, derive the key from the job's "
     "identifiers. Users who can reach this network and guess those can then join.",
     "0|1"},
    {"STRAIT_SOCKET_IFNAME", VariableKind::text, "", false,
     "Network interfaces to use, by prefix: eth,ib; ^docker,lo for all but those; =eth0 for exact names. Unset: the "
     "first that is up and neither loopback nor a container's bridge; link-local addresses and tunnels come last."},
    {"STRAIT_HOSTID", VariableKind::text, "", false,
     "Stands for this host's identity: ranks with different values treat one another as being on different hosts."},
    {"STRAIT_INIT_TIMEOUT_MS", VariableKind::integer, "60000", false, "How long ranks wait for one another at init.",
     "", 1, 86'400'000},
    {"STRAIT_TIMEOUT_MS", VariableKind::integer, "0", false, "Deadline of every operation; 0: none.", "", 0,
     86'400'000},
    {"STRAIT_ALGORITHM", VariableKind::text, "auto", true,
     "Forces an algorithm, by a name of `strait plan all-reduce --algorithm list`."},
    {"STRAIT_SLICE_BYTES", VariableKind::bytes, "0", true,
     "Bytes that one step of a plan moves; a multiple of 16. 0: chosen by size.", "", 0, std::int64_t{1} << 30},
    {"STRAIT_TRANSPORT", VariableKind::choice, "auto", true,
     "Forces the transport; auto: the fastest that joins all ranks.", "auto|loopback|shm|shm_file|tcp"},
    {"STRAIT_UCX", VariableKind::choice, "off", true,
     "What else carries messages between ranks that TCP joins: on: long ones to other hosts go by UCX, which takes "
     "InfiniBand or RoCE where there is any; all: also those to ranks of the same host. UCX must be installed "
     "(libucx0), and its own variables hold (UCX_NET_DEVICES, UCX_TLS).",
     "off|on|all"},
    {"STRAIT_TUNING_FILE", VariableKind::text, "", false,
     "A TOML file of overrides: algorithms, slices and lanes for some calls (docs/calibration.md). What it says must "
     "be equal on all ranks. STRAIT_ALGORITHM and STRAIT_SLICE_BYTES come before it."},
    {"STRAIT_TUNING_STRICT", VariableKind::choice, "0", false,
     "1: a mistake in the tuning file is an error at init; 0: the override is left out with a warning.", "0|1"},
    {"STRAIT_WIRE", VariableKind::choice, "off", true,
     "What floats become for their way between ranks, where the communicator's configuration does not say: blocks of "
     "8-bit whole numbers, FP8 (E4M3) or 4-bit whole numbers. Fewer bytes, less exact (docs/wire-formats.md).",
     "off|int8|fp8|int4"},
    {"STRAIT_WIRE_BYTES", VariableKind::bytes, "", true,
     "Calls whose larger buffer has fewer bytes stay exact where the wire format is that of the communicator or of "
     "STRAIT_WIRE: scalars and counts that share a block with other values would suffer most, and links gain least. "
     "Calls whose options name a format have it at any size. Unset: 16K; of GPU ranks, from where on formats were "
     "seen to make calls faster, 512K through host memory and 16M by NVLink, in proportion with slower links, but 16K "
     "at least.",
     "", 0, std::int64_t{1} << 40},
    {"STRAIT_MAX_SMS", VariableKind::integer, "0", true,
     "Thread blocks that an operation of GPU ranks may use; 0: as many as pay. none: copy engines carry operations of "
     "any size, where they can; what has to be added up takes up to four thread blocks, and what they cannot carry "
     "one (docs/gpus.md#no-sms).",
     "none", 0, 1024},
    {"STRAIT_P2P", VariableKind::text, "auto", true,
     "auto: GPU ranks use one another's memory where they reach it. off: they trade through pinned host memory all "
     "the same. pcie: they reach it, but trust no more than 16 bytes to arrive whole, even over NVLink. 0-1,2-3: of "
     "all pairs only ranks 0 and 1, and 2 and 3, may reach each other (larger groups: 0-1-2); pcie,0-1,2-3: both "
     "(docs/gpus.md)."},
    {"STRAIT_LINES_BYTES", VariableKind::bytes, "16M", true,
     "GPU ranks that NVLink joins: messages up to this travel as lines, which come sooner, and longer ones in bulk, "
     "which fills the link better. Up to twice this where all send to all, half of it for the slices of an "
     "all-reduce, of three ranks and more a quarter for gathers; sends as far as they fit into free slots.",
     "", 0, std::int64_t{1} << 40},
    {"STRAIT_PIPED_BYTES", VariableKind::bytes, "2M", true,
     "GPU ranks that NVLink joins, from compute capability 9.0 on: the shortest messages that go through pipes in "
     "shared memory, which need few thread blocks to fill a link, where these are bounded (STRAIT_MAX_SMS). Without a "
     "bound they pay from a multiple of that on, by the operation and the ranks (table in docs/gpus.md#pipes). 0: "
     "all; 1024G: none.",
     "", 0, std::int64_t{1} << 40},
    {"STRAIT_GRAPH_MIXING", VariableKind::choice, "1", false,
     "GPU ranks: 1: launches of CUDA graphs with captured calls and calls outside of them come after one another, in "
     "the order in which the host makes them; costs a graph two nodes. 0: the program orders them "
     "(docs/gpus.md#how-it-works).",
     "0|1"},
    {"STRAIT_AGGREGATE", VariableKind::choice, "1", true,
     "GPU ranks: 1: collectives that follow one another in a group go in one launch, side by side, so that all ranks "
     "must group them alike (docs/gpus.md#how-it-works). 0: one after another.",
     "0|1"},
    {"STRAIT_SHARE_GPUS", VariableKind::choice, "0", true,
     "1: processes may use the same GPU as ranks of one communicator, to try programs out where GPUs are few. The "
     "driver lets them take turns of milliseconds, so every call takes several; ranks that are threads of one process "
     "share a GPU without it, and run at once.",
     "0|1"},
    {"STRAIT_EXCHANGE_GBPS", VariableKind::text, "", true,
     "GPU ranks without NVLink: what each GPU sends and receives while all exchange with all, in GB/s, such as 0.6. "
     "Unset: as calibrated, else as the PCIe links tell, or as measured where that is clearly less "
     "(STRAIT_MEASURE_EXCHANGE; docs/gpus.md)."},
    {"STRAIT_MEASURE_EXCHANGE", VariableKind::choice, "1", true,
     "GPU ranks without P2P: 1: what each sends and receives while all exchange is measured when a communicator is "
     "made, in some milliseconds, where it is not given. 0: what the calibration or the PCIe links tell holds "
     "(docs/gpus.md#borders).",
     "0|1"},
    {"STRAIT_PACKETS_BYTES", VariableKind::bytes, "", true,
     "GPU ranks without NVLink: messages up to this travel as packets, which come sooner, and longer ones in bulk, "
     "which takes three quarters of the bytes. Unset, of all peers together: over PCIe Gen5 96K; through host memory "
     "240K, for a broadcast or a message 160K, for a gather or a reduce 120K; and less where links are known to be "
     "slower (docs/gpus.md).",
     "", 0, std::int64_t{1} << 30},
    {"STRAIT_HOST_MEMORY_BYTES", VariableKind::bytes, "128M", true,
     "GPU ranks without P2P: memory that the communicators of a process may pin on a host, all together; each goes on "
     "with 6 MB a rank where less is left. With less, chunks are smaller and large calls slower "
     "(docs/gpus.md#memory-of-several-communicators).",
     "", std::int64_t{96} << 20, std::int64_t{1} << 34},
    {"STRAIT_COPY_ENGINE_BYTES", VariableKind::bytes, "0", true,
     "GPU ranks: calls whose larger buffer has at least so many bytes go through copy engines, and so does each "
     "message of so many with P2P; a few thread blocks add. Without P2P kernels go on to carry messages, reductions, "
     "calls that are captured into graphs and the very largest. 0: by itself, which is never without P2P, and else "
     "large calls where few thread blocks are allowed (STRAIT_MAX_SMS) or, of two ranks, outputs are registered.",
     "", 0, std::int64_t{1} << 40},
    {"STRAIT_COPY_WINDOW_BYTES", VariableKind::bytes, "256M", true,
     "Memory of each GPU through which copy engines carry chunks with P2P, where they are used: with less, chunks are "
     "smaller and slower.",
     "", std::int64_t{1} << 20, std::int64_t{1} << 40},
    {"STRAIT_COPY_MESSAGES", VariableKind::choice, "1", true,
     "1: copy engines carry sends and receives too, where they are asked to carry calls of their size. Then ranks "
     "must group alike those that they have with one another (docs/gpus.md#copy-engines-between-gpus). 0, as under "
     "libnccl.so.2: kernels do, if need be of one thread block.",
     "0|1"},
    {"STRAIT_CPU_REDUCE_BYTES", VariableKind::bytes, "", true,
     "GPU ranks without P2P: all-reduces of at least so many bytes are added up by CPU threads (STRAIT_CPU_REDUCERS, "
     "but no more than half of the cores); with islands, what crosses between them. Where it is set, also of calls in "
     "a wire format, by their bytes before they are encoded. For links of a few GB/s: it halves what crosses them "
     "towards the GPUs. 0: none. Unset: exact ones where `strait doctor --calibrate` has shown that it pays.",
     "", 0, std::int64_t{1} << 40},
    {"STRAIT_CPU_REDUCERS", VariableKind::integer, "4", true,
     "Threads with which a GPU rank adds up on the CPU, where it does so (STRAIT_CPU_REDUCE_BYTES). They sleep while "
     "there is nothing to add.",
     "", 1, 256},
    {"STRAIT_NETWORK_LANES", VariableKind::integer, "auto", true,
     "GPU ranks of several hosts: threads with which each trades with other hosts, and connections with each of their "
     "ranks. They sleep while there is nothing to trade. auto: half of a rank's share of the cores, at most 8, and "
     "fewer where there are more than 32 ranks and hosts; of them calls that are not in a wire format go by one for "
     "each 10 Gbit/s of a rank's share of the network interface, if that tells its rate (ethtool; a container's veth "
     "does not). All by the host where that is smallest.",
     "auto", 1, 16},
    {"STRAIT_CPU_REDUCER_CORES", VariableKind::text, "", false,
     "Cores on which this process's adding threads may run, such as 0-3,16. Unset: those of the thread that makes the "
     "communicator: set it where a launcher binds that to few."},
    {"STRAIT_CPU_REDUCER_SPIN_US", VariableKind::integer, "2000", false,
     "How long an adding thread polls for the next chunk before it sleeps; less spares cores and makes long "
     "all-reduces slower.",
     "", 0, 1'000'000},
    {"STRAIT_FLIGHT_RECORDER", VariableKind::text, "", false,
     "A folder: each rank writes its last calls there when its communicator fails or is aborted, and when the process "
     "gets SIGUSR1, whose handler of before is called, too (docs/flight-recorder.md)."},
    {"STRAIT_CALIBRATION", VariableKind::text, "auto", false,
     "The file with this machine's measured rates, as `strait doctor --calibrate` writes it; rank 0's are used by all "
     "ranks. auto: that of the user's cache folder. off: the shipped defaults."},
    {"STRAIT_SIMD", VariableKind::choice, "auto", false,
     "Forces the instruction set of reductions on the CPU. Results have the same bits with each.",
     "auto|portable|avx2|avx512"},
    {"STRAIT_NCCL_VERSION", VariableKind::integer, "22809", false,
     "The version of NCCL that Strait's libnccl.so.2 says it is: 22809 stands for 2.28.9.", "", 20000, 29999},
    {"STRAIT_NCCL_PROOF", VariableKind::choice, "0", false,
     "1: Strait's libnccl.so.2 says on stderr which file serves, when a process makes its first communicator. `strait "
     "run` sets it.",
     "0|1"},
    {"STRAIT_NCCL_HOST_RANKS", VariableKind::choice, "0", false,
     "1: Strait's libnccl.so.2 makes host ranks, whose buffers are host memory: for tests, without a GPU.", "0|1"},
};

/// The name of a variable of the table; any other name does not compile.
class VariableName {
 public:
  consteval VariableName(const char* name)
      : index_(find(name)) {}  // NOLINT: implicit, so that calls take the bare name
  const Variable& variable() const { return environment_table[index_]; }

 private:
  static consteval std::size_t find(std::string_view name) {
    for (std::size_t i = 0; i < std::size(environment_table); ++i)
      if (environment_table[i].name == name) return i;
    throw "not in environment_table";
  }
  std::size_t index_;
};

struct Setting {
  std::string name;
  std::string value;
  bool operator==(const Setting&) const = default;
};

/// Reads variables of the table. A malformed value is an error that names the variable, the value and what is accepted.
class Environment {
 public:
  using Lookup = std::function<const char*(const char*)>;

  /// `lookup` is that of the process, or a stand-in (in tests, and where ranks are threads).
  explicit Environment(Lookup lookup = process_variable);

  /// getenv, or where that has nothing, what set_default said; NULL if neither has.
  static const char* process_variable(const char* name);
  /// Gives a variable of the table a value for this process wherever the environment has none: for a layer above that
  /// reads settings of its own, or has other defaults. The last value counts.
  static Status set_default(std::string_view name, const std::string& value);
  /// A variable of the table by its name, in one spelling; the default if unset.
  Result<std::string> value(std::string_view name) const;

  /// Any variable, also a launcher's; "" if unset.
  std::string raw(const char* name) const;
  /// Set, and not to the empty string.
  bool is_set(VariableName name) const;
  /// A text, or the chosen one of a choice; the default if unset.
  Result<std::string> text(VariableName name) const;
  /// Whether a choice between 0 and 1 is 1.
  Result<bool> flag(VariableName name) const;
  /// An integer or a number of bytes; the default if unset, and an error if there is none.
  Result<std::int64_t> integer(VariableName name) const;
  /// The variables that must be equal on all ranks, with their values in one spelling.
  Result<std::vector<Setting>> shared_settings() const;
  /// Reads all variables, so that a mistake shows at init and not where the variable is first used.
  Status validate() const;

 private:
  Result<std::string> canonical(const Variable& variable) const;
  Lookup lookup_;
};

/// The table as the Markdown page of the documentation.
void print_markdown(std::ostream& out, std::span<const Variable> table = environment_table);

}  // namespace strait
