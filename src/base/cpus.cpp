#include "base/cpus.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <numeric>
#include <system_error>
#include <thread>

namespace strait {
namespace {

/// Returns the numbers at the beginning of a file, at most `most` of them.
std::vector<double> numbers_of(const std::string& path, std::size_t most) {
  std::vector<double> numbers;
  std::ifstream file(path);
  for (double number = 0; numbers.size() < most && file >> number;) numbers.push_back(number);
  return numbers;
}

/// Returns how many cores' worth of time the control group in this folder allows; 0: unlimited or unknown.
double quota_of(const std::string& folder) {
  auto quota = numbers_of(folder + "/cpu.max", 2);  // version 2: "200000 100000" or "max 100000"
  if (quota.empty()) {
    quota = numbers_of(folder + "/cpu.cfs_quota_us", 1);
    const auto period = numbers_of(folder + "/cpu.cfs_period_us", 1);
    quota.insert(quota.end(), period.begin(), period.end());
  }
  return quota.size() == 2 && quota[0] > 0 && quota[1] > 0 ? quota[0] / quota[1] : 0;
}

/// Returns the number of the control group in this folder, which is the same in all containers.
std::uint64_t group_in(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 ? status.st_ino : 1;
}

/// Returns the folders of this process's control groups that limit CPUs, and of those above them.
std::vector<std::string> group_folders(const std::string& root) {
  const std::string tree = root + "/sys/fs/cgroup", old_tree = tree + "/cpu";
  std::vector<std::string> folders{tree, old_tree};  // in a container these may be the only visible groups
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/jobs/mine"; version 1: "4:cpuacct,cpu:/jobs/mine"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.find("..") != std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string& top = controllers == ",," ? tree : old_tree;
    for (std::string group = line.substr(second + 1); group.size() > 1 && group[0] == '/';
         group.resize(group.rfind('/')))
      folders.push_back(top + group);
  }
  return folders;
}

}  // namespace

CpuQuota cpu_quota(const std::string& root) {
  CpuQuota least;
  for (const std::string& folder : group_folders(root)) {
    const double cores = quota_of(folder);
    if (cores > 0 && (least.cores == 0 || cores < least.cores)) least = {cores, group_in(folder)};
  }
  return least;
}

std::uint32_t within_quota(std::size_t cpus, const CpuQuota& quota) {
  const double time = quota.cores > 0 ? std::ceil(quota.cores) : static_cast<double>(cpus);
  return static_cast<std::uint32_t>(std::min(static_cast<double>(cpus), time));
}

std::vector<std::uint32_t> allowed_cpus() {
  cpu_set_t set;
  std::vector<std::uint32_t> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  } else {
    cpus.resize(std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, CPU_SETSIZE));
    std::iota(cpus.begin(), cpus.end(), 0u);
  }
  return cpus;
}

std::optional<std::vector<std::uint32_t>> cpus_of_list(std::string_view list, std::uint32_t end) {
  const auto number = [end](std::string_view digits) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const char* const last = digits.data() + digits.size();
    const auto [after, error] = std::from_chars(digits.data(), last, value);
    if (error != std::errc{} || after != last || value >= end) return std::nullopt;
    return value;
  };
  std::vector<std::uint32_t> cpus;
  for (bool goes_on = !list.empty(); goes_on;) {
    const std::size_t comma = list.find(',');
    const std::string_view range = list.substr(0, comma);
    const std::size_t dash = range.find('-');
    const auto first = number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(range.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (std::uint32_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    goes_on = comma != std::string_view::npos;
    if (goes_on) list.remove_prefix(comma + 1);
  }
  return cpus;
}

}  // namespace strait
