/*
 * Strait: collective communication for narrow links. The C interface.
 *
 * Ranks. A communicator joins `ranks` ranks, numbered from 0. A rank is a thread or a process; host ranks exchange host
 * memory, GPU ranks (device >= 0 in the configuration) device memory.
 *
 * Buffers. `count` is always in elements of `datatype`. Buffers are any memory the caller owns, at any alignment; the
 * library reads send buffers and writes receive buffers from the call until it completes and keeps no pointer after.
 * Send and receive buffers must not overlap except where a call names its in-place form.
 *
 * Completion. On host ranks a call returns when its buffers may be reused and its result is there; `stream` is NULL. On
 * GPU ranks it returns when the work is enqueued, and is ordered on `stream`. Inside a group (straitGroupStart ...
 * straitGroupEnd) calls are only recorded, and straitGroupEnd stands for them all.
 *
 * Order. All ranks of a communicator call the same collectives in the same order with the same count, type, operation
 * and root. Ranks that do not are told: straitMismatch on every rank, with both calls in straitCommLastError.
 *
 * Threads. Different communicators may be used by different threads at once; one communicator by one thread at a time.
 * straitCommAbort and straitCommGetAsyncError may be called from any thread at any time.
 *
 * Errors. Every function returns a straitResult_t. A bad argument is straitInvalidArgument, changes nothing and leaves
 * the communicator usable. Any other failure of a collective is sticky: every later call on that communicator returns
 * it, at once, and the outputs of the failed call are undefined. straitGetLastError says what failed, on which rank and
 * host, and what to do.
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
/* A cudaStream_t on GPU ranks, which may be destroyed as soon as its calls are enqueued; ignored (pass NULL) on host
 * ranks. */
typedef void* straitStream_t;

typedef enum {
  straitSuccess = 0,
  straitInvalidArgument = 1, /* an argument is wrong; nothing was changed */
  straitInvalidUsage = 2,    /* the arguments are fine, the moment or the combination is not */
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
  straitMaxRedOp = 0x7fffffff /* no reduction: makes room for user-made ones */
} straitRedOp_t;

/* Where the scalar of straitRedOpCreatePreMulSum lies. Values are NCCL's. */
typedef enum {
  straitScalarDevice = 0,
  straitScalarHostImmediate = 1,
  straitMaxScalarResidence = 0x7fffffff /* none: makes every number one that can be looked at, and refused */
} straitScalarResidence_t;

/* The ticket by which ranks find and trust one another: an address and a 256-bit key. Whoever has it can join: pass it
 * on by a channel that you trust. */
#define STRAIT_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[STRAIT_UNIQUE_ID_BYTES];
} straitUniqueId;

/* What the floats of a call become for their way between ranks: blocks of 128, each with a scale and a small code for
 * every element. Fewer bytes, less exact: docs/wire-formats.md gives the bits and the bounds. */
typedef enum {
  straitWireDefault = 0, /* in a configuration: STRAIT_WIRE; in a call's options: the communicator's */
  straitWireOff = 1,     /* elements as they are */
  straitWireInt8 = 2,
  straitWireFp8 = 3,
  straitWireInt4 = 4
} straitWireFormat_t;

/* As `max_sms`: copy engines carry operations of any size and leave all SMs to the program, where they can. What has to
 * be added up takes up to four thread blocks, and whatever copy engines cannot do one (docs/gpus.md says which that
 * is). Small operations take longer than by kernels. */
#define STRAIT_NO_SMS (-1)

/* Options of a communicator. Start from STRAIT_CONFIG_INITIALIZER, so that later versions keep your defaults. */
typedef struct {
  size_t size_bytes;       /* sizeof(straitConfig_t) */
  uint32_t magic;          /* STRAIT_CONFIG_MAGIC */
  int device;              /* CUDA device of this rank; -1: a host rank */
  int64_t init_timeout_ms; /* deadline of init; 0: 60 s, or STRAIT_INIT_TIMEOUT_MS */
  int64_t timeout_ms;      /* deadline of every operation; 0: none, or STRAIT_TIMEOUT_MS */
  int max_sms;             /* GPU ranks: thread blocks an operation may use; 0: up to 128 (large ones 64 or 32), or
                              STRAIT_MAX_SMS; or STRAIT_NO_SMS. With that, or up to 8, GPUs that reach one another's
                              memory carry large operations by copy engines, which take STRAIT_COPY_WINDOW_BYTES
                              (256 MB) of each */
  int wire;                /* straitWireFormat_t, the same on all ranks: of every all-reduce, reduce-scatter, all-gather
                              and all-to-all of float32, bfloat16 or float16, where what is reduced is a sum or an
                              average; other calls stay exact, and so do those of less than STRAIT_WIRE_BYTES (by
                              itself 16 KB, and of GPU ranks from where on formats pay) */
} straitConfig_t;
#define STRAIT_CONFIG_MAGIC 0x53747261u
#define STRAIT_CONFIG_INITIALIZER \
  { sizeof(straitConfig_t), STRAIT_CONFIG_MAGIC, -1, 0, 0, 0, 0 }

/* Options of one call (straitAllReduceWithOptions and others). Start from STRAIT_CALL_OPTIONS_INITIALIZER. */
typedef struct {
  size_t size_bytes; /* sizeof(straitCallOptions_t) */
  uint32_t magic;    /* STRAIT_CALL_OPTIONS_MAGIC */
  int wire;          /* straitWireFormat_t, the same on all ranks; a format on a call that cannot have one: an error */
  float* residual;   /* error feedback of a reduction with a wire format; NULL: none. Memory of the caller, of the same
                        kind as sendbuff, one float an element of it, zeros at first: added to what this rank
                        contributes, and replaced by what the format lost of that. This rank's own matter. Unused on
                        one rank alone, and by a call that stays exact because it is small (see wire in straitConfig_t) */
  int max_sms;       /* GPU ranks: thread blocks this call may use, or STRAIT_NO_SMS, the same on all ranks, instead of
                        those of the communicator; 0: those. By copy engines only if the communicator has them, for what
                        its own configuration asks for or by STRAIT_COPY_ENGINE_BYTES, or into registered memory */
  const char* algorithm; /* the plan to carry out, by the name that `strait explain` prints, the same on all ranks;
                            NULL: chosen. Overrules STRAIT_ALGORITHM and the tuning file. A name that there is not, or
                            whose plan cannot do this call on these ranks, is an error, and so is one beside a wire
                            format. Host ranks: the first one of a process that is predicted to be slower than the
                            choice is warned of. GPU ranks: "one_hop" or "two_hop", of kernels where the call has both;
                            what copy engines or CPU threads carry out is not changed */
} straitCallOptions_t;
#define STRAIT_CALL_OPTIONS_MAGIC 0x53747262u
#define STRAIT_CALL_OPTIONS_INITIALIZER \
  { sizeof(straitCallOptions_t), STRAIT_CALL_OPTIONS_MAGIC, 0, NULL, 0, NULL }

/* ---- library ---- */

/* The version of the library that is loaded (compare with STRAIT_VERSION, that of this header). */
STRAIT_API straitResult_t straitGetVersion(int* version);
/* A short fixed text for a result; never NULL. */
STRAIT_API const char* straitGetErrorString(straitResult_t result);
/* What failed last on the calling thread, in one line: what, where, and the remedy. Never NULL; valid until the
 * thread's next Strait call. With a communicator: its sticky error if it has one. `comm` may be NULL. */
STRAIT_API const char* straitGetLastError(straitComm_t comm);
/* The value of an environment variable of docs/environment.md, as the library reads it. Valid until the thread's next
 * call of this function. A name that is not in the table, or a value that is not accepted: straitInvalidArgument. */
STRAIT_API straitResult_t straitGetSetting(const char* name, const char** value);
/* Gives such a variable a value for this process wherever the environment does not set it. Settings are read when
 * communicators are made, and the log level at the first message: call it before. Not while other threads are inside
 * Strait. */
STRAIT_API straitResult_t straitSetDefault(const char* name, const char* value);
/* For a thread on which nobody but Strait uses CUDA, such as one that is there to make a communicator: from then on
 * calls on it leave selected whichever device they have needed. Else they put back the one before, which a thread that
 * is new has never chosen: device 0, on which CUDA then makes a context of some hundred megabytes. */
STRAIT_API void straitAdoptThread(void);

/* ---- memory ---- */

/* Host memory that other processes of the host can read in place, page aligned. One copy fewer for processes once the
 * buffers of all ranks come from here and are registered (straitCommRegister). Free it with straitMemFree. */
STRAIT_API straitResult_t straitMemAlloc(void** pointer, size_t size_bytes);
/* Memory of a CUDA device that the GPUs of other ranks can map: all-gathers, all-to-alls and broadcasts into it need
 * no thread block once it is registered (straitCommRegister). Other GPUs of this process that reach the device's memory
 * by P2P reach this memory, too. Free it with straitMemFree, when no work uses it and it is registered no more. A build
 * without CUDA: straitUnsupported. */
STRAIT_API straitResult_t straitMemAllocDevice(void** pointer, size_t size_bytes, int device);
/* Frees memory from straitMemAlloc or straitMemAllocDevice. NULL is allowed; a pointer that neither returned, or that
 * is already free, is straitInvalidArgument. Deregister the memory first (straitCommDeregister). */
STRAIT_API straitResult_t straitMemFree(void* pointer);

/* ---- communicators ---- */

/* Makes a ticket and starts listening for the ranks that will join with it, in this process, for a day at most. Call it
 * on one rank. */
STRAIT_API straitResult_t straitGetUniqueId(straitUniqueId* id);
/* Joins as `rank` of `ranks`. Collective: returns when all have joined, or with an error by the deadline. `config` may
 * be NULL. The caller owns the communicator and ends it with straitCommDestroy or straitCommAbort. */
STRAIT_API straitResult_t straitCommInitRank(straitComm_t* comm, int ranks, const straitUniqueId* id, int rank,
                                             const straitConfig_t* config);
/* Joins by what the launcher set: torchrun, Slurm, Open MPI's mpirun, PMIx, or STRAIT_RANK, STRAIT_RANKS and
 * STRAIT_ROOT (host:port) with STRAIT_KEY (64 hexadecimal digits). Under no launcher: one rank. Collective, with the
 * deadline and the ownership of straitCommInitRank. In an open group it is not recorded: it runs at once, and its error
 * does not spoil the group. */
STRAIT_API straitResult_t straitCommInitEnv(straitComm_t* comm, const straitConfig_t* config);
/* Splits a communicator: ranks with the same color join one another, ordered by key, then by rank. A negative color
 * joins nothing and gets NULL. `config` may be NULL: that of `comm`. Collective over `comm`, which stays usable. */
STRAIT_API straitResult_t straitCommSplit(straitComm_t comm, int color, int key, straitComm_t* split,
                                          const straitConfig_t* config);
/* Makes a communicator of the ranks of `comm` but for the `count` in `excluded`, in the same order: to go on after a
 * rank died, or after another failure with all of them (`count` 0), since one that failed stays so. Collective over
 * the ranks that remain alone, which give the same list. Needs nothing of the others, nor that `comm` works, which
 * stays as it is: end (straitCommAbort) what still runs on it before, and destroy it some time. `config` may be NULL:
 * that of `comm`. Ranks that do not come are an error by the deadline, as in straitCommInitRank, or at once where they
 * are seen to have died; then the remaining ones may try again, with fewer. */
STRAIT_API straitResult_t straitCommShrink(straitComm_t comm, const int* excluded, int count, straitComm_t* smaller,
                                           const straitConfig_t* config);
/* Waits until this rank's GPU has done all calls made before, on whatever streams, those of launched graphs too, and
 * what it sends to other hosts is the network's; within a group that is those of groups that have ended. straitSuccess:
 * they have their results; else the sticky error. Calls of host ranks are done when they return. From any thread. */
STRAIT_API straitResult_t straitCommSynchronize(straitComm_t comm);
/* Whether this rank's GPU has done all that was enqueued on the communicator, and what it sends to other hosts has been
 * handed to the network: *done is 1; 0 where it has not, or where the driver does not tell within 100 ms. Says nothing of errors. Host ranks: 1. From any thread. */
STRAIT_API straitResult_t straitCommQuery(straitComm_t comm, int* done);
/* Ends a communicator whose operations are complete and frees what it holds. Local: peers that still need this rank
 * get straitRemoteError. NULL is allowed. A forked child may destroy what it inherited of communicators, which frees
 * nothing and leaves its parent's alone; all else on them is straitInvalidUsage there. It may make its own. */
STRAIT_API straitResult_t straitCommDestroy(straitComm_t comm);
/* Makes every operation on the communicator, running or later, on this and all other ranks, return straitAborted; from
 * any thread. Also on one whose set-up another thread has in hand (a split; an init in a group): that fails, too. The
 * communicator remains to be destroyed. Buffers of a host rank's call that ran are its caller's again once it has
 * returned (registered ones of ranks that are processes: once the others' have, too). */
STRAIT_API straitResult_t straitCommAbort(straitComm_t comm);
/* The sticky error of the communicator (straitSuccess: none). From any thread. On GPU ranks success, asked after a
 * stream was synchronized, says that the calls on it have their results: one that gave up ends its stream, too. What it
 * only sent to other hosts may be on its way still, and fail: straitCommSynchronize tells. */
STRAIT_API straitResult_t straitCommGetAsyncError(straitComm_t comm, straitResult_t* error);
/* Writes the last calls of this communicator's ranks, as far as this rank sees them, as JSON to a file, which `strait
 * trace` reads: who posted what, and what has finished (docs/flight-recorder.md). `path` NULL: into the folder that
 * STRAIT_FLIGHT_RECORDER names. From any thread, also after a failure. */
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
/* Declares that this memory will be used in the same calls on all ranks, so that peers reach it in place. Collective.
 * `handle` undoes it; that comes before the memory is freed and behind the last launch of graphs with calls on it, and
 * waits for this rank's GPU. If any rank's memory cannot be reached, all get the reason, and none is registered.
 *  - Host ranks: memory from straitMemAlloc, as send and receive buffers.
 *  - GPU ranks: memory of this rank's device from straitMemAllocDevice, or any other of the CUDA driver's virtual
 * memory interface that POSIX file descriptors can share (ncclMemAlloc, PyTorch's pools of it), as receive buffers of
 * large all-gathers, all-to-alls (in place on all ranks or on none) and broadcasts, which begin at the same distance
 * from `pointer` on all ranks. Once the communicator has failed, peers that have made such a call may write there even
 * if this rank has not made it. Also of messages of 32 MB and more (straitRecv, straitAllToAllv; between two ranks of
 * 256 MB and more), at any multiple of 16 bytes from `pointer`, of the last eight registrations; their senders need not
 * use registered memory. Peers that have captured such messages keep the memory until they destroy the communicator.
 * Where GPUs trade through host memory it changes nothing. */
STRAIT_API straitResult_t straitCommRegister(straitComm_t comm, void* pointer, size_t size_bytes, void** handle);
/* Undoes this rank's part of a registration, and the handle with it. Not collective. On GPU ranks it first waits until
 * this rank's GPU has done all calls made before. An unknown handle is straitInvalidArgument. straitAborted: the
 * communicator has failed, and calls on it may still use the memory (10 s after a failure the wait ends). The handle
 * then stays valid; try again before freeing the memory. After any other error the handle is gone, too. */
STRAIT_API straitResult_t straitCommDeregister(straitComm_t comm, void* handle);

/* A sum to which this rank contributes its input times *scalar (of `datatype`), each product rounded to `datatype`
 * (docs/numerics.md). Every rank gives its own scalar; they may differ. All ranks name such a reduction in the same
 * call. Host ranks keep the products: memory of the size of the largest such input, until the communicator is
 * destroyed. Valid for this communicator and type, until destroyed, which calls made before do not notice. The scalar
 * lies in
 *  - straitScalarHostImmediate: host memory, read before return.
 *  - straitScalarDevice: memory like that of send buffers, aligned to the type. Each call reads it when it runs, in
 * stream order (in graphs at each launch), so it stays there until the last one has run. */
STRAIT_API straitResult_t straitRedOpCreatePreMulSum(straitRedOp_t* op, const void* scalar, straitDataType_t datatype,
                                                     straitScalarResidence_t residence, straitComm_t comm);
/* Destroys a reduction of straitRedOpCreatePreMulSum. Local; calls already made, recorded in an open group or captured
 * in a graph keep theirs. A built-in reduction, or one that this communicator does not have, is straitInvalidArgument.
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
/* Block r of recvbuff = block `rank` of rank r's sendbuff; blocks of count elements, ranks of them in each buffer. In
 * place: sendbuff == recvbuff. */
STRAIT_API straitResult_t straitAllToAll(const void* sendbuff, void* recvbuff, size_t count, straitDataType_t datatype,
                                         straitComm_t comm, straitStream_t stream);
/* As all-to-all, with the counts and offsets of the blocks given in elements (arrays of `ranks`, read before return).
 * sendcounts[r] here equals recvcounts[this rank] on rank r. Not in place. */
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
/* Point to point. The receive of the same count and type on rank `peer` takes it; between two ranks in order of
 * posting. Sends and receives that must progress together belong in one group, where what is received lies in memory
 * that no other of them uses (host ranks: straitInvalidArgument from the group's end). */
STRAIT_API straitResult_t straitSend(const void* sendbuff, size_t count, straitDataType_t datatype, int peer,
                                     straitComm_t comm, straitStream_t stream);
STRAIT_API straitResult_t straitRecv(void* recvbuff, size_t count, straitDataType_t datatype, int peer,
                                     straitComm_t comm, straitStream_t stream);
/* Returns (GPU: completes on the stream) when every rank has called it. */
STRAIT_API straitResult_t straitBarrier(straitComm_t comm, straitStream_t stream);

/* The same calls with options of their own, read before return; NULL: none. */
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

/* Between start and end, calls of this thread are recorded; the end runs them together, so that their order among ranks
 * and communicators cannot deadlock: straitCommInitRank, straitCommSplit, straitCommShrink and straitCommRegister
 * first, then operations. Communicators made in a group are given back at once and usable after its end; if that fails
 * they are good for straitCommDestroy only. Groups nest. An argument error inside a group is returned by the call
 * itself and again by the end, which then runs nothing. */
STRAIT_API straitResult_t straitGroupStart(void);
STRAIT_API straitResult_t straitGroupEnd(void);
/* Ends the innermost group in place of straitGroupEnd, as after an error of the program's own: nothing that was
 * recorded runs, nor anything of the groups around it, of which the outermost one's end returns straitInvalidUsage.
 * Where no group is open it returns that itself. */
STRAIT_API straitResult_t straitGroupCancel(void);

#ifdef __cplusplus
}
#endif

#endif
