/* The ranks of an MPI program add up a vector. MPI starts them; Strait moves the data.
 *   mpicc all_reduce_mpi.c $(pkg-config --cflags --libs strait) -o all_reduce_mpi && mpirun -np 4 ./all_reduce_mpi */
#include <mpi.h>
#include <stdio.h>
#include <strait/mpi.h>

enum { count = 1000 };

static void check(straitResult_t result) {
  if (result == straitSuccess) return;
  fprintf(stderr, "%s\n", straitGetLastError(NULL));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  straitComm_t comm;
  check(straitCommInitMpi(&comm, MPI_COMM_WORLD, NULL));

  int rank = 0, ranks = 1;
  check(straitCommUserRank(comm, &rank));
  check(straitCommCount(comm, &ranks));
  float values[count];
  for (int i = 0; i < count; ++i) values[i] = (float)rank;
  check(straitAllReduce(values, values, count, straitFloat32, straitSum, comm, NULL));
  printf("rank %d of %d: every element is %g\n", rank, ranks, values[count - 1]);

  check(straitCommDestroy(comm));
  MPI_Finalize();
  return 0;
}
