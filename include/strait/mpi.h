/*
 * Strait communicators from MPI communicators. Header only: include it where MPI is used; Strait itself needs no MPI.
 */
#ifndef STRAIT_MPI_H_
#define STRAIT_MPI_H_

#include <mpi.h>
#include <strait/strait.h>
#include <string.h>

/* Joins the ranks of `mpi_comm`, with the same numbers. Collective over it; MPI is used here only, to pass on the
 * ticket of rank 0, and may be finalised before the communicator is destroyed. `config` may be NULL. Failures of MPI
 * (under MPI_ERRORS_RETURN) are straitSystemError. */
static inline straitResult_t straitCommInitMpi(straitComm_t* comm, MPI_Comm mpi_comm, const straitConfig_t* config) {
  /* The ticket travels with the result of making it, so that a failure on rank 0 is one on all ranks. */
  struct {
    straitUniqueId id;
    int result;
  } ticket;
  int rank = 0;
  int ranks = 0;
  memset(&ticket, 0, sizeof ticket);
  if (MPI_Comm_rank(mpi_comm, &rank) != MPI_SUCCESS || MPI_Comm_size(mpi_comm, &ranks) != MPI_SUCCESS)
    return straitSystemError;
  if (rank == 0) ticket.result = (int)straitGetUniqueId(&ticket.id);
  if (MPI_Bcast(&ticket, (int)sizeof ticket, MPI_BYTE, 0, mpi_comm) != MPI_SUCCESS) return straitSystemError;
  if (ticket.result != (int)straitSuccess) return (straitResult_t)ticket.result;
  return straitCommInitRank(comm, ranks, &ticket.id, rank, config);
}

#endif
