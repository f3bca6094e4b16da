/* A user's program: two ranks, threads of one process, add up a vector. */
#include <pthread.h>
#include <stdio.h>
#include <strait/strait.h>

enum { ranks = 2, count = 1000 };
static straitUniqueId id;

static int check(straitResult_t result) {
  if (result != straitSuccess) fprintf(stderr, "%s: %s\n", straitGetErrorString(result), straitGetLastError(NULL));
  return result == straitSuccess;
}

/* Returns its argument on success. */
static void* run_rank(void* argument) {
  int rank = *(int*)argument;
  float values[count];
  straitComm_t comm;
  for (int i = 0; i < count; ++i) values[i] = (float)(i + rank);
  if (!check(straitCommInitRank(&comm, ranks, &id, rank, NULL))) return NULL;
  if (!check(straitAllReduce(values, values, count, straitFloat32, straitSum, comm, NULL))) return NULL;
  for (int i = 0; i < count; ++i) {
    if (values[i] != (float)(2 * i + 1)) {
      fprintf(stderr, "rank %d: element %d is %g instead of %d\n", rank, i, values[i], 2 * i + 1);
      return NULL;
    }
  }
  return check(straitCommDestroy(comm)) ? argument : NULL;
}

int main(void) {
  int version = 0, failures = 0;
  int numbers[ranks];
  pthread_t threads[ranks];
  if (!check(straitGetVersion(&version)) || version != STRAIT_VERSION) {
    fprintf(stderr, "header %d, library %d\n", STRAIT_VERSION, version);
    return 1;
  }
  if (!check(straitGetUniqueId(&id))) return 1;
  for (int rank = 0; rank < ranks; ++rank) {
    numbers[rank] = rank;
    if (pthread_create(&threads[rank], NULL, run_rank, &numbers[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    void* result = NULL;
    pthread_join(threads[rank], &result);
    failures += result == NULL;
  }
  printf("%d failures\n", failures);
  return failures;
}
