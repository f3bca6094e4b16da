// The threads of a block: one handles the peer (finds slots, gives them back), another one publishes flags in bulk, all
// write and read their part of a slot, and barriers separate these steps. One block only sends and one only takes; each
// has two threads. Three rounds, two slots. If a thread gives up, the whole block must: a thread that leaves alone
// leaves the others waiting at a barrier.
// variants: BULK LINES
// mutants: NO_BARRIER_AFTER_WAITING=assertion NO_BARRIER_BEFORE_PUBLISHING=assertion
// mutants: NO_BARRIER_BEFORE_GIVING_BACK=assertion NO_ABORT=deadlock LEAVES_ALONE_WHEN_IT_WAITS=deadlock
// mutants: LINES:LEAVES_ALONE_WHEN_IT_READS=deadlock
#define THREADS 2
#define DEPTH 2
#define RINGS 1
#define ROUNDS 3
#define PLACES (DEPTH * (THREADS + 1))
#define SENDER 0
#define TAKER 1
byte late = 2;  // the block whose deadline has passed
#define deadline_passed (late == here)
#include "memory.inc"
#include "lane.inc"

#define part_place(use, thread) (slot_of(use) * THREADS + (thread))
#define flag_place(use) (DEPTH * THREADS + slot_of(use))
#define datum_of(round, thread) (1 + (round) * THREADS + (thread))

// A barrier of a block's threads that also tells all of them whether any of them votes for giving up
// (__syncthreads_or).
byte arrived[2];
bit phase[2], says_no[2], one_said_no[2];
bit failed[2];  // shared memory of the block: the thread that handles the peer has given up
byte read[DEPTH];  // number of parts of a slot that have been read

inline barrier(block) {
  d_step {
    my_phase = phase[block];
    arrived[block]++;
    if
    :: arrived[block] == THREADS ->
       arrived[block] = 0;
       one_said_no[block] = says_no[block];
       says_no[block] = 0;
       phase[block] = 1 - my_phase
    :: else -> skip
    fi
  };
  phase[block] != my_phase
}

proctype Sender(byte me) {
  byte here = SENDER, round;
  bit my_phase;
  for (round : 0 .. ROUNDS - 1) {
    if
    :: me == 0 -> wait_for(has_room(0)); goto waited
    :: else -> goto waited
    fi;
gave_up:
#ifdef LEAVES_ALONE_WHEN_IT_WAITS
    goto done;
#endif
    failed[SENDER] = 1;
waited:
#ifndef NO_BARRIER_AFTER_WAITING
    barrier(SENDER);
#endif
    if
    :: failed[SENDER] -> goto done
    :: else -> skip
    fi;
    printf("sender: thread %d writes round %d\n", me, round);
    assert(round < finished[0] + DEPTH);
#ifdef BULK
    store(part_place(round, me), datum_of(round, me), 0);
#else
    store(part_place(round, me), datum_of(round, me), flag_of(round, 0));
#endif
#ifndef NO_BARRIER_BEFORE_PUBLISHING
    barrier(SENDER);
#endif
    if
    :: me == 0 -> sent[0]++
    :: else ->
#ifdef BULK
       arrive_all(0, PLACES);  // this thread's fence also covers the stores that the barrier has made visible to it
       printf("sender: publishes round %d\n", round);
       store(flag_place(round), 0, flag_of(round, 0))
#else
       skip
#endif
    fi
  }
done:
}

proctype Taker(byte me) {
  byte here = TAKER, round, datum;
  bit my_phase;
  for (round : 0 .. ROUNDS - 1) {
#ifdef BULK
    if
    :: me == 0 -> take(flag_place(round), flag_of(round, 0), datum); goto waited
    :: else -> goto waited
    fi;
gave_up:
#ifdef LEAVES_ALONE_WHEN_IT_WAITS
    goto done;
#endif
    failed[TAKER] = 1;
waited:
#ifndef NO_BARRIER_AFTER_WAITING
    barrier(TAKER);
#endif
    if
    :: failed[TAKER] -> goto done
    :: else -> skip
    fi;
    datum = memory[part_place(round, me)].datum;
#else
    take(part_place(round, me), flag_of(round, 0), datum);
    goto came;
gave_up:
#ifdef LEAVES_ALONE_WHEN_IT_READS
    goto done;
#endif
    says_no[TAKER] = 1;
    goto voted;
came:
#endif
    printf("taker: thread %d reads datum %d in round %d\n", me, datum, round);
    assert(datum == datum_of(round, me));
    atomic {
      datum = 0;
      read[slot_of(round)]++;
      if
      :: read[slot_of(round)] == THREADS -> finished[0]++; read[slot_of(round)] = 0
      :: else -> skip
      fi
    };
voted:
#ifndef NO_BARRIER_BEFORE_GIVING_BACK
    barrier(TAKER);
#endif
    if
    :: one_said_no[TAKER] -> goto done
    :: else -> skip
    fi;
    if
    :: me == 0 && round < ROUNDS - 1 -> atomic { taken[0] = round + 1; give_back(0) }
    :: else -> skip
    fi
  }
done:
}

// Either no block gives up, or one does at any time and its host tells the other.
proctype Host() {
  if
  :: skip
  :: late = SENDER
  :: late = TAKER
  fi;
  if
  :: late == SENDER || late == TAKER -> aborted = 1
  :: else -> skip
  fi
}

init {
  atomic { run Sender(0); run Sender(1); run Taker(0); run Taker(1); run Host() }
}
