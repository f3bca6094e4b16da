// How the CPU threads that add up sleep and wake (LaneReducers): the two threads of one rank, each with a lane of the
// GPUs, and up to two reductions. They sleep until a reduction is pushed. While the GPU has not begun it, the first
// thread keeps polling, and the other one sleeps until some thread has seen that the GPU has begun. A thread of another
// rank adds up lane 0, which the first thread polls, and it may be fast. Either the program ends while the threads
// sleep (STOPS, with two GPUs), or the communicator fails at any time and nobody stops them (FAILS, with one GPU).
// Once, a thread wakes up spuriously. The slots are modelled in reducers.pml; here memory is plain.
// variants: STOPS FAILS
// mutants: PUSH_WITHOUT_NOTIFY=deadlock PUSH_WITHOUT_LOCK=deadlock NO_SECOND_LOOK=assertion
// mutants: STOP_WITHOUT_NOTIFY=deadlock STOP_WITHOUT_LOCK=deadlock TELL_WITHOUT_NOTIFY=deadlock
// mutants: TELL_WITHOUT_LOCK=deadlock ALL_SLEEP=deadlock CHUNKS_DO_NOT_TELL=deadlock LOOK_FOR_ONE_USE=deadlock
// mutants: USES_NOT_COUNTED=assertion DROP_WHAT_ONE_HAS_DONE=assertion STOP_BETWEEN_FLAGS=deadlock
// mutants: FAILS:ABORT_WITHOUT_NOTIFY=deadlock FAILS:ABORT_WITHOUT_LOCK=deadlock FAILS:NO_ATTENDANT=deadlock
// mutants: FAILS:LOOK_WITHOUT_END=deadlock
#ifdef FAILS
#define GPUS 1
#else
#define GPUS 2
#endif
#define THREADS 2
#define REDUCTIONS 2
#define USES 2  // uses of lane 0 in a reduction, all of one slot
#define OURS 0  // the GPU of this rank

byte reductions;  // number of reductions that the program makes

// What GPUs upload and threads tell, by counts.
byte first_flag;               // lane 0 of this rank's GPU: the use for which its slot was last filled
byte brought[GPUS * THREADS];  // chunks uploaded, on the lane of each thread
byte results[GPUS * THREADS];
byte launched, begun_by_gpu;  // number of reductions of this rank's GPU
bit ended[GPUS];
#define of(gpu, thread) ((gpu) * THREADS + (thread))

// State of LaneReducers. `first` is the first reduction that is kept, `pushed` one more than the last.
bit locked;
bit asleep[THREADS];
byte first, pushed, begun;
byte done[THREADS];
bit stopping, aborted, failed, kernels_end;
bit wakes_by_itself = 1;

#define notify_all() d_step { asleep[0] = 0; asleep[1] = 0 }
#define is_over (stopping || aborted)

// std::condition_variable::wait: takes the mutex, checks the condition, and releases the mutex as it falls asleep; the
// same after it has been woken. Where the mutex is held for only one step, `!locked` suffices to model it.
inline sleep_until(condition) {
  do
  :: atomic {
       !asleep[me] && !locked ->
       if
       :: (condition) -> break
       :: else -> locked = 1
       fi
     };
     atomic { asleep[me] = 1; locked = 0 }
#ifdef NO_SECOND_LOOK
     ;
     if
     :: !asleep[me] -> skip
     :: wakes_by_itself -> wakes_by_itself = 0; asleep[me] = 0
     fi;
     break
#endif
  :: atomic { wakes_by_itself && asleep[me] -> wakes_by_itself = 0; asleep[me] = 0 }
  od
}

inline abort_all() {
#ifdef ABORT_WITHOUT_LOCK
  aborted = 1;
#else
  atomic { !locked -> aborted = 1 };
#endif
#ifndef ABORT_WITHOUT_NOTIFY
  notify_all()
#endif
}

inline note_begun() {
  atomic {
#ifndef TELL_WITHOUT_LOCK
    !locked;
#endif
    tells = begun <= number;
    assert(!tells || begun_by_gpu > number);
    begun = (tells -> number + 1 : begun)
  };
  if
#ifndef TELL_WITHOUT_NOTIFY
  :: tells -> notify_all(); tells = 0
#endif
  :: else -> skip
  fi
}

inline push() {
  atomic {
#ifndef PUSH_WITHOUT_LOCK
    !locked;
#endif
    // Drops the reductions that all threads have done.
#ifdef DROP_WHAT_ONE_HAS_DONE
    first = (done[0] > done[1] -> done[0] : done[1]);
#else
    first = (done[0] < done[1] -> done[0] : done[1]);
#endif
    pushed++;
    printf("program: pushes reduction %d, keeps those from %d\n", pushed - 1, first)
  };
#ifndef PUSH_WITHOUT_NOTIFY
  notify_all()
#endif
}

#ifdef FAILS
#define is_ready (brought[of(0, me)] > number)
#else
#define is_ready (brought[of(0, me)] > number && brought[of(1, me)] > number)
#endif

#ifdef USES_NOT_COUNTED
#define first_use_of_lane 0
#else
#define first_use_of_lane (number * USES)
#endif
#ifdef LOOK_FOR_ONE_USE
#define is_filled (first_flag == first_use_of_lane + 1)
#else
#define is_filled (first_flag > first_use_of_lane)
#endif
#ifdef ALL_SLEEP
#define looks false
#else
#define looks (me == 0)
#endif

// Every thread that polls notices a failure, also between naps.
inline end_all() {
  if
  :: !aborted -> abort_all()
  :: else -> skip
  fi;
  goto gave_up
}

inline wait_until_begun() {
  if
  :: looks ->
     if
     :: is_filled -> note_begun()
#if defined(FAILS) && !defined(LOOK_WITHOUT_END)
     :: failed -> end_all()
#endif
     fi
  :: else ->
     sleep_until(is_over || begun > number)
#ifdef FAILS
     ;
     if
     :: is_over -> goto gave_up
     :: else -> skip
     fi
#endif
  fi
}

proctype Thread(byte me) {
  byte number;
  bit tells;
  do
  :: // next
     sleep_until(is_over || pushed > number);
     if
     :: is_over -> break
     :: else -> assert(first <= number && number < pushed)
     fi;
     // carry_out
     do
     :: is_ready ->
        printf("thread %d: adds up chunks of reduction %d\n", me, number);
        results[of(0, me)]++;
#ifdef STOPS
#ifdef STOP_BETWEEN_FLAGS
        if
        :: stopping -> goto gave_up
        :: else -> skip
        fi;
#endif
        results[of(1, me)]++;
#endif
#ifndef CHUNKS_DO_NOT_TELL
        note_begun();
#endif
        break
     :: atomic { begun <= number && !locked -> printf("thread %d: has polled long for reduction %d\n", me, number) };
        wait_until_begun()
#ifdef FAILS
     :: failed -> end_all()
#endif
     od;
     atomic { !locked -> number++; done[me] = number }
  od;
gave_up:
}

inline bring(thread) {
  brought[of(me, thread)]++;
  begun_by_gpu = (me == OURS -> number + 1 : begun_by_gpu)
}

#define has_all \
  (results[of(me, 0)] > number && results[of(me, 1)] > number && (me != OURS || first_flag == (number + 1) * USES))

// Each lane has a block, which waits only for the lane's thread.
proctype Gpu(byte me) {
  byte number;
  do
  :: number < reductions ->
     if
     :: me != OURS || launched > number -> skip
#ifdef FAILS
     :: kernels_end -> goto gave_up
#endif
     fi;
     do
     :: atomic { me == OURS && first_flag < (number + 1) * USES ->
          first_flag++;  // another rank's thread has added up the previous use
          begun_by_gpu = number + 1
        }
     :: atomic { brought[of(me, 0)] == number -> bring(0) }
     :: atomic { brought[of(me, 1)] == number -> bring(1) }
     :: has_all -> break
#ifdef FAILS
     :: kernels_end -> goto gave_up
#endif
     od;
     number++
  :: else -> break
  od;
gave_up:
  ended[me] = 1
}

proctype Program() {
  do
  :: pushed < reductions -> push(); launched++
  :: else -> break
  od
#ifdef STOPS
  ;
  ended[OURS];  // await_own_work: the program does not wait for the other rank's work
#ifdef STOP_WITHOUT_LOCK
  stopping = 1;
#else
  atomic { !locked -> stopping = 1 };
#endif
#ifndef STOP_WITHOUT_NOTIFY
  notify_all()
#endif
#endif
}

#ifdef FAILS
// The attendant thread of this rank. Of the other rank's attendant, only that it ends its rank's kernels.
proctype Attendant() {
  failed = 1;
  kernels_end = 1
#ifndef NO_ATTENDANT
  ;
  abort_all()
#endif
}
#endif

init {
  atomic {
    if
    :: reductions = 0
    :: reductions = 1
    :: reductions = REDUCTIONS
    fi;
    run Thread(0);
    run Thread(1);
    run Gpu(0);
#ifdef STOPS
    run Gpu(1);
#endif
    run Program();
#ifdef FAILS
    run Attendant()
#endif
  }
}
