/* Four ranks, which are threads of one process, add up a vector.
 *   cc all_reduce_threads.c $(pkg-config --cflags --libs strait) -pthread && ./a.out */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/strait.h>

enum { ranks = 4, count = 1000 };
static straitUniqueId id;

static void check(straitResult_t result) {
  if (result == straitSuccess) return;
  fprintf(stderr, "%s\n", straitGetLastError(NULL));
  exit(1);
}

static void* run_rank(void* argument) {
  int rank = (int)(size_t)argument;
  float values[count];
  for (int i = 0; i < count; ++i) values[i] = (float)rank;

  straitComm_t comm;
  check(straitCommInitRank(&comm, ranks, &id, rank, NULL));
  check(straitAllReduce(values, values, count, straitFloat32, straitSum, comm, NULL));
  printf("rank %d of %d: every element is %g\n", rank, ranks, values[count - 1]);
  check(straitCommDestroy(comm));
  return NULL;
}

int main(void) {
  pthread_t threads[ranks];
  check(straitGetUniqueId(&id));
  for (size_t rank = 0; rank < ranks; ++rank) pthread_create(&threads[rank], NULL, run_rank, (void*)rank);
  for (int rank = 0; rank < ranks; ++rank) pthread_join(threads[rank], NULL);
  return 0;
}
