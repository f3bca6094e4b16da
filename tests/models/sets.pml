// The sets of a piped kernel's block (src/kernels/piped_adders.cuh), in shared memory. The fetcher loads contributions
// into a set. The adders leave the sum there (the contributions of the last granule are not loaded but read in the
// slots). The storer sends the sum to the peers and gives the set back to the fetcher. Barriers tell when a set is
// full, summed and empty. The storer tells the returner, which gives slots back, what is fetched, and the flag
// publisher, which publishes results, what is written. Copies land in shared memory, leave it and arrive late and in
// any order. At any time another warp may give up: then all must end, but not before what was begun has landed and
// arrived.
// mutants: EMPTY_TOO_EARLY=assertion NOT_WAITED_FOR=assertion WRITTEN_WHEN_LEFT=assertion
// mutants: ALL_WRITTEN_WHEN_LEFT=assertion FETCHED_WHEN_BEGUN=assertion
// mutants: AHEAD_AS_MANY_AS_SETS=assertion EMPTY_ROUNDS_OVERWRITE=assertion
// mutants: LEAVES_LOADS_WHEN_THROUGH=assertion LEAVES_LOADS_WHEN_ABORTED=assertion AWAITS_LOADS_TOO_LATE=deadlock
// mutants: LEAVES_STORES_ON_THEIR_WAY=assertion
// mutants: NOT_SUMMED=assertion FETCHED_WHEN_FULL=assertion NO_TERMINATOR=deadlock NO_ABORT=deadlock
#define SETS 3
#ifdef AHEAD_AS_MANY_AS_SETS
#define AHEAD SETS
#else
#define AHEAD (SETS + 1)  // number of rounds whose slots are kept for the adders and the storer
#endif
#define ADDERS 2  // warps
#define OWN_ROUNDS 5
#define ROUNDS (OWN_ROUNDS + 2)  // in the last two rounds this rank has nothing to add
#define sets_of(round) (owns_nothing || (round) >= OWN_ROUNDS -> 0 : ((round) == 0 -> 2 : 1))
#define last_of(round) ((round) + 1)  // number of the round's last set
#define MOST_SETS (OWN_ROUNDS + 1)
#define LEAVING 1
#include "arrivals.inc"

// The states of a set, by its number.
#define LOADS 1
#define LANDED 2
#define SUMMED 3
#define LEAVES 4
#define ARRIVES 5
#define ARRIVED 6
byte state[MOST_SETS];
byte stored, left, arrived;  // number of sets before the first that is not
byte content[SETS];  // number of the set whose data is there; NOBODYS: being overwritten
byte added[SETS];    // number of adders that have added it
#define NOBODYS 255
#define at(number) ((number) % SETS)
#define parity_of(number) ((number) / SETS % 2)

// Barriers, each by the parity of the phase that has not ended.
bit filled[SETS], summed[SETS], emptied[SETS];
#define has_ended(barrier, number) (barrier[at(number)] != parity_of(number))
typedef Record { byte round; bit ends_task, no_more };
Record records[SETS];
byte slots[AHEAD];  // by round: where its contributions are and its results go; NONE: nowhere
#define NONE 255

Arrivals written;
byte fetched;
bit owns_nothing;
bit failed;
byte roles;  // number of roles that have not ended

#define assert_slots() assert(slots[records[at(number)].round % AHEAD] == records[at(number)].round)

// await() for a barrier.
#ifdef NO_ABORT
#define await_or_give_up(condition) (condition)
#else
#define await_or_give_up(condition) \
  if \
  :: (condition) -> skip \
  :: !(condition) && failed -> goto gave_up \
  fi
#endif

inline next_set() {
  if
  :: number < SETS -> skip
  :: number >= SETS && has_ended(emptied, number - SETS) -> skip
  :: number >= SETS && !has_ended(emptied, number - SETS) && failed -> goto gave_up
  fi
}

// A round is written when its last set has arrived, and fetched when that set is summed.
inline tell_fetched(rounds) {
  fetched = rounds;
  assert(fetched == 0 || state[last_of(fetched - 1)] >= SUMMED)
}
inline tell_written(rounds) {
  tell(written, rounds);
  assert(written.told == 0 || arrived > last_of(written.told - 1))
}

// Names the slots of a round for the adders and the storer.
inline name_slots() {
  if
  :: sets_of(round) != 0 -> slots[round % AHEAD] = round
#ifdef EMPTY_ROUNDS_OVERWRITE
  :: else -> slots[round % AHEAD] = NONE
#else
  :: else -> skip
#endif
  fi
}

inline fetch() {
  printf("set %d is begun for round %d\n", number, round);
  records[at(number)].round = round;
  records[at(number)].ends_task = nth == sets_of(round);
  content[at(number)] = NOBODYS;
  added[at(number)] = 0;
  state[number] = LOADS;
  number++;
#ifdef FETCHED_WHEN_BEGUN
  tell_fetched(round + records[at(number - 1)].ends_task)
#endif
}

// Waits for all loads before the end marker, which uses the barrier of one of these sets and would begin its next
// phase.
inline await_loads() {
  for (nth : 1 .. (number < SETS -> number : SETS)) {
    has_ended(filled, number - nth)
  }
}

proctype Fetcher() {
  byte round, nth, number;
  for (round : 0 .. ROUNDS - 1) {
    atomic {
      if
      :: skip  // contributions have arrived
      :: failed -> goto gave_up
      fi;
      name_slots()
    }
    for (nth : 1 .. sets_of(round)) {
      atomic { next_set(); fetch() }
    }
  }
  atomic { next_set() };
#if !defined(LEAVES_LOADS_WHEN_THROUGH) && !defined(AWAITS_LOADS_TOO_LATE)
  await_loads();
#endif
#ifndef NO_TERMINATOR
  atomic {
    records[at(number)].no_more = 1;
    filled[at(number)] = 1 - filled[at(number)]
  };
#endif
#ifdef AWAITS_LOADS_TOO_LATE
  await_loads();
#endif
  goto ended;
gave_up:
#ifdef LEAVES_LOADS_WHEN_ABORTED
  skip;
#else
  await_loads();
#endif
ended:
  printf("the fetcher has begun %d sets\n", number);
  roles--
}

proctype Adder() {
  byte number;
  do
  :: atomic {
       await_or_give_up(has_ended(filled, number));
       if
       :: records[at(number)].no_more -> break
       :: else -> skip
       fi;
       assert_slots();
       assert(content[at(number)] == number);
       added[at(number)]++;
       if
       :: added[at(number)] == ADDERS ->
          state[number] = SUMMED;
          summed[at(number)] = 1 - summed[at(number)]
       :: else -> skip
       fi;
       number++
     }
  od;
gave_up:
  roles--
}

// wait_left, wait_stored: all groups except the last `pending` have left, or are stored.
#define have_left(pending) (left + (pending) >= stored)
#ifdef WRITTEN_WHEN_LEFT
#define are_stored(pending) have_left(pending)
#else
#define are_stored(pending) (arrived + (pending) >= stored)
#endif

inline free_until(end) {
  do
  :: freed < (end) ->
     emptied[at(freed)] = 1 - emptied[at(freed)];
     freed++
  :: else -> break
  od
}

inline end_stores() {
  atomic { have_left(0); free_until(number) }
#ifndef ALL_WRITTEN_WHEN_LEFT
  if
  :: is_complete(written) -> skip
  :: else -> atomic { are_stored(0); tell_written(written.tasks[0]) }
  fi
#endif
}

inline store() {
  printf("set %d is stored\n", number);
  assert_slots();
  assert(content[at(number)] == number && added[at(number)] == ADDERS);
  state[number] = LEAVES;
  stored++
}

inline find_written() {
  if
  :: missing = 1
  :: missing = 2
  :: missing = 4
  fi;
  atomic {
    are_stored(missing);
    tell_written(written.tasks[missing]);
    missing = 0
  }
}

proctype Storer() {
  byte number, freed, missing, ago;
  do
  :: if
     :: has_ended(filled, number) -> skip
     :: !has_ended(filled, number) -> end_stores()
     fi;
     atomic {
       await_or_give_up(has_ended(filled, number));
       if
       :: records[at(number)].no_more -> break
       :: else -> skip
       fi
     };
#ifdef FETCHED_WHEN_FULL
     tell_fetched(records[at(number)].round + records[at(number)].ends_task);
#endif
#ifndef NOT_SUMMED
     await_or_give_up(has_ended(summed, number));
#endif
     atomic { store() };
     atomic {
       if
       :: records[at(number)].ends_task ->
          tell_fetched(records[at(number)].round + 1);
          add(written, records[at(number)].round + 1)
       :: else -> add(written, 0)
       fi
     };
     atomic {
#ifndef NOT_WAITED_FOR
       have_left(1);
#endif
#ifdef EMPTY_TOO_EARLY
       free_until(number + 1)
#else
       free_until(number)
#endif
     };
     if
     :: is_complete(written) -> skip
     :: else -> find_written()
     fi;
     number++
  od;
gave_up:
  end_stores();
  atomic {
    if
    :: failed ->
#ifndef LEAVES_STORES_ON_THEIR_WAY
       are_stored(0)
#endif
    :: else ->
       assert(owns_nothing || arrived == MOST_SETS);
       fetched = ROUNDS;
       written.told = ROUNDS
    fi;
    assert(arrived == stored);
    roles--
  }
}

inline count_moved() {
  do
  :: left < MOST_SETS && state[left] >= ARRIVES -> left++
  :: else -> break
  od;
  do
  :: arrived < MOST_SETS && state[arrived] == ARRIVED -> arrived++
  :: else -> break
  od
}

// The hardware, with one set. A store reads its data as late as possible: when it leaves.
proctype Set(byte number) {
end:
  d_step {
    state[number] == LOADS;
    assert(roles > 0);  // shared memory ends with the block
    state[number] = LANDED;
    content[at(number)] = number;
    filled[at(number)] = 1 - filled[at(number)]
  }
end_here:
  d_step {
    state[number] == LEAVES;
    printf("set %d leaves\n", number);
    assert(roles > 0 && content[at(number)] == number);
    state[number] = ARRIVES;
    count_moved()
  }
  d_step {
    printf("set %d arrives\n", number);
    state[number] = ARRIVED;
    count_moved()
  }
}

// Either no other warp gives up, or one does at any time.
proctype Other() {
  if
  :: skip
  :: failed = 1
  fi
}

init {
  byte each;
  atomic {
    if
    :: skip
    :: owns_nothing = 1
    fi;
    roles = 2 + ADDERS;
    run Fetcher();
    run Storer();
    for (each : 1 .. ADDERS) {
      run Adder()
    }
    for (each : 0 .. MOST_SETS - 1) {
      run Set(each)
    }
    run Other()
  }
}
