// Adds up a vector over all ranks, whichever launcher started them.
//   c++ -std=c++20 all_reduce.cpp $(pkg-config --cflags --libs strait) -o all_reduce && mpirun -np 4 ./all_reduce
#include <exception>
#include <iostream>
#include <span>
#include <strait/strait.hpp>
#include <vector>

int main() try {
  const auto comm = strait::Communicator::from_environment();
  std::vector<float> values(1000, static_cast<float>(comm.rank()));
  comm.all_reduce(std::span(values));
  std::cout << "rank " << comm.rank() << " of " << comm.ranks() << ": every element is " << values.back() << "\n";
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
