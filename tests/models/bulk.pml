// Bulk: a slot holds only data, and is followed by a fence and one flag. One writer, which runs ahead, and two readers
// of the same slots, as through host memory (Cast::multi). With one reader it is the ring between two GPUs.
// mutants: NO_FENCE=assertion NO_ACQUIRE=assertion NO_CREDIT=assertion ONE_RETURN_IS_ENOUGH=assertion
// mutants: FLAG_WITHOUT_USE=assertion FLAG_WITHOUT_CALL=assertion GIVE_BACK_BEFORE_READING=assertion
// mutants: NO_GIVE_BACK_AT_START=deadlock NO_ABORT=deadlock
#define DEPTH 2
#define READERS 2
#define RINGS READERS
#define GRANULES 2
#define CALLS 3
#define PLACES (DEPTH * (GRANULES + 1))
#include "memory.inc"
#include "lane.inc"

#define rounds_of(call) ((call) == 1 -> 1 : 2)
#define granules_of(call) ((call) == 1 -> 1 : 2)
#define datum_of(call, round, granule) (1 + ((call) * 2 + (round)) * 2 + (granule))
#define granule_place(use, granule) (slot_of(use) * GRANULES + (granule))
#define flag_place(use) (DEPTH * GRANULES + slot_of(use))
#define OF_ANOTHER_CALL 128

byte other_call = CALLS;  // the writer's call that differs from the readers'

proctype Writer() {
  byte call, round, granule;
  bit differs;
  for (call : 0 .. CALLS - 1) {
    differs = call == other_call;
    for (round : 0 .. rounds_of(call) - 1) {
      wait_for(has_room(0));
#ifndef ONE_RETURN_IS_ENOUGH
      wait_for(has_room(1));
#endif
      printf("writer: use %d is call %d, round %d\n", sent[0], call, round);
      for (granule : 0 .. granules_of(call) - 1) {
        assert_unread(0);
        assert_unread(1);
        store(granule_place(sent[0], granule),
              datum_of(call, round, granule) + (differs -> OF_ANOTHER_CALL : 0), 0)
      }
#ifndef NO_FENCE
      arrive_all(0, PLACES);
#endif
      printf("writer: publishes use %d\n", sent[0]);
      store(flag_place(sent[0]), 0, flag_of(sent[0], differs));
      atomic { sent[0]++; sent[1]++ }
    }
  }
gave_up:
}

inline read_slot(reader) {
  for (granule : 0 .. granules_of(call) - 1) {
    datum[granule] = memory[granule_place(taken[reader], granule)].datum
  }
}

proctype Reader(byte me) {
  byte call, round, granule, nothing;
  byte datum[GRANULES];
  for (call : 0 .. CALLS - 1) {
#ifndef NO_GIVE_BACK_AT_START
    give_back(me);
#endif
    for (round : 0 .. rounds_of(call) - 1) {
#ifdef NO_ACQUIRE
      read_slot(me);  // the loads happen before the flag is seen
#endif
      take(flag_place(taken[me]), flag_of(taken[me], 0), nothing);
#ifdef GIVE_BACK_BEFORE_READING
      returned[me] = taken[me] + 1;
#endif
#ifndef NO_ACQUIRE
      read_slot(me);
#endif
      for (granule : 0 .. granules_of(call) - 1) {
        printf("reader %d: call %d, round %d, granule %d is datum %d\n", me, call, round, granule, datum[granule]);
        assert(datum[granule] == datum_of(call, round, granule));
        datum[granule] = 0
      }
      atomic { taken[me]++; finished[me]++ }
      if
      :: round + 1 < rounds_of(call) -> give_back(me)
      :: else -> skip  // the next launch does it
      fi
    }
  }
gave_up:
}

// A failure may happen at any time, or never. If the calls differ, the comparison on the host raises the abort word.
proctype Host() {
  if
  :: aborted = 1
  :: other_call == CALLS -> skip
  fi
}

init {
  atomic {
    if
    :: skip
    :: other_call = 1
    :: other_call = 2
    fi;
    run Writer();
    run Reader(0);
    run Reader(1);
    run Host()
  }
}
