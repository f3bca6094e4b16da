/* An NCCL program in C with several ranks in one thread: Strait's header must compile as C11, the library must link,
 * and sums must be right. Arguments: maxCTAs of each rank, for a configuration that also sets other fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/nccl_abi.h"

enum { ranks = 3, count = 1000 };

#define CHECK(call)                                                                               \
  do {                                                                                            \
    const ncclResult_t result = (call);                                                           \
    if (result != ncclSuccess) {                                                                  \
      fprintf(stderr, "%s: %s: %s\n", #call, ncclGetErrorString(result), ncclGetLastError(NULL)); \
      return 1;                                                                                   \
    }                                                                                             \
  } while (0)

static int make_configured(ncclComm_t* comms, char** max_ctas) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclGroupStart());
  for (int r = 0; r < ranks; ++r) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = atoi(max_ctas[r]);
    config.splitShare = 1;
    config.commName = "all";
    CHECK(ncclCommInitRankConfig(&comms[r], ranks, id, r, &config));
  }
  CHECK(ncclGroupEnd());
  return 0;
}

int main(int argc, char** argv) {
  int version = 0;
  CHECK(ncclGetVersion(&version));
  ncclComm_t comms[ranks];
  if (argc > ranks) {
    if (make_configured(comms, argv + 1) != 0) return 1;
  } else {
    CHECK(ncclCommInitAll(comms, ranks, NULL));
  }
  static int input[ranks][count], output[ranks][count];
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < count; ++i) input[r][i] = i * (r + 1);
  CHECK(ncclGroupStart());
  for (int r = 0; r < ranks; ++r) CHECK(ncclAllReduce(input[r], output[r], count, ncclInt32, ncclSum, comms[r], NULL));
  CHECK(ncclGroupEnd());
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < count; ++i)
      if (output[r][i] != i * 6) {
        fprintf(stderr, "rank %d [%d]: %d, not %d\n", r, i, output[r][i], i * 6);
        return 1;
      }
  for (int r = 0; r < ranks; ++r) CHECK(ncclCommDestroy(comms[r]));
  printf("sums are right, NCCL %d\n", version);
  return 0;
}
