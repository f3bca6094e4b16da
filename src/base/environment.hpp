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

/// Parses a number of bytes such as 65536, 64K or 4M (powers of 1024). Returns nullopt for any other text.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// One environment variable, described once for its readers, the documentation and the check at init.
struct Variable {
  std::string_view name;
  VariableKind kind;
  std::string_view default_value;  ///< "": none
  bool equal_on_all_ranks;         ///< compared when ranks join; a difference is an error
  std::string_view meaning;
  /// For a choice its values, "auto|portable|avx2"; for a number the words that are accepted instead of one.
  std::string_view choices = "";
  std::int64_t minimum = 0;  ///< of a number
  std::int64_t maximum = std::numeric_limits<std::int64_t>::max();
};

/// The rows of the table.
namespace variables {

constexpr Variable text(std::string_view name, std::string_view default_value, std::string_view meaning) {
  return {name, VariableKind::text, default_value, false, meaning};
}
constexpr Variable choice(std::string_view name, std::string_view default_value, std::string_view choices,
                          std::string_view meaning) {
  return {name, VariableKind::choice, default_value, false, meaning, choices};
}
constexpr Variable flag(std::string_view name, std::string_view default_value, std::string_view meaning) {
  return choice(name, default_value, "0|1", meaning);
}
/// `words`: what is accepted instead of a number.
constexpr Variable integer(std::string_view name, std::string_view default_value, std::int64_t minimum,
                           std::int64_t maximum, std::string_view meaning, std::string_view words = "") {
  return {name, VariableKind::integer, default_value, false, meaning, words, minimum, maximum};
}
constexpr Variable bytes(std::string_view name, std::string_view default_value, std::int64_t minimum,
                         std::int64_t maximum, std::string_view meaning) {
  return {name, VariableKind::bytes, default_value, false, meaning, "", minimum, maximum};
}
/// One that must be equal on all ranks.
constexpr Variable shared(Variable variable) {
  variable.equal_on_all_ranks = true;
  return variable;
}

/// Every environment variable that Strait defines. (Those that launchers set are read in src/bootstrap/launch.cpp.)
inline constexpr Variable table[] = {
    choice("STRAIT_DEBUG", "warn", "off|warn|info|trace", "How much is logged to stderr."),
    integer("STRAIT_RANK", "", 0, 1'000'000,
            "This process's rank, if no launcher sets it. Needs STRAIT_RANKS and, with two ranks or more, STRAIT_ROOT "
            "and STRAIT_KEY."),
    integer("STRAIT_RANKS", "", 1, 1'000'000, "The number of ranks, if no launcher sets it."),
    text("STRAIT_ROOT", "",
         "Where rank 0 listens while ranks join: host:port, 192.0.2.1:port or [2001:db8::1]:port. Overrides the "
         "launcher's."),
    text("STRAIT_KEY", "",
         "The job's shared secret, 64 hexadecimal digits (openssl rand -hex 32): whoever has it can join."),
    flag("STRAIT_ALLOW_DERIVED_KEY", "0",
         "1: if a launcher of several hosts hands out no secret and STRAIT_KEY is unset, derive the key from the job's "
         "identifiers. Users who can reach this network and guess these identifiers can then join."),
    text("STRAIT_SOCKET_IFNAME", "",
         "Network interfaces to use, by prefix: eth,ib; ^docker,lo for all except these; =eth0 for exact names. Unset: "
         "the first that is up and is neither loopback nor a container's bridge; link-local addresses and tunnels come "
         "last."),
    text("STRAIT_HOSTID", "",
         "Replaces this host's identity: ranks with different values treat one another as being on different hosts."),
    integer("STRAIT_INIT_TIMEOUT_MS", "60000", 1, 86'400'000, "How long ranks wait for one another at init."),
    integer("STRAIT_TIMEOUT_MS", "0", 0, 86'400'000, "Deadline of every operation; 0: none."),
    shared(text("STRAIT_ALGORITHM", "auto",
                "Forces an algorithm, by a name that `strait plan all-reduce --algorithm list` prints.")),
    shared(bytes("STRAIT_SLICE_BYTES", "0", 0, std::int64_t{1} << 30,
                 "Bytes that one step of a plan moves; a multiple of 16. 0: chosen by size.")),
    shared(choice("STRAIT_TRANSPORT", "auto", "auto|loopback|shm|shm_file|tcp",
                  "Forces the transport; auto: the fastest that joins all ranks.")),
    shared(choice("STRAIT_UCX", "off", "off|on|all",
                  "Whether UCX carries messages between ranks that TCP joins. on: long messages to other hosts go by "
                  "UCX, which uses InfiniBand or RoCE if available; all: long messages to ranks of the same host, too. "
                  "UCX must be installed (libucx0); its own variables apply (UCX_NET_DEVICES, UCX_TLS).")),
    text("STRAIT_TUNING_FILE", "",
         "A TOML file of overrides: algorithms, slices and lanes for some calls (docs/calibration.md). Its contents "
         "must be equal on all ranks. STRAIT_ALGORITHM and STRAIT_SLICE_BYTES take precedence."),
    flag("STRAIT_TUNING_STRICT", "0",
         "1: a mistake in the tuning file is an error at init; 0: the override is ignored with a warning."),
    shared(choice(
        "STRAIT_WIRE", "off", "off|int8|fp8|int4",
        "How the floats of sums (see STRAIT_WIRE_CALLS) are encoded between ranks, if the communicator's configuration "
        "does not say: as blocks of 8-bit "
        "whole numbers, FP8 (E4M3) or 4-bit whole numbers. Fewer bytes, but less exact (docs/wire-formats.md).")),
    shared(bytes(
        "STRAIT_WIRE_BYTES", "", 0, std::int64_t{1} << 40,
        "With a wire format of the communicator or of STRAIT_WIRE, calls whose larger buffer has fewer bytes stay "
        "exact: scalars and counts that share a block with other values would lose most, and links gain least. A "
        "format in a call's options applies at any size. Unset: 16K. On GPU ranks the default is the measured "
        "break-even: 512K through host memory, 16M over NVLink, less on slower links, never under 16K.")),
    shared(
        choice("STRAIT_WIRE_CALLS", "sums", "sums|all",
               "The calls to which a wire format of the communicator or of STRAIT_WIRE applies. sums: all-reduces and "
               "reduce-scatters; all: all-gathers and all-to-alls as well, which may carry parameters, checkpoints and "
               "activations.")),
    shared(integer("STRAIT_MAX_SMS", "0", 0, 1024,
                   "Thread blocks that an operation of GPU ranks may use; 0: as many as are useful. none: copy engines "
                   "carry operations of any size, where they can; reductions still use up to four thread blocks, and "
                   "an operation that copy engines cannot carry uses one (docs/gpus.md#no-sms).",
                   "none")),
    shared(text("STRAIT_P2P", "auto",
                "auto: GPU ranks use one another's memory where they can reach it. off: they exchange data through "
                "pinned host memory instead. pcie: they use it, but assume that no more than 16 bytes arrive whole, "
                "even over NVLink. 0-1,2-3: of all pairs only ranks 0 and 1, and ranks 2 and 3, may reach each other "
                "(larger groups: 0-1-2); pcie,0-1,2-3: both (docs/gpus.md).")),
    shared(bytes("STRAIT_LINES_BYTES", "16M", 0, std::int64_t{1} << 40,
                 "GPU ranks that NVLink joins: messages up to this size travel as lines, which arrive sooner; longer "
                 "ones in bulk, which fills the link better. The limit is doubled for one-hop exchanges of all with "
                 "all, halved for the slices of a two-hop all-reduce, and quartered for gathers with three or more "
                 "ranks. Sends also need free slots.")),
    shared(bytes("STRAIT_PIPED_BYTES", "2M", 0, std::int64_t{1} << 40,
                 "GPU ranks that NVLink joins, from compute capability 9.0 on: the shortest messages that go through "
                 "pipes in shared memory, which need few thread blocks to fill a link, when STRAIT_MAX_SMS limits "
                 "thread blocks. Without a limit, the threshold is a multiple of this, by the operation and the number "
                 "of ranks (table in docs/gpus.md#pipes). 0: all messages; 1024G: none.")),
    flag("STRAIT_GRAPH_MIXING", "1",
         "GPU ranks. 1: launches of CUDA graphs with captured calls, and calls outside of graphs, run one after "
         "another, in the order in which the host makes them; this costs each graph two nodes. 0: the program must "
         "order them (docs/gpus.md#how-it-works)."),
    flag("STRAIT_LAUNCH_ORDER", "1",
         "GPU ranks. 1: where kernels of a process's communicators do not fit side by side on a GPU, they start in the "
         "order in which the host launches them. All ranks must make their calls in the same order, and none may wait "
         "in its stream for what another stream does behind a later call (docs/gpus.md#several-communicators). 0: in "
         "any order; then calls of different communicators must not run at the same time, unless STRAIT_MAX_SMS is low "
         "enough for all."),
    shared(flag("STRAIT_AGGREGATE", "1",
                "GPU ranks. 1: consecutive collectives of a group share one launch and run side by side, so all ranks "
                "must group them alike (docs/gpus.md#how-it-works). 0: one after another.")),
    shared(flag("STRAIT_SHARE_GPUS", "0",
                "1: processes may use the same GPU as ranks of one communicator, for trying programs out where GPUs "
                "are few. The driver gives them turns of milliseconds, so every call takes several turns. Ranks that "
                "are threads of one process share a GPU without this setting, and run at the same time.")),
    shared(text("STRAIT_EXCHANGE_GBPS", "",
                "GPU ranks without NVLink: what each GPU sends and receives while all exchange with all, in GB/s (10^9 "
                "bytes a second), such as 0.6. Unset: the calibrated rate, else the rate that the PCIe links report, "
                "or the measured rate if that is clearly lower (STRAIT_MEASURE_EXCHANGE; docs/gpus.md).")),
    shared(flag("STRAIT_MEASURE_EXCHANGE", "1",
                "GPU ranks without P2P. 1: when a communicator is made, what each sends and receives while all "
                "exchange is measured, which takes some milliseconds, unless STRAIT_EXCHANGE_GBPS gives it. 0: the "
                "rate from the calibration or the PCIe links is used (docs/gpus.md#borders).")),
    shared(bytes("STRAIT_PACKETS_BYTES", "", 0, std::int64_t{1} << 30,
                 "GPU ranks without NVLink: messages up to this size travel as packets, which arrive sooner; longer "
                 "ones in bulk, which takes three quarters of the bytes. Unset, counting all peers together: over PCIe "
                 "Gen5 96K; through host memory 240K, for a broadcast or a message 160K, for a gather or a reduce "
                 "120K; less if links are known to be slower (docs/gpus.md).")),
    shared(bytes("STRAIT_HOST_MEMORY_BYTES", "128M", std::int64_t{96} << 20, std::int64_t{1} << 34,
                 "GPU ranks without P2P: memory that the communicators of a process may pin on a host, all together. "
                 "If less is left, a communicator still gets 6 MB a rank. With less memory, chunks are smaller and "
                 "large calls slower (docs/gpus.md#memory-of-several-communicators).")),
    shared(bytes("STRAIT_COPY_ENGINE_BYTES", "0", 0, std::int64_t{1} << 40,
                 "GPU ranks: calls whose larger buffer has at least this many bytes go through copy engines, and so "
                 "does, with P2P, each message of at least this many; reductions still use a few thread blocks. "
                 "Without P2P, kernels still carry messages, reductions, calls that are captured into graphs and the "
                 "very largest calls. 0: automatic. Without P2P: never. With P2P: large calls when few thread blocks "
                 "are allowed (STRAIT_MAX_SMS) or when outputs are registered (docs/gpus.md#registered-memory).")),
    shared(bytes("STRAIT_COPY_WINDOW_BYTES", "256M", std::int64_t{1} << 20, std::int64_t{1} << 40,
                 "Memory of each GPU through which copy engines carry chunks with P2P, where they are used. With less, "
                 "chunks are smaller and calls slower.")),
    shared(flag("STRAIT_COPY_MESSAGES", "1",
                "1: copy engines also carry sends and receives, if they are asked to carry calls of that size. Ranks "
                "must then group the messages between them alike (docs/gpus.md#copy-engines-between-gpus). 0, the "
                "default under libnccl.so.2: kernels carry them, if necessary with one thread block.")),
    shared(bytes("STRAIT_CPU_REDUCE_BYTES", "", 0, std::int64_t{1} << 40,
                 "GPU ranks without P2P: all-reduces of at least this many bytes are added up by CPU threads "
                 "(STRAIT_CPU_REDUCERS of them, but at most half of the cores); with islands, only what crosses "
                 "between islands. If it is set, this also applies to calls in a wire format, by their bytes before "
                 "encoding. Meant for links of a few GB/s: it halves the bytes that cross them towards the GPUs. 0: "
                 "none. Unset: exact calls, if `strait doctor --calibrate` has shown that it pays.")),
    shared(integer("STRAIT_CPU_REDUCERS", "4", 1, 256,
                   "Threads with which a GPU rank adds on the CPU, if it does so (STRAIT_CPU_REDUCE_BYTES). They sleep "
                   "while there is nothing to add.")),
    shared(integer("STRAIT_NETWORK_LANES", "auto", 1, 16,
                   "GPU ranks of several hosts: the number of threads with which each exchanges data with other hosts, "
                   "and of connections to each of their ranks. They sleep while there is nothing to exchange. auto: "
                   "half of a rank's share of the cores, at most 8, and fewer with more than 32 ranks and hosts. Exact "
                   "calls use one lane per 10 Gbit/s of a rank's share of the NIC, if the NIC reports its rate "
                   "(ethtool; a container's veth does not). The smallest host decides for all.",
                   "auto")),
    text("STRAIT_CPU_REDUCER_CORES", "",
         "Cores on which this process's adding threads may run, such as 0-3,16. Unset: those of the thread that makes "
         "the communicator. Set it if a launcher binds that thread to few cores."),
    integer("STRAIT_CPU_REDUCER_SPIN_US", "2000", 0, 1'000'000,
            "How long an adding thread polls for the next chunk before it sleeps. Less saves CPU time and makes long "
            "all-reduces slower."),
    text("STRAIT_FLIGHT_RECORDER", "",
         "A folder, made at init: each rank writes its last calls there when its communicator fails or is aborted, and "
         "when the process gets SIGUSR1, during its init what it waits for; an earlier handler of that signal is "
         "called, too. Unset: SIGUSR1 ends a process that has no handler of its own (docs/flight-recorder.md)."),
    text("STRAIT_CALIBRATION", "auto",
         "The file with this machine's measured rates, as `strait doctor --calibrate` writes it; all ranks use those "
         "of rank 0. auto: the file in the user's cache folder. off: the built-in defaults."),
    choice("STRAIT_SIMD", "auto", "auto|portable|avx2|avx512",
           "Forces the instruction set of reductions on the CPU. All of them give the same bits."),
    integer("STRAIT_NCCL_VERSION", "22809", 20000, 29999,
            "The version of NCCL that Strait's libnccl.so.2 reports: 22809 means 2.28.9."),
    flag("STRAIT_NCCL_PROOF", "0",
         "1: when a process makes its first communicator, Strait's libnccl.so.2 says on stderr which file serves it. "
         "`strait run` sets this."),
    flag("STRAIT_NCCL_HOST_RANKS", "0",
         "1: Strait's libnccl.so.2 makes host ranks, whose buffers are host memory, for tests without a GPU."),
};

}  // namespace variables

inline constexpr auto& environment_table = variables::table;

/// The name of a variable of the table; other names do not compile.
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

  /// `lookup` finds the value of a variable: that of the process, or a stand-in (in tests, and where ranks are
  /// threads).
  explicit Environment(Lookup lookup = process_variable);

  /// Returns getenv's value, else the one given to set_default(), else NULL.
  static const char* process_variable(const char* name);
  /// Sets the value of a variable of the table for this process wherever the environment has none. Used by a layer
  /// above that has settings or defaults of its own. A later call overrides an earlier one.
  static Status set_default(std::string_view name, const std::string& value);
  /// Returns the value of a variable of the table in its canonical spelling; the default if unset.
  Result<std::string> value(std::string_view name) const;

  /// Returns the value of any variable, including those of launchers; "" if unset.
  std::string raw(const char* name) const;
  /// Whether the variable is set to something other than the empty string.
  bool is_set(VariableName name) const;
  /// Returns the value of a text or choice; the default if unset.
  Result<std::string> text(VariableName name) const;
  /// Returns whether a choice between 0 and 1 is 1.
  Result<bool> flag(VariableName name) const;
  /// Returns the value of an integer or a number of bytes; the default if unset, and an error if there is no default.
  Result<std::int64_t> integer(VariableName name) const;
  /// Returns the variables that must be equal on all ranks, with their values in canonical spelling.
  Result<std::vector<Setting>> shared_settings() const;
  /// Reads all variables, so that a mistake is reported at init and not where the variable is first used.
  Status validate() const;

 private:
  Result<std::string> canonical(const Variable& variable) const;
  Lookup lookup_;
};

/// Prints the table as the Markdown page of the documentation.
void print_markdown(std::ostream& out, std::span<const Variable> table = environment_table);

}  // namespace strait
