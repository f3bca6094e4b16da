/* Under mpirun: straitCommInitMpi gives each process its rank of the MPI communicator, in C. */
#include <stdio.h>
#include <strait/mpi.h>

int main(int argc, char** argv) {
  int mpi_rank, mpi_ranks, rank = -1, ranks = -1, sum = 0, failed;
  straitComm_t comm = NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &mpi_ranks);
  failed = straitCommInitMpi(&comm, MPI_COMM_WORLD, NULL) != straitSuccess ||
           straitCommUserRank(comm, &rank) != straitSuccess || straitCommCount(comm, &ranks) != straitSuccess ||
           straitAllReduce(&mpi_rank, &sum, 1, straitInt32, straitSum, comm, NULL) != straitSuccess ||
           rank != mpi_rank || ranks != mpi_ranks || sum != mpi_ranks * (mpi_ranks - 1) / 2;
  if (failed) fprintf(stderr, "rank %d of %d, sum %d: %s\n", rank, ranks, sum, straitGetLastError(comm));
  straitCommDestroy(comm);
  MPI_Finalize();
  return failed;
}
