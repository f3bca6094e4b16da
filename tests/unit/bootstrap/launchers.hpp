#pragma once

#include "ranks.hpp"

/// What launchers set, for tests.
namespace strait::testing {

inline const std::string secret(64, 'a');

inline Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

inline const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                   {"PMIX_NAMESPACE", "1234.0"},        {"PMIX_RANK", "1"}};

}  // namespace strait::testing
