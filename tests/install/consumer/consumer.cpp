// A user's program: two ranks, threads of one process, add up a vector through the C++ interface.
#include <exception>
#include <iostream>
#include <span>
#include <strait/strait.hpp>
#include <thread>
#include <vector>

namespace {

bool run_rank(const straitUniqueId& id, int rank) try {
  const strait::Communicator comm(id, rank, 2);
  std::vector<double> values(1000, rank + 1);
  comm.all_reduce(std::span(values));
  return values == std::vector<double>(values.size(), 3);
} catch (const std::exception& error) {
  std::cerr << "rank " << rank << ": " << error.what() << "\n";
  return false;
}

}  // namespace

int main() {
  const straitUniqueId id = strait::make_unique_id();
  bool first = false;
  std::thread other([&] { first = run_rank(id, 0); });
  const bool second = run_rank(id, 1);
  other.join();
  std::cout << "first " << first << ", second " << second << "\n";
  return first && second ? 0 : 1;
}
