// A pipe (class Pipe, src/kernels/pipe.cuh): one thread loads the pieces of tasks into stages of shared memory and
// stores them from there, all by asynchronous copies. These land in shared memory, leave it and arrive late and in any
// order. The thread tells other warps which tasks have been read (loaded) and which are at their destination (written).
// A stage may be loaded again only when what was stored from it has left, and a task may be reported only when this is
// true of it. Before the thread waits for others (await), it completes what is under way; it may give up there.
// variants: SENDER RECEIVER TWO_STAGES
// mutants: NOT_WAITED_FOR=assertion LEAVING_TWO_MORE=assertion NOT_LANDED=assertion ONE_PARITY=deadlock
// mutants: WRITTEN_WHEN_LEFT=assertion ONE_MISSING_LESS=assertion LOADED_WHEN_PUT=assertion
// mutants: NO_FLUSH=assertion RECEIVER:NO_FLUSH=assertion ENDS_WITHOUT_FLUSH=assertion
// mutants: FALLS=assertion ENDS_AT_ONCE=assertion
#ifdef TWO_STAGES
#define STAGES 2
#else
#define STAGES 4
#endif
#define LOADING (STAGES / 2)
#ifdef LEAVING_TWO_MORE  // one more would do no harm
#define LEAVING (STAGES - LOADING + 1)
#else
#define LEAVING (STAGES - LOADING - 1)
#endif
#define TASKS 7
#define pieces_of(task) ((task) == 0 || (task) == 3 || (task) == 5 -> 0 : ((task) == 4 -> 3 : ((task) == 1 -> 1 : 2)))
#define PIECES 8
#ifdef RECEIVER
#define tells_written false
#else
#define tells_written true
#endif

// The states of a piece in the hardware.
#define LOADS 1
#define LANDED 2
#define LEAVES 3
#define ARRIVES 4
#define ARRIVED 5
byte state[PIECES];
byte left, arrived;   // number of pieces before the first that has not left, not arrived
byte stages[STAGES];  // the piece whose data is there; NOBODYS: being overwritten
bit landed[STAGES];   // the stage's barrier: parity of the phase that has not ended
#define NOBODYS 255
#define stage_of(piece) ((piece) % STAGES)
#define parity_of(piece) ((piece) / STAGES % 2)

byte target_tasks[STAGES];  // number of tasks complete with the piece in that stage; 0: no more than before

// In registers of the thread.
byte put, passed;  // number of pieces loaded and stored so far
byte tasks, missing;

#include "arrivals.inc"
byte loaded;
Arrivals written;
byte ends[TASKS + 1];  // piece at which each task ends. Not part of the protocol: reports are checked against it

// What others rely on at any time.
inline tell_loaded(a_tasks) {
  loaded = a_tasks;
  for (each : 0 .. PIECES - 1) {
    assert(each >= ends[loaded] || state[each] >= LANDED)
  }
  each = 0
}
inline tell_written(a_tasks) {
  tell(written, a_tasks);
  assert(ends[written.told] <= arrived)
}

// wait_left, wait_stored: all groups except the last `pending` have left, or are stored.
#define have_left(pending) (left + (pending) >= passed)
#ifdef WRITTEN_WHEN_LEFT
#define are_stored(pending) have_left(pending)
#else
#define are_stored(pending) (arrived + (pending) >= passed)
#endif

inline find_written() {
  if
  :: missing = LEAVING
  :: missing = LEAVING + 1
  :: missing = LEAVING + 3
  fi;
  atomic {
    are_stored(missing);
    d_step {
#ifdef ONE_MISSING_LESS
      tell_written(written.tasks[missing - 1]);
#else
      tell_written(written.tasks[missing]);
#endif
      missing = 0
    }
  }
}

inline pass() {
#ifndef NOT_LANDED
#ifdef ONE_PARITY
  landed[stage_of(passed)] != 0;
#else
  landed[stage_of(passed)] != parity_of(passed);
#endif
#endif
  d_step {
    printf("piece %d is stored\n", passed);
    assert(stages[stage_of(passed)] == passed);
    state[passed] = LEAVES;
    passed++;
    if
    :: target_tasks[stage_of(passed - 1)] != 0 -> tell_loaded(target_tasks[stage_of(passed - 1)])
    :: else -> skip
    fi
  }
#ifndef NOT_WAITED_FOR
  have_left(LEAVING);
#endif
#ifndef RECEIVER
  d_step { add(written, target_tasks[stage_of(passed - 1)]) };
  if
  :: is_complete(written) -> skip  // there is nothing more to report
  :: else -> find_written()
  fi
#endif
}

inline end_flush() {
  atomic {
    are_stored(0);
    flushes = 0;
    d_step { tell_written(written.tasks[0]) }
  }
}

// The last piece of a task also completes the tasks after it that have no pieces.
inline put_piece() {
  atomic {
    printf("piece %d is loaded\n", put);
    stages[stage_of(put)] = NOBODYS;
    state[put] = LOADS;
    put++;
    pieces++;
    target_tasks[stage_of(put - 1)] = 0;
    if
    :: pieces == pieces_of(tasks) ->
       pieces = 0;
       tasks++;
       ends[tasks] = put;
       do
       :: tasks < TASKS && pieces_of(tasks) == 0 -> tasks++; ends[tasks] = put
       :: break
       od;
       target_tasks[stage_of(put - 1)] = tasks;
#ifdef LOADED_WHEN_PUT
       tell_loaded(tasks);
#endif
       has_ended = 1
    :: else -> skip
    fi
  }
}

inline end_tasks() {
  atomic {
    tasks++;
    ends[tasks] = put;
    if
#ifndef ENDS_AT_ONCE
    :: put != passed -> target_tasks[stage_of(put - 1)] = tasks
    :: put == passed ->
#else
    :: true ->
#endif
       tell_loaded(tasks);
#ifndef RECEIVER
       written.tasks[0] = tasks;
       tell_written(tasks)
#endif
    fi;
    has_ended = 1
  }
}

// Between tasks the thread may have to wait for others.
inline after_tasks() {
  has_ended = 0;
  if
  :: tasks == TASKS -> begin_end()
  :: tasks < TASKS
  :: tasks == 2 || tasks == 5 -> begin_wait()
  fi
}

inline begin_flush() {
  to_pass = put;
  flushes = 1
}

inline begin_wait() {
  waits = 1;
#if defined(NO_FLUSH)
  skip
#elif defined(RECEIVER)
  to_pass = put
#else
  begin_flush()
#endif
}

inline begin_end() {
  ends_here = 1;
#ifndef ENDS_WITHOUT_FLUSH
  begin_flush()
#endif
}

// Stores pieces until `to_pass` have been stored; if the thread `flushes`, it then waits until all have arrived.
proctype Driver() {
  byte to_pass, pieces, each, ago;
  bit flushes, has_ended, waits, ends_here;
  do
  :: passed < to_pass -> pass()
  :: passed >= to_pass && flushes -> end_flush()
  :: passed >= to_pass && !flushes && has_ended -> atomic { after_tasks() }
  :: passed >= to_pass && !flushes && !has_ended && waits ->
     // Other threads may wait for what this thread reports.
     assert(loaded == tasks && (!tells_written || written.told == tasks));
     waits = 0;
     if
     :: skip
     :: begin_end()  // gives up
     fi
  :: passed >= to_pass && !flushes && !has_ended && !waits && ends_here -> break
  :: passed >= to_pass && !flushes && !has_ended && !waits && !ends_here ->
     if
     :: pieces_of(tasks) == 0 -> end_tasks()
     :: pieces_of(tasks) != 0 && put - passed == LOADING -> to_pass = passed + 1
     :: pieces_of(tasks) != 0 && put - passed != LOADING -> put_piece()
     fi
  od;
  assert(arrived == put)  // when the block ends
}

inline count_moved() {
  do
  :: left < PIECES && state[left] >= ARRIVES -> left++
  :: else -> break
  od;
  do
  :: arrived < PIECES && state[arrived] == ARRIVED -> arrived++
  :: else -> break
  od
}

// The hardware. A store reads its data as late as possible: when it leaves.
proctype Piece(byte piece) {
end:
  d_step {
    state[piece] == LOADS;
    state[piece] = LANDED;
    stages[stage_of(piece)] = piece;
    landed[stage_of(piece)] = 1 - landed[stage_of(piece)]
  }
end_here:
  d_step {
    state[piece] == LEAVES;
    printf("piece %d leaves\n", piece);
    assert(stages[stage_of(piece)] == piece);
    state[piece] = ARRIVES;
    count_moved()
  }
  d_step {
    printf("piece %d arrives\n", piece);
    state[piece] = ARRIVED;
    count_moved()
  }
}

init {
  byte piece;
  atomic {
    run Driver();
    for (piece : 0 .. PIECES - 1) {
      run Piece(piece)
    }
  }
}
