// A pipe (class Pipe, src/kernels/pipe.cuh): one thread loads pieces of tasks into stages of shared memory and stores
// them from there, all by asynchronous copies, which land, leave shared memory and arrive late and in any order. It
// tells other warps of tasks that have been read (loaded) and of those that are where they belong (written). A stage is
// loaded again only when what was stored from it has left; a task is told of only when it is so. Before the thread
// waits for others (await) it ends what is under way; it may give up there.
// variants: SENDER RECEIVER TWO_STAGES
// mutants: NOT_WAITED_FOR=assertion LEAVING_TWO_MORE=assertion NOT_LANDED=assertion ONE_PARITY=deadlock
// mutants: WRITTEN_WHEN_LEFT=assertion ONE_MISSING_LESS=assertion LOADED_WHEN_PUT=assertion
// mutants: NO_FLUSH=assertion RECEIVER:NO_FLUSH=assertion ENDS_WITHOUT_FLUSH=assertion
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
#define pieces_of(task) ((task) == 1 || (task) == 3 -> 0 : ((task) == 4 -> 3 : ((task) == 6 -> 2 : 1)))
#define PIECES 8
#define MOST 3  // tasks that a Progress keeps
#ifdef RECEIVER
#define tells_written false
#else
#define tells_written true
#endif

// What the hardware does with a piece.
#define LOADS 1
#define LANDED 2
#define LEAVES 3
#define ARRIVES 4
#define ARRIVED 5
byte state[PIECES];
byte left, arrived;   // pieces before the first that has not
byte stages[STAGES];  // whose data; NOBODYS: about to change
bit landed[STAGES];   // the barrier: the parity of the phase that has not ended
#define NOBODYS 255
#define stage_of(piece) ((piece) % STAGES)
#define parity_of(piece) ((piece) / STAGES % 2)

// In the registers of the thread.
byte put, passed, known;  // pieces; known: of those that have arrived (arrived_)
byte tasks, missing;

#include "progress.inc"
Progress loaded, written;
byte ends[TASKS + 1];  // of tasks, in pieces. No part of the protocol: what `done` must keep to

// What others rely on, whenever they look.
inline note_loaded() {
#ifdef LOADED_WHEN_PUT
  note(loaded, put);
#else
  note(loaded, passed);
#endif
  for (each : 0 .. PIECES - 1) {
    assert(each >= ends[loaded.done] || state[each] >= LANDED)
  }
  each = 0
}
inline note_written() {
  note(written, known);
  assert(ends[written.done] <= arrived)
}

// wait_left, wait_stored: all of the groups before the last `pending`.
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
#ifdef ONE_MISSING_LESS
    missing--;
#endif
    if
    :: passed > known + missing -> known = passed - missing
    :: else -> skip
    fi;
    missing = 0;
    d_step { note_written() }
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
  atomic {
    printf("piece %d is stored\n", passed);
    assert(stages[stage_of(passed)] == passed);
    state[passed] = LEAVES;
    passed++
  }
#ifndef NOT_WAITED_FOR
  have_left(LEAVING);
#endif
  d_step { note_loaded() };
#ifndef RECEIVER
  if
  :: is_complete(written) -> skip  // nobody wants to know
  :: else -> find_written()
  fi
#endif
}

inline end_flush() {
  atomic {
    are_stored(0);
    known = passed;
    flushes = 0;
    d_step { note_loaded(); note_written() }
  }
}

inline put_piece() {
  atomic {
    printf("piece %d is loaded\n", put);
    stages[stage_of(put)] = NOBODYS;
    state[put] = LOADS;
    put++
  }
}

inline end_task() {
  d_step {
    tasks++;
    ends[tasks] = put;
    add_end(loaded, put, tasks);
#ifndef RECEIVER
    add_end(written, put, tasks);
#endif
    note_loaded();
    note_written()
  }
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

// Pieces pass until `to_pass` have; if the thread then `flushes`, it waits until all have arrived. Between tasks it
// may have to wait for others.
proctype Driver() {
  byte to_pass, pieces, each;
  bit flushes, waits, ends_here;
  do
  :: passed < to_pass -> pass()
  :: passed >= to_pass && flushes -> end_flush()
  :: passed >= to_pass && !flushes && waits ->
     // Others may wait for this thread.
     assert(loaded.done == tasks && (!tells_written || written.done == tasks));
     waits = 0;
     if
     :: skip
     :: begin_end()  // gives up
     fi
  :: passed >= to_pass && !flushes && !waits && ends_here -> break
  :: passed >= to_pass && !flushes && !waits && !ends_here && pieces < pieces_of(tasks) ->
     if
     :: put - passed == LOADING -> to_pass = passed + 1
     :: else -> put_piece(); pieces++
     fi
  :: passed >= to_pass && !flushes && !waits && !ends_here && pieces == pieces_of(tasks) ->
     if
     :: is_full(loaded) || is_full(written) -> begin_flush()
     :: else ->
        end_task();
        pieces = 0;
        if
        :: tasks == TASKS -> begin_end()
        :: tasks < TASKS
        :: tasks == 2 || tasks == 5 -> begin_wait()
        fi
     fi
  od;
  assert(arrived == put)  // the block ends
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

// The hardware. What is stored is read as late as it leaves.
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
