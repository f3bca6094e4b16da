/*
 * Strait: collective communication for narrow links. The C interface.
 *
 * Ranks. A communicator joins `ranks` ranks, numbered from 0. A rank is a thread or a process; host ranks exchange host
 * memory, GPU ranks (device >= 0 in the configuration) device memory.
 *
 * Buffers. `count` is always in elements of `datatype`. Buffers may be any memory that the caller owns, at any
 * alignment. From the call until its completion the library reads send buffers and writes receive buffers; after that
 * it keeps no pointer. Send and receive buffers must not overlap, except in the in-place form that a call names.
 *
 * Completion. On host ranks a call returns when its result is complete and its buffers may be reused; `stream` is NULL.
 * On GPU ranks it returns when the work is enqueued, and is ordered on `stream`. Inside a group (straitGroupStart ...
 * straitGroupEnd) calls are only recorded; straitGroupEnd runs them all.
 *
 * Order. All ranks of a communicator call the same collectives in the same order with the same count, type, operation
 * and root. If they do not, every rank gets straitMismatch, and straitGetLastError shows both calls.
 *
 * Threads. Different threads may use different communicators at once, but only one thread at a time may use a given
 * communicator. straitCommAbort and straitCommGetAsyncError may be called from any thread at any time, and so may calls
 * that say so.
 *
 * Errors. Functions that can fail return a straitResult_t. A bad argument is straitInvalidArgument, changes nothing and
 * leaves the communicator usable. Any other failure of a collective is sticky: every later call on that communicator
 * returns it at once. The outputs of the failed call are undefined. straitGetLastError says what failed, on which rank
 * and host, and what to do.
 */
#ifndef STRAIT_H_
#define STRAIT_H_

#include <stddef.h>
#include <stdint.h>

#define STRAIT_MAJOR 0
#define STRAIT_MINOR 1
#define STRAIT_PATCH 0
#define STRAIT_VERSION (STRAIT_MAJOR * 10000 + STRAIT_MINOR * 100 + STRAIT_PATCH)

#if defined(__GNUC__)
#define STRAIT_API __attribute__((visibility("default")))
#else
#define STRAIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct straitComm* straitComm_t;
/* On GPU ranks a cudaStream_t, which may be destroyed as soon as the calls on it are enqueued. On host ranks pass
 * NULL. */
typedef void* straitStream_t;

typedef enum {
  straitSuccess = 0,
  straitInvalidArgument = 1, /* an argument is wrong; nothing was changed */
  straitInvalidUsage = 2,    /* valid arguments, but at the wrong time or in the wrong combination */
  straitSystemError = 3,     /* the operating system refused something */
  straitCudaError = 4,
  straitInternalError = 5, /* a defect in Strait: please report it */
  straitRemoteError = 6,   /* a peer died, left, or could not be reached */
  straitMismatch = 7,      /* ranks made different calls, or run with different settings */
  straitTimeout = 8,       /* a deadline passed */
  straitAborted = 9,       /* the communicator was aborted */
  straitUnsupported = 10,  /* not built in, or not possible on this machine */
  straitOutOfMemory = 11,
  straitInProgress = 12 /* reserved: no call of this version returns it */
} straitResult_t;

/* Element types. Values are NCCL's. */
typedef enum {
  straitInt8 = 0,
  straitUint8 = 1,
  straitInt32 = 2,
  straitUint32 = 3,
  straitInt64 = 4,
  straitUint64 = 5,
  straitFloat16 = 6,
  straitFloat32 = 7,
  straitFloat64 = 8,
  straitBfloat16 = 9,
  straitFloat8e4m3 = 10,
  straitFloat8e5m2 = 11
} straitDataType_t;

/* Reductions; user-made ones (straitRedOpCreatePreMulSum) follow straitAvg. Values are NCCL's. */
typedef enum {
  straitSum = 0,
  straitProd = 1,
  straitMax = 2,
  straitMin = 3,
  straitAvg = 4,
  straitMaxRedOp = 0x7fffffff /* not a reduction: makes the enumeration wide enough for user-made ones */
} straitRedOp_t;

/* Where the scalar of straitRedOpCreatePreMulSum is stored. Values are NCCL's. */
typedef enum {
  straitScalarDevice = 0,
  straitScalarHostImmediate = 1,
  straitMaxScalarResidence = 0x7fffffff /* not a residence: makes the enumeration wide enough to check any number */
} straitScalarResidence_t;

/* The ticket by which ranks find and authenticate one another: an address and a 256-bit key. Whoever has it can join,
 * so pass it on through a channel that you trust. */
#define STRAIT_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[STRAIT_UNIQUE_ID_BYTES];
} straitUniqueId;

/* How the floats of a call are encoded between ranks: in blocks of 128, each with a scale, and a small code for every
 * element. Fewer bytes, but less exact: docs/wire-formats.md specifies the bits and the error bounds. */
typedef enum {
  straitWireDefault = 0, /* in a configuration: that of STRAIT_WIRE; in a call's options: the communicator's */
  straitWireOff = 1,     /* elements as they are */
  straitWireInt8 = 2,
  straitWireFp8 = 3,
  straitWireInt4 = 4
} straitWireFormat_t;

/* A value of `max_sms`: copy engines carry operations of any size, where they can, and leave the SMs to the program.
 * Reductions still use up to four thread blocks, and an operation that copy engines cannot carry uses one
 * (docs/gpus.md#no-sms lists them). Small operations are slower than with kernels. */
#define STRAIT_NO_SMS (-1)

/* Options of a communicator. Start from STRAIT_CONFIG_INITIALIZER: fields that later versions add then have their
 * defaults. */
typedef struct {
  size_t size_bytes;       /* sizeof(straitConfig_t) */
  uint32_t magic;          /* STRAIT_CONFIG_MAGIC */
  int device;              /* CUDA device of this rank; -1: a host rank */
  int64_t init_timeout_ms; /* deadline of init; 0: STRAIT_INIT_TIMEOUT_MS, by default 60 s */
  int64_t timeout_ms;      /* deadline of every operation; 0: STRAIT_TIMEOUT_MS, by default none */
  int max_sms; /* GPU ranks: thread blocks that an operation may use, or STRAIT_NO_SMS; 0: STRAIT_MAX_SMS, by
                  default up to 128 (large operations 64 or 32). With 1 to 8, or STRAIT_NO_SMS, copy engines
                  carry large operations between GPUs that reach one another's memory, and take
                  STRAIT_COPY_WINDOW_BYTES (256 MB) of each GPU */
  int wire;    /* straitWireFormat_t, the same on all ranks. Applies to all-reduces and reduce-scatters (sums and
                  averages of float32, bfloat16, float16), with STRAIT_WIRE_CALLS=all to all-gathers and
                  all-to-alls, too. Other calls stay exact, as do those smaller than STRAIT_WIRE_BYTES (default:
                  16 KB; on GPU ranks, the size at which formats start to pay) */
} straitConfig_t;
#define STRAIT_CONFIG_MAGIC 0x53747261u
#define STRAIT_CONFIG_INITIALIZER \
  { sizeof(straitConfig_t), STRAIT_CONFIG_MAGIC, -1, 0, 0, 0, 0 }

/* Options of one call (straitAllReduceWithOptions and others). Start from STRAIT_CALL_OPTIONS_INITIALIZER. */
typedef struct {
  size_t size_bytes; /* sizeof(straitCallOptions_t) */
  uint32_t magic;    /* STRAIT_CALL_OPTIONS_MAGIC */
  int wire;        /* straitWireFormat_t, the same on all ranks. A format for a call that cannot have one is an error */
  float* residual; /* error feedback for a reduction with a wire format; NULL: none. Memory of the caller, of the same
                      kind as sendbuff, with one float for each of its elements, zero at first. It is added to this
                      rank's contribution before encoding and overwritten with the encoding error. Ranks need not
                      agree on it. Not used in a communicator of one rank, nor by a call that stays exact because it
                      is small (see wire in straitConfig_t) */
  int max_sms;     /* GPU ranks: thread blocks that this call may use, or STRAIT_NO_SMS; the same on all ranks.
                      Overrides the communicator's value; 0 keeps it. Copy engines are used only if the communicator
                      already has them (through its own max_sms or STRAIT_COPY_ENGINE_BYTES) or the output is
                      registered */
  const char* algorithm; /* the plan to run, by the name that `strait explain` prints; the same on all ranks. NULL:
                            chosen automatically. Overrides STRAIT_ALGORITHM and the tuning file. An unknown name is an
                            error, and so is a plan that cannot run this call on these ranks, or any name together with
                            a wire format. On host ranks, the first such request in a process that is predicted to be
                            slower than the automatic choice is logged as a warning. On GPU ranks: "one_hop" or
                            "two_hop", for calls whose kernels have both; what copy engines or CPU threads carry does
                            not change */
} straitCallOptions_t;
#define STRAIT_CALL_OPTIONS_MAGIC 0x53747262u
#define STRAIT_CALL_OPTIONS_INITIALIZER \
  { sizeof(straitCallOptions_t), STRAIT_CALL_OPTIONS_MAGIC, 0, NULL, 0, NULL }

/* ---- library ---- */

/* The version of the library that is loaded (compare with STRAIT_VERSION, that of this header). */
STRAIT_API straitResult_t straitGetVersion(int* version);
/* A short fixed text for a result; never NULL. */
STRAIT_API const char* straitGetErrorString(straitResult_t result);
/* The last error on the calling thread, in one line: what failed, where, and the remedy. With a communicator (`comm`
 * may be NULL): its sticky error, if it has one. Never NULL; valid until the thread's next Strait call. */
STRAIT_API const char* straitGetLastError(straitComm_t comm);
/* The value of an environment variable of docs/environment.md, as the library reads it. Valid until the thread's next
 * call of this function. A name that is not in that table, or a value that is not accepted, is
 * straitInvalidArgument. */
STRAIT_API straitResult_t straitGetSetting(const char* name, const char** value);
/* Sets a default for such a variable in this process; a value in the environment overrides it. Settings are read when
 * communicators are made, and the log level at the first message, so call it before these. Do not call it while other
 * threads are inside Strait. */
STRAIT_API straitResult_t straitSetDefault(const char* name, const char* value);
/* For a thread on which nothing but Strait uses CUDA, such as one that was started to make a communicator. Strait's
 * calls on this thread no longer restore the current CUDA device. Normally they do; on a new thread that means device
 * 0, where CUDA would then create a context of some hundred MB. */
STRAIT_API void straitAdoptThread(void);

/* ---- memory ---- */

/* Page-aligned host memory that other processes of the host can read in place. If the buffers of all ranks come from
 * here and are registered (straitCommRegister), calls between processes need one copy less. Free it with
 * straitMemFree. */
STRAIT_API straitResult_t straitMemAlloc(void** pointer, size_t size_bytes);
/* Memory of a CUDA device that the GPUs of other ranks can map. Once it is registered (straitCommRegister), large
 * all-gathers, all-to-alls and broadcasts into it need no thread block. Other GPUs of this process that reach the
 * device by P2P reach this memory, too. Free it with straitMemFree, after it is deregistered and no work uses it. In a
 * build without CUDA: straitUnsupported. */
STRAIT_API straitResult_t straitMemAllocDevice(void** pointer, size_t size_bytes, int device);
/* Frees memory from straitMemAlloc or straitMemAllocDevice. NULL is allowed; a pointer that neither returned, or that
 * is already free, is straitInvalidArgument. Deregister the memory first (straitCommDeregister). */
STRAIT_API straitResult_t straitMemFree(void* pointer);

/* ---- communicators ---- */

/* Makes a ticket, and starts to listen in this process, for a day at most, for the ranks that will join with it. Call
 * it on one rank. A ticket serves one communicator: once its ranks have joined, it is used up. */
STRAIT_API straitResult_t straitGetUniqueId(straitUniqueId* id);
/* Joins as rank `rank` of `ranks`. Collective: returns when all have joined, or with an error by the deadline. `config`
 * may be NULL. The caller owns the communicator and frees it with straitCommDestroy (after straitCommAbort, too). */
STRAIT_API straitResult_t straitCommInitRank(straitComm_t* comm, int ranks, const straitUniqueId* id, int rank,
                                             const straitConfig_t* config);
/* Joins by what the launcher set: torchrun, Slurm, Open MPI's mpirun, PMIx, or STRAIT_RANK, STRAIT_RANKS and
 * STRAIT_ROOT (host:port) with STRAIT_KEY (64 hexadecimal digits). Under no launcher: one rank. Collective, with the
 * deadline and the ownership of straitCommInitRank. In an open group it is not recorded: it runs at once, and its error
 * does not spoil the group. */
STRAIT_API straitResult_t straitCommInitEnv(straitComm_t* comm, const straitConfig_t* config);
/* Splits a communicator: ranks with the same color form a new one, ordered by key, then by rank. A rank with a negative
 * color joins none and gets NULL. If `config` is NULL, that of `comm` is used. Collective over `comm`, which stays
 * usable. */
STRAIT_API straitResult_t straitCommSplit(straitComm_t comm, int color, int key, straitComm_t* split,
                                          const straitConfig_t* config);
/* Makes a communicator of all ranks of `comm` except the `count` ranks in `excluded`, in the same order. Use it to
 * continue after a rank died, or with count 0 to replace a failed communicator. Collective over the remaining ranks
 * only, which must all give the same list. Excluded ranks take no part, and comm may have failed. It does not change
 * `comm`: stop what still runs there first (straitCommAbort), and destroy it at some time. If `config` is NULL, that of
 * `comm` is used. A remaining rank that does not call is an error: by the deadline, as in straitCommInitRank, or at
 * once if it is seen to have died. The others may then try again, with that rank excluded, too. */
STRAIT_API straitResult_t straitCommShrink(straitComm_t comm, const int* excluded, int count, straitComm_t* smaller,
                                           const straitConfig_t* config);
/* Waits until this rank's GPU has finished all calls made before, on any stream and in launched graphs, and until data
 * for other hosts has been handed to the network. Inside a group it covers only groups that have already ended. Returns
 * straitSuccess if they have their results, else the sticky error. On host ranks calls are complete when they return.
 * From any thread. */
STRAIT_API straitResult_t straitCommSynchronize(straitComm_t comm);
/* Sets *done to 1 if this rank's GPU has finished all that was enqueued on the communicator and data for other hosts
 * has been handed to the network; to 0 if not, or if the driver does not answer within 100 ms. Does not report errors.
 * On host ranks always 1. From any thread. */
STRAIT_API straitResult_t straitCommQuery(straitComm_t comm, int* done);
/* Ends a communicator whose operations are complete, and frees what it holds. Local: peers that still need this rank
 * get straitRemoteError. NULL is allowed. A forked child may destroy a communicator that it inherited: this frees
 * nothing and does not affect the parent. Any other call on it is straitInvalidUsage in the child, which may make
 * communicators of its own. */
STRAIT_API straitResult_t straitCommDestroy(straitComm_t comm);
/* Makes every operation on the communicator, running or later, on this and all other ranks, return straitAborted. From
 * any thread. May be called while another thread is still setting the communicator up (a split, or an init in a group);
 * that set-up then fails as well. The communicator must still be destroyed. On host ranks the buffers of a running call
 * belong to the caller again once it has returned (registered buffers of ranks that are processes: once it has returned
 * on the other ranks, too). */
STRAIT_API straitResult_t straitCommAbort(straitComm_t comm);
/* The sticky error of the communicator (straitSuccess: none). From any thread. On GPU ranks, straitSuccess after a
 * stream was synchronized means that the calls on it have their results; a kernel that gave up also completes its
 * stream, so check this even after a successful cudaStreamSynchronize. Data sent to other hosts may still be on its
 * way, and may still fail: straitCommSynchronize waits for it. */
STRAIT_API straitResult_t straitCommGetAsyncError(straitComm_t comm, straitResult_t* error);
/* Writes the last calls of this communicator's ranks, as far as this rank sees them, to a JSON file for `strait trace`:
 * which rank posted what, and what has finished (docs/flight-recorder.md). If `path` is NULL, the file goes to the
 * folder that STRAIT_FLIGHT_RECORDER names. From any thread, also after a failure. */
STRAIT_API straitResult_t straitCommDumpFlightRecorder(straitComm_t comm, const char* path);
/* The number of ranks. */
STRAIT_API straitResult_t straitCommCount(straitComm_t comm, int* ranks);
/* This rank's number in the communicator, from 0. */
STRAIT_API straitResult_t straitCommUserRank(straitComm_t comm, int* rank);
/* What carries the data between the ranks. Host ranks: "loopback", "shm", "shm_file", "tcp", or "tcp+ucx" with
 * STRAIT_UCX. GPU ranks of one host: "cuda_p2p", "islands" or "host_staged"; of several hosts, what this rank's host
 * uses, "+" and what the network uses, such as "cuda_p2p+tcp" or "host_staged+tcp+ucx". `why` (may be NULL): why no
 * faster one is used; "" if there is none. Both live as long as the communicator. */
STRAIT_API straitResult_t straitCommGetTransport(straitComm_t comm, const char** name, const char** why);
/* The CUDA device of this rank; -1 on a host rank. */
STRAIT_API straitResult_t straitCommDevice(straitComm_t comm, int* device);
/* Declares that this memory will be used in the same calls on all ranks, so that peers can access it in place.
 * Collective. If any rank's memory cannot be reached, all ranks get the reason, and none is registered. `handle` is for
 * straitCommDeregister. Deregister after the last launch of any graph that uses the memory, and before freeing it.
 *  - Host ranks: memory from straitMemAlloc, used as send and receive buffers.
 *  - GPU ranks: memory of this rank's device from straitMemAllocDevice, or any other that the CUDA driver's virtual
 * memory interface has allocated and POSIX file descriptors can share (ncclMemAlloc, PyTorch's pools of it). It serves
 * as receive buffers of large all-gathers, broadcasts and all-to-alls (in place on all ranks or on none), which must
 * begin at the same distance from `pointer` on all ranks. After a failure, a peer may still write into this memory,
 * even if this rank never made the matching call. It also serves as receive buffers of messages of 32 MB and more
 * (straitRecv, straitAllToAllv; between two ranks 256 MB and more), if it belongs to the last eight registrations.
 * These may begin at any multiple of 16 bytes from `pointer`, and their senders need not use registered memory. A peer
 * that has captured such messages in a graph keeps the memory until it destroys the communicator. Where GPUs exchange
 * data through host memory, registration changes nothing. */
STRAIT_API straitResult_t straitCommRegister(straitComm_t comm, void* pointer, size_t size_bytes, void** handle);
/* Undoes this rank's part of a registration, and the handle with it. Not collective. On GPU ranks it first waits until
 * this rank's GPU has done all calls made before. An unknown handle is straitInvalidArgument. straitAborted: the
 * communicator has failed, and calls on it may still use the memory (10 s after a failure the wait ends). The handle
 * then stays valid; try again before freeing the memory. After any other error the handle is gone, too. */
STRAIT_API straitResult_t straitCommDeregister(straitComm_t comm, void* handle);

/* Makes a sum to which this rank contributes its input times *scalar (of `datatype`), each product rounded to
 * `datatype` (docs/numerics.md). Every rank gives its own scalar; they may differ. In a given call all ranks must use a
 * reduction of this kind. It is valid for this communicator and type, until straitRedOpDestroy. Destroying it does not
 * affect calls already made. Host ranks keep memory for the products, of the size of the largest such input, until the
 * communicator is destroyed. Where the scalar is:
 *  - straitScalarHostImmediate: in host memory; read before return.
 *  - straitScalarDevice: in memory like that of send buffers, aligned to the type. Each call reads it when it runs, in
 * stream order (in graphs at each launch), so it must stay valid until the last call has run. */
STRAIT_API straitResult_t straitRedOpCreatePreMulSum(straitRedOp_t* op, const void* scalar, straitDataType_t datatype,
                                                     straitScalarResidence_t residence, straitComm_t comm);
/* Destroys a reduction of straitRedOpCreatePreMulSum. Local. Does not affect calls already made, including those that
 * are recorded in an open group or captured in a graph. A built-in reduction, or one that this communicator does not
 * have, is straitInvalidArgument.
 */
STRAIT_API straitResult_t straitRedOpDestroy(straitRedOp_t op, straitComm_t comm);

/* ---- collectives ---- */

/* recvbuff[i] = reduction over ranks of sendbuff[i]; count elements each. In place: sendbuff == recvbuff. */
STRAIT_API straitResult_t straitAllReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          straitRedOp_t op, straitComm_t comm, straitStream_t stream);
/* recvbuff (ranks * count) = the sendbuffs (count each) by rank. In place: sendbuff == recvbuff + rank * count. */
STRAIT_API straitResult_t straitAllGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          straitComm_t comm, straitStream_t stream);
/* recvbuff (count) = block `rank` of the reduction of the sendbuffs (ranks * count). In place: recvbuff == sendbuff +
 * rank * count. */
STRAIT_API straitResult_t straitReduceScatter(const void* sendbuff, void* recvbuff, size_t count,
                                              straitDataType_t datatype, straitRedOp_t op, straitComm_t comm,
                                              straitStream_t stream);
/* Block r of recvbuff = block `rank` of rank r's sendbuff. Each buffer has `ranks` blocks of count elements. In place:
 * sendbuff == recvbuff. */
STRAIT_API straitResult_t straitAllToAll(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                         straitComm_t comm, straitStream_t stream);
/* As all-to-all, with the counts and offsets of the blocks given in elements (arrays of `ranks` numbers, read before
 * return). sendcounts[r] here must equal recvcounts[this rank] on rank r. Not in place. */
STRAIT_API straitResult_t straitAllToAllv(const void* sendbuff, const size_t sendcounts[], const size_t senddispls[],
                                          void* recvbuff, const size_t recvcounts[], const size_t recvdispls[],
                                          straitDataType_t datatype, straitComm_t comm, straitStream_t stream);
/* recvbuff = root's sendbuff, count elements. sendbuff is read on the root only. In place: sendbuff == recvbuff. */
STRAIT_API straitResult_t straitBroadcast(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                          int root, straitComm_t comm, straitStream_t stream);
/* As all-reduce, the result on the root only; recvbuff is written on the root only. */
STRAIT_API straitResult_t straitReduce(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                       straitRedOp_t op, int root, straitComm_t comm, straitStream_t stream);
/* As all-gather, the result on the root only. In place on the root: sendbuff == recvbuff + root * count. */
STRAIT_API straitResult_t straitGather(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                       int root, straitComm_t comm, straitStream_t stream);
/* recvbuff (count) = block `rank` of root's sendbuff (ranks * count). In place on the root: recvbuff == sendbuff +
 * root * count. */
STRAIT_API straitResult_t straitScatter(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                        int root, straitComm_t comm, straitStream_t stream);
/* Point to point: each send is matched by a receive of the same count and type on rank `peer`, between two ranks in the
 * order in which they are posted. Sends and receives that must progress together belong in one group; no other of them
 * may use the memory into which one receives (on host ranks the group's end returns straitInvalidArgument). */
STRAIT_API straitResult_t straitSend(const void* sendbuff, size_t count, straitDataType_t datatype, int peer,
                                     straitComm_t comm, straitStream_t stream);
STRAIT_API straitResult_t straitRecv(void* recvbuff, size_t count, straitDataType_t datatype, int peer,
                                     straitComm_t comm, straitStream_t stream);
/* Returns (on GPU ranks: completes on the stream) when every rank has called it. */
STRAIT_API straitResult_t straitBarrier(straitComm_t comm, straitStream_t stream);

/* The same calls with options, which are read before return; NULL: none. */
STRAIT_API straitResult_t straitAllReduceWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                     straitDataType_t datatype, straitRedOp_t op, straitComm_t comm,
                                                     straitStream_t stream, const straitCallOptions_t* options);
STRAIT_API straitResult_t straitAllGatherWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                     straitDataType_t datatype, straitComm_t comm,
                                                     straitStream_t stream, const straitCallOptions_t* options);
STRAIT_API straitResult_t straitReduceScatterWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                         straitDataType_t datatype, straitRedOp_t op, straitComm_t comm,
                                                         straitStream_t stream, const straitCallOptions_t* options);
STRAIT_API straitResult_t straitAllToAllWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                    straitDataType_t datatype, straitComm_t comm, straitStream_t stream,
                                                    const straitCallOptions_t* options);
STRAIT_API straitResult_t straitBroadcastWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                     straitDataType_t datatype, int root, straitComm_t comm,
                                                     straitStream_t stream, const straitCallOptions_t* options);
STRAIT_API straitResult_t straitReduceWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                  straitDataType_t datatype, straitRedOp_t op, int root,
                                                  straitComm_t comm, straitStream_t stream,
                                                  const straitCallOptions_t* options);
STRAIT_API straitResult_t straitGatherWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                  straitDataType_t datatype, int root, straitComm_t comm,
                                                  straitStream_t stream, const straitCallOptions_t* options);
STRAIT_API straitResult_t straitScatterWithOptions(const void* sendbuff, void* recvbuff, size_t count,
                                                   straitDataType_t datatype, int root, straitComm_t comm,
                                                   straitStream_t stream, const straitCallOptions_t* options);

/* ---- groups ---- */

/* Between start and end, this thread's calls are recorded. The end runs them together, so that their order among ranks
 * and communicators cannot deadlock: first straitCommInitRank, straitCommSplit, straitCommShrink and
 * straitCommRegister, then operations. A communicator made in a group has its handle at once, but is usable only after
 * the group's end; if that fails, it can only be destroyed. Groups nest. An argument error inside a group is returned
 * by the call itself and again by the end, which then runs nothing. */
STRAIT_API straitResult_t straitGroupStart(void);
STRAIT_API straitResult_t straitGroupEnd(void);
/* Ends the innermost group instead of straitGroupEnd, for example after an error in the program: none of its calls run,
 * nor of the groups around it, whose outermost end returns straitInvalidUsage, as does this call without a group. */
STRAIT_API straitResult_t straitGroupCancel(void);

#ifdef __cplusplus
}
#endif

#endif
