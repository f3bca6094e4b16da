// Lines: a writer that runs ahead of its reader, as the root of a broadcast does. Each slot has two lines, each of
// which arrives as a whole together with its flag. Calls of different lengths follow one another; in some runs one
// of the writer's calls differs from the reader's.
// mutants: NO_CREDIT=assertion FLAG_WITHOUT_USE=assertion FLAG_WITHOUT_CALL=assertion TORN=assertion
// mutants: GIVE_BACK_BEFORE_READING=assertion NO_GIVE_BACK_AT_START=deadlock NO_ABORT=deadlock
#define DEPTH 2
#define RINGS 1
#define LINES 2
#define CALLS 4
#define PLACES (DEPTH * LINES)
#include "memory.inc"
#include "lane.inc"

#define rounds_of(call) ((call) == 0 -> 3 : ((call) == 2 -> 2 : 1))
#define lines_of(call) ((call) == 1 -> 1 : 2)
#define datum_of(call, round, line) (1 + ((call) * 3 + (round)) * 2 + (line))
#define line_place(use, line) (slot_of(use) * LINES + (line))
#define OF_ANOTHER_CALL 128

byte other_call = CALLS;  // the writer's call that differs from the reader's

// A failure may happen at any time, or never. If the calls differ, the comparison on the host raises the abort word.
proctype Host() {
  if
  :: aborted = 1
  :: other_call == CALLS -> skip
  fi
}

proctype Writer() {
  byte call, round, line;
  bit differs;
  for (call : 0 .. CALLS - 1) {
    differs = call == other_call;
    for (round : 0 .. rounds_of(call) - 1) {
      wait_for(has_room(0));
      printf("writer: use %d is call %d, round %d\n", sent[0], call, round);
      for (line : 0 .. lines_of(call) - 1) {
        assert_unread(0);
        store(line_place(sent[0], line),
              datum_of(call, round, line) + (differs -> OF_ANOTHER_CALL : 0), flag_of(sent[0], differs))
      }
      sent[0]++
    }
  }
gave_up:
}

proctype Reader() {
  byte call, round, line, datum;
  for (call : 0 .. CALLS - 1) {
#ifndef NO_GIVE_BACK_AT_START
    give_back(0);
#endif
    for (round : 0 .. rounds_of(call) - 1) {
#ifdef GIVE_BACK_BEFORE_READING
      taken[0]++;
      give_back(0);
      taken[0]--;
#endif
      for (line : 0 .. lines_of(call) - 1) {
        take(line_place(taken[0], line), flag_of(taken[0], 0), datum);
        printf("reader: call %d, round %d, line %d gets datum %d\n", call, round, line, datum);
        assert(datum == datum_of(call, round, line))
      }
      atomic { taken[0]++; finished[0]++ }
      if
      :: round + 1 < rounds_of(call) -> give_back(0)
      :: else -> skip  // the next launch does it
      fi
    }
  }
gave_up:
}

init {
  atomic {
    if
    :: skip
    :: other_call = 1
    :: other_call = 2
    fi;
    run Writer();
    run Reader();
    run Host()
  }
}
