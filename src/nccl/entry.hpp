#pragma once

#include "nccl/nccl_abi.h"

/// STRAIT_NCCL_ENTRY(result, name, parameters) { body }: defines and exports `name` and its alias `pname`. Profilers
/// interpose on `name` and call the library through `pname`.
#define STRAIT_NCCL_ENTRY(result, name, ...)                                                                   \
  extern "C" __attribute__((visibility("default"))) result name(__VA_ARGS__);                                  \
  extern "C" __attribute__((visibility("default"))) __attribute__((alias(#name))) result p##name(__VA_ARGS__); \
  result name(__VA_ARGS__)
