// Compares ways to move a buffer between two processes of one host: the evidence for the design of the host transport.
//
//   copy_paths -b 4K -e 64M --json results.json
//
// Two processes, each pinned to a core, send one another `bytes` at the same time:
//   cma            process_vm_readv from the peer's private buffer into the own one: one copy, by the kernel
//   slots          two copies through a ring of shared slots that stays in the cache: private -> slot -> private
//   direct         one copy from the peer's buffer, which is in shared memory, into the own private one
// slots and direct are measured with plain and with non-temporal stores to the destination, and with and without huge
// pages for the shared memory. Before each exchange, outside the measured time, each process writes its source again,
// like a program that has just computed it. Otherwise the peer would read from its own cache what it has read before.
// The methods take turns in blocks, in a rotating order. The result is the median of the blocks, in GB/s of one
// direction. The results of every method are verified at every size.
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copy_methods.hpp"
#include "files.hpp"
#include "perf/provenance.hpp"
#include "words.hpp"

using namespace copy_paths;

namespace {

constexpr int blocks = 7;

struct Row {
  std::size_t bytes;
  std::vector<std::optional<double>> gbps;  ///< by method; empty: refused by the kernel
};

/// Runs the measurement in one of the two processes; both must call it. Only process 0 uses the rows.
std::vector<Row> measure(Process& process, const std::vector<Method>& methods, const std::vector<std::size_t>& sizes,
                         bool prints) {
  std::vector<Row> rows;
  for (const std::size_t bytes : sizes) {
    process.fill_sources(bytes);
    for (const Method& method : methods) process.verify(method, bytes);
    std::vector<std::vector<double>> times_us(methods.size());
    for (std::size_t block = 0; block < blocks; ++block)
      for (std::size_t i = 0; i < methods.size(); ++i) {
        const std::size_t turn = (i + block * 3) % methods.size();
        times_us[turn].push_back(process.time_block(methods[turn], bytes));
      }
    Row row{bytes, {}};
    for (std::size_t i = 0; i < methods.size(); ++i) {
      std::nth_element(times_us[i].begin(), times_us[i].begin() + blocks / 2, times_us[i].end());
      const bool refused = methods[i].kind == Method::Kind::cma && process.cma_refused();
      row.gbps.push_back(refused ? std::nullopt
                                 : std::optional(static_cast<double>(bytes) / times_us[i][blocks / 2] * 1e-3));
    }
    rows.push_back(row);
    if (prints) fmt::print(stderr, "measured {} bytes\n", bytes);
  }
  return rows;
}

std::string setting(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void print_table(const std::vector<Method>& methods, const std::vector<Row>& rows) {
  fmt::print("# GB/s of one direction, both at once\n{:<18}", "bytes");
  for (const Row& row : rows) fmt::print("{:>10}", row.bytes);
  for (std::size_t i = 0; i < methods.size(); ++i) {
    fmt::print("\n{:<18}", methods[i].name());
    for (const Row& row : rows) fmt::print("{:>10}", row.gbps[i] ? fmt::format("{:.2f}", *row.gbps[i]) : "refused");
  }
  fmt::print("\n");
}

void write_json(const std::string& path, const std::vector<Method>& methods, const std::vector<Row>& rows,
                const std::vector<int>& cpus, const std::string& huge_setting) {
  nlohmann::ordered_json json = {{"program", "copy_paths"},
                                 {"provenance", strait::perf::provenance()},
                                 {"cpus", cpus},
                                 {"shmem_huge_pages", huge_setting},
                                 {"slot_depth", depth},
                                 {"unit", "GB/s of one direction, both at once"}};
  for (std::size_t i = 0; i < methods.size(); ++i) {
    nlohmann::ordered_json method = {{"method", methods[i].name()}};
    for (const Row& row : rows)
      method["rates"].push_back(
          {{"bytes", row.bytes},
           {"gbps", row.gbps[i] ? nlohmann::ordered_json(*row.gbps[i]) : nlohmann::ordered_json()}});
    json["results"].push_back(method);
  }
  if (auto status = strait::tools::write_file(path, json.dump(2) + "\n"); !status) stop(status.error().message);
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    stop(fmt::format("cannot run on core {}: {}. Choose others with --cpus", cpu, std::strerror(errno)));
}

std::vector<int> first_two_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  return cpus;
}

}  // namespace

int main(int argc, char** argv) {
  std::string smallest = "4K";
  std::string largest = "64M";
  std::string json_path;
  std::vector<int> cpus = first_two_cpus();
  CLI::App app("Ways to move a buffer between two processes of one host", "copy_paths");
  app.add_option("-b,--minbytes", smallest, "Smallest size")->capture_default_str();
  app.add_option("-e,--maxbytes", largest, "Largest size")->capture_default_str();
  app.add_option("--cpus", cpus, "The two cores")->expected(2);
  app.add_option("--json", json_path, "Write the results to this file");
  CLI11_PARSE(app, argc, argv);
  const auto min_bytes = strait::tools::parse_size(smallest);
  const auto max_bytes = strait::tools::parse_size(largest);
  if (!min_bytes || !max_bytes || *min_bytes < 64 || *min_bytes % 64 != 0 || *min_bytes > *max_bytes)
    stop("-b and -e must be sizes such as 4K and 64M, -b a multiple of 64 bytes and the smaller");
  if (cpus.size() < 2) stop("needs two cores");

  std::vector<std::size_t> sizes;
  for (std::size_t bytes = *min_bytes; bytes <= *max_bytes; bytes *= 2) sizes.push_back(bytes);
  Memory memory(sizes.back());
  const auto methods = all_methods();
  const std::string huge_setting = setting("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  fmt::print("# {}, cores {} and {}, slots of depth {}, huge pages of shared memory: {}\n",
             strait::perf::provenance()["cpu"].get<std::string>(), cpus[0], cpus[1], depth, huge_setting);
  std::fflush(stdout);

  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // otherwise Yama lets only the parent read this process's memory
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) stop(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pin(cpus[1]);
    Process process(memory, 1, parent);
    measure(process, methods, sizes, false);
    std::_Exit(0);
  }
  pin(cpus[0]);
  Process process(memory, 0, child);
  const auto rows = measure(process, methods, sizes, isatty(STDERR_FILENO) == 1);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) stop("the second process failed");
  print_table(methods, rows);
  if (!json_path.empty()) write_json(json_path, methods, rows, cpus, huge_setting);
  return 0;
}
