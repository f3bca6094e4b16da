// Compares Strait with Open MPI: the same collectives, on the same buffers, in one run.
//
//   mpirun -np 4 host_vs_mpi -b 1K -e 64M -f 2 --json results.json
//
// For each collective and size the two libraries take turns in blocks of a few milliseconds (ours, theirs, theirs,
// ours, ...), so that neither always runs first, and slow drifts of the machine affect both. A block has as many calls
// as fit into its time, the same number for both libraries, after a warm-up of both. There is an MPI barrier between
// blocks, and no operation of one library is pending while the other runs. The time of a block is that of its slowest
// rank; the result for a size is the median of its blocks. "Bytes" is the size of the larger of a rank's two buffers,
// as in nccl-tests. The results of both libraries are verified at each size, with values for which every order of
// summation is exact.
#include <fmt/format.h>
#include <mpi.h>
#include <strait/mpi.h>
#include <strait/strait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "files.hpp"
#include "perf/provenance.hpp"
#include "words.hpp"

namespace {

using strait::Collective;

constexpr std::size_t page_bytes = 4096;
constexpr int blocks_each = 7;
constexpr int warm_up_calls = 3;
constexpr int most_calls = 5000;
constexpr double second_us = 1e6;

struct Settings {
  std::size_t min_bytes = 1024;
  std::size_t max_bytes = std::size_t{64} << 20;
  std::size_t factor = 2;
  double block_us = 5000;
  bool strait_memory = false;
  std::string json_path;
};

struct Line {
  Collective collective;
  std::size_t bytes;
  double strait_us;
  double mpi_us;
  double ratio() const { return mpi_us / strait_us; }
};

int world_rank = 0;
int world_ranks = 0;

[[noreturn]] void stop(const std::string& message) {
  fmt::print(stderr, "host_vs_mpi: rank {}: {}\n", world_rank, message);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void check(straitResult_t result, straitComm_t comm, const char* what) {
  if (result != straitSuccess) stop(fmt::format("{}: {}", what, straitGetLastError(comm)));
}

void check_mpi(int result, const char* what) {
  if (result != MPI_SUCCESS) stop(fmt::format("{} failed with code {}", what, result));
}

/// One of the two buffers. Both libraries use the same memory.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool strait_memory, straitComm_t comm) : comm_(comm), strait_memory_(strait_memory) {
    if (strait_memory) {
      void* data = nullptr;
      check(straitMemAlloc(&data, bytes), comm, "straitMemAlloc");
      check(straitCommRegister(comm, data, bytes, &handle_), comm, "straitCommRegister");
      data_ = static_cast<float*>(data);
    } else {
      data_ = static_cast<float*>(std::aligned_alloc(page_bytes, (bytes + page_bytes - 1) / page_bytes * page_bytes));
    }
    if (data_ == nullptr) stop(fmt::format("cannot allocate {} bytes. Lower --maxbytes", bytes));
    std::memset(data_, 0, bytes);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (strait_memory_) {
      straitCommDeregister(comm_, handle_);
      straitMemFree(data_);
    } else {
      std::free(data_);
    }
  }
  float* data() const { return data_; }

 private:
  straitComm_t comm_;
  bool strait_memory_;
  void* handle_ = nullptr;
  float* data_ = nullptr;
};

/// One collective at one size: the calls of both libraries, and the verification of their results.
struct Contest {
  Collective collective;
  std::size_t bytes;  ///< size of the larger buffer
  std::size_t count;  ///< the count argument of the call
  float* send;
  float* receive;
  straitComm_t comm;

  std::size_t ranks() const { return static_cast<std::size_t>(world_ranks); }
  bool is_all_reduce() const { return collective == Collective::all_reduce; }
  std::size_t send_count() const {
    return is_all_reduce() || collective == Collective::all_gather ? count : count * ranks();
  }
  std::size_t receive_count() const {
    return is_all_reduce() || collective == Collective::reduce_scatter ? count : count * ranks();
  }

  void call_strait() const { check(strait_result(), comm, "A collective"); }
  void call_mpi() const { check_mpi(mpi_result(), "A collective of MPI"); }
  void write_input() const;
  void verify(const char* whose) const;

 private:
  straitResult_t strait_result() const;
  int mpi_result() const;
};

Contest make_contest(Collective collective, std::size_t bytes, float* send, float* receive, straitComm_t comm) {
  const std::size_t total = bytes / sizeof(float);
  const auto ranks = static_cast<std::size_t>(world_ranks);
  const std::size_t count = collective == Collective::all_reduce ? total : total / ranks;
  const std::size_t exact = collective == Collective::all_reduce ? total : count * ranks;
  return {collective, exact * sizeof(float), count, send, receive, comm};
}

straitResult_t Contest::strait_result() const {
  switch (collective) {
    case Collective::all_reduce:
      return straitAllReduce(send, receive, count, straitFloat32, straitSum, comm, nullptr);
    case Collective::all_gather:
      return straitAllGather(send, receive, count, straitFloat32, comm, nullptr);
    case Collective::reduce_scatter:
      return straitReduceScatter(send, receive, count, straitFloat32, straitSum, comm, nullptr);
    default:
      return straitAllToAll(send, receive, count, straitFloat32, comm, nullptr);
  }
}

int Contest::mpi_result() const {
  const int n = static_cast<int>(count);
  switch (collective) {
    case Collective::all_reduce:
      return MPI_Allreduce(send, receive, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case Collective::all_gather:
      return MPI_Allgather(send, n, MPI_FLOAT, receive, n, MPI_FLOAT, MPI_COMM_WORLD);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter_block(send, receive, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    default:
      return MPI_Alltoall(send, n, MPI_FLOAT, receive, n, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

/// Returns a small whole number. Sums of these are exact in any order, so both libraries must give the same results.
float input(std::size_t rank, std::size_t index) {
  return static_cast<float>((rank * 31 + index * 7 + index / 1021) % 97);
}

void Contest::write_input() const {
  for (std::size_t i = 0; i < send_count(); ++i) send[i] = input(static_cast<std::size_t>(world_rank), i);
  std::fill_n(receive, receive_count(), -1.0F);
}

void Contest::verify(const char* whose) const {
  const auto me = static_cast<std::size_t>(world_rank);
  const std::size_t first =
      collective == Collective::reduce_scatter || collective == Collective::all_to_all ? me * count : 0;
  const bool reduces = strait::is_reduction(collective);
  for (std::size_t i = 0; i < receive_count(); ++i) {
    float expected = 0;
    if (reduces)
      for (std::size_t r = 0; r < ranks(); ++r) expected += input(r, first + i);
    else
      expected = input(i / count, first + i % count);
    if (receive[i] != expected)
      stop(fmt::format("{}'s {} of {} bytes is wrong: element {} is {}, not {}", whose, strait::name(collective), bytes,
                       i, receive[i], expected));
  }
}

double slowest_rank(double us) {
  double slowest = 0;
  check_mpi(MPI_Allreduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
  return slowest;
}

/// Measures a block of calls. Returns the time of one call on the slowest rank, in microseconds.
template <class F>
double time_block(int calls, F&& call) {
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  const double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  const double us = (MPI_Wtime() - start) * second_us / calls;
  return slowest_rank(us);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Line run(const Contest& contest, const Settings& settings) {
  const auto ours = [&] { contest.call_strait(); };
  const auto theirs = [&] { contest.call_mpi(); };
  contest.write_input();
  ours();
  contest.verify("Strait");
  contest.write_input();
  theirs();
  contest.verify("MPI");
  // Both libraries have the same warm-up, and then the same number of calls per block: as many calls of the slower one
  // as fit.
  const double slower_us = std::max(time_block(warm_up_calls, ours), time_block(warm_up_calls, theirs));
  const int calls = std::clamp(static_cast<int>(settings.block_us / slower_us), 1, most_calls);
  std::vector<double> ours_us, theirs_us;
  for (int block = 0; block < blocks_each; ++block) {
    if (block % 2 == 0) {
      ours_us.push_back(time_block(calls, ours));
      theirs_us.push_back(time_block(calls, theirs));
    } else {
      theirs_us.push_back(time_block(calls, theirs));
      ours_us.push_back(time_block(calls, ours));
    }
  }
  return {contest.collective, contest.bytes, median(ours_us), median(theirs_us)};
}

struct Verdict {
  double geometric_mean = 1;
  double worst = 0;
};

Verdict verdict(const std::vector<Line>& lines) {
  double logs = 0;
  double worst = lines.front().ratio();
  for (const Line& line : lines) {
    logs += std::log(line.ratio());
    worst = std::min(worst, line.ratio());
  }
  return {std::exp(logs / static_cast<double>(lines.size())), worst};
}

nlohmann::ordered_json to_json(const std::vector<Line>& lines) {
  const Verdict result = verdict(lines);
  nlohmann::ordered_json json = {{"collective", strait::name(lines.front().collective)},
                                 {"geometric_mean_ratio", result.geometric_mean},
                                 {"worst_ratio", result.worst}};
  for (const Line& line : lines)
    json["sizes"].push_back(
        {{"bytes", line.bytes}, {"strait_us", line.strait_us}, {"mpi_us", line.mpi_us}, {"ratio", line.ratio()}});
  return json;
}

std::vector<Line> run_collective(Collective collective, const Settings& settings, const Buffer& send,
                                 const Buffer& receive, straitComm_t comm) {
  std::vector<Line> lines;
  for (std::size_t bytes = settings.min_bytes; bytes <= settings.max_bytes; bytes *= settings.factor) {
    lines.push_back(run(make_contest(collective, bytes, send.data(), receive.data(), comm), settings));
    const Line& line = lines.back();
    if (world_rank == 0)
      fmt::print("{:<16}{:>12}{:>14.2f}{:>14.2f}{:>10.2f}\n", strait::name(collective), line.bytes, line.strait_us,
                 line.mpi_us, line.ratio());
    std::fflush(stdout);
  }
  const Verdict result = verdict(lines);
  if (world_rank == 0)
    fmt::print("# {}: geometric mean of the ratios {:.2f}, worst {:.2f}\n", strait::name(collective),
               result.geometric_mean, result.worst);
  return lines;
}

void run_all(const Settings& settings, straitComm_t comm) {
  const Buffer send(settings.max_bytes, settings.strait_memory, comm);
  const Buffer receive(settings.max_bytes, settings.strait_memory, comm);
  char mpi_version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(mpi_version, &length);
  nlohmann::ordered_json json = {{"program", "host_vs_mpi"},
                                 {"provenance", strait::perf::provenance()},
                                 {"mpi_version", mpi_version},
                                 {"ranks", world_ranks},
                                 {"memory", settings.strait_memory ? "strait" : "plain"},
                                 {"block_us", settings.block_us},
                                 {"blocks", blocks_each}};
  if (world_rank == 0)
    fmt::print(
        "# {} ranks, {} memory; ratio: MPI's time over Strait's, above 1 Strait is faster\n{:<16}{:>12}{:>14}"
        "{:>14}{:>10}\n",
        world_ranks, settings.strait_memory ? "strait" : "plain", "# collective", "bytes", "strait (us)", "MPI (us)",
        "ratio");
  for (const auto collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    json["results"].push_back(to_json(run_collective(collective, settings, send, receive, comm)));
  if (world_rank != 0 || settings.json_path.empty()) return;
  if (auto status = strait::tools::write_file(settings.json_path, json.dump(2) + "\n"); !status)
    stop(status.error().message);
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Strait against MPI on host memory, in one run (start it with mpirun)", "host_vs_mpi");
  const auto bytes = [&app](const std::string& option, std::size_t& target, const std::string& help) {
    app.add_option_function<std::string>(
        option,
        [&target](const std::string& word) {
          const auto parsed = strait::tools::parse_size(word);
          if (!parsed) throw CLI::ValidationError(parsed.error().message);
          target = *parsed;
        },
        help);
  };
  bytes("-b,--minbytes", settings.min_bytes, "Smallest size (default: 1K)");
  bytes("-e,--maxbytes", settings.max_bytes, "Largest size (default: 64M)");
  app.add_option("-f,--stepfactor", settings.factor, "Multiplied from size to size")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app.add_option("--block-us", settings.block_us, "Time of a block of calls")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option_function<std::string>(
         "--memory", [&](const std::string& word) { settings.strait_memory = word == "strait"; },
         "Buffers of both libraries: plain (malloc) or strait (straitMemAlloc, registered)")
      ->check(CLI::IsMember({"plain", "strait"}));
  app.add_option("--json", settings.json_path, "Write the results to this file");
  CLI11_PARSE(app, argc, argv);

  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
  const std::size_t least = static_cast<std::size_t>(world_ranks) * sizeof(float);
  if (settings.min_bytes < least || settings.min_bytes > settings.max_bytes)
    stop(fmt::format("--minbytes must be {} or more and at most --maxbytes", least));
  straitComm_t comm = nullptr;
  check(straitCommInitMpi(&comm, MPI_COMM_WORLD, nullptr), nullptr, "straitCommInitMpi");
  run_all(settings, comm);
  MPI_Barrier(MPI_COMM_WORLD);
  check(straitCommDestroy(comm), nullptr, "straitCommDestroy");
  MPI_Finalize();
  return 0;
}
