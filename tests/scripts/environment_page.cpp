// Prints docs/environment.md, from the table that the library itself reads.
#include <iostream>

#include "base/environment.hpp"

int main() {
  std::cout << R"(# Environment variables

Generated from `src/base/environment.hpp` by `scripts/generate_environment_docs.sh`. A value that is not accepted is an
error at init that names the variable. A name that begins with `STRAIT_` and is not in this list is a warning at init.
Variables marked "equal on all ranks" are compared when ranks join; ranks that differ are told which one.

)";
  strait::print_markdown(std::cout);
  return std::cout.flush() ? 0 : 1;
}
