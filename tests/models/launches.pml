// Launches that overlap (programmatic dependent launch), on numbers of lanes that differ from call to call: two ranks
// exchange lines on two lanes with two slots each. A launch runs one block per lane; it begins while the launch before
// it still runs, and waits for its end in after_predecessor(). Between launches the lanes' counts are kept in the
// device's memory. A call of another protocol, or on fewer lanes, does not touch some lanes, each of which then has a
// slot that was not given back.
// mutants: NO_AFTER_PREDECESSOR=assertion NO_SAVE=assertion NO_CREDIT=assertion
// mutants: NO_GIVE_BACK_AT_START=deadlock NO_ABORT=deadlock GO_ON_AFTER_GIVING_UP=assertion
#define RANKS 2
#define LANES 2
#define DEPTH 2
#define RINGS (RANKS * LANES)
#define CALLS 3
#define PLACES (RINGS * DEPTH)
byte late = RANKS;  // the rank whose deadline has passed
#define deadline_passed (late == me)
#include "memory.inc"
#include "lane.inc"

#define ring(writer, lane) ((writer) * LANES + (lane))
#define slot_place(ring, use) ((ring) * DEPTH + slot_of(use))
#define datum_of(call, round, ring) (1 + ((call) * 2 + (round)) * RINGS + (ring))

// Call 0 has two rounds. In call 1 rank 0 sends on one lane and rank 1 sends nothing. In call 2 rank 1 sends on one
// lane. A launch has as many blocks as the larger of the two directions has lanes.
#define lanes_of(call, writer) \
  ((call) == 0 || (call) == 2 && (writer) == 0 -> 2 : ((call) == 1 && (writer) == 1 -> 0 : 1))
#define blocks_of(call) ((call) == 1 -> 1 : 2)
#define rounds_of(call) ((call) == 0 -> 2 : 1)

byte begun[RANKS * CALLS];  // number of blocks of a launch that have begun
byte ended[RANKS * CALLS];
bit spent[RANKS];  // a launch has given up: those that wait for it do nothing

// The predecessor allows this launch to start once its own blocks have begun; after_predecessor() waits for their end.
#ifdef NO_AFTER_PREDECESSOR
#define predecessor_allows(launch) (begun[launch] == blocks_of(call - 1))
#else
#define predecessor_allows(launch) (ended[launch] == blocks_of(call - 1))
#endif

#define has_room_here() (here_sent < returned[out] + DEPTH)

inline resume() {
  here_sent = sent[out];
  here_taken = taken[in]
#ifndef NO_GIVE_BACK_AT_START
  ;
  returned[in] = here_taken
#endif
}

inline send_chunk() {
#ifndef NO_CREDIT
  wait_for(has_room_here());
#endif
  printf("rank %d, lane %d: use %d is call %d, round %d\n", me, lane, here_sent, call, round);
  assert(here_sent < finished[out] + DEPTH);
  store(slot_place(out, here_sent), datum_of(call, round, out), flag_of(here_sent, 0));
  here_sent++
}

inline take_chunk() {
  take(slot_place(in, here_taken), flag_of(here_taken, 0), datum);
  printf("rank %d, lane %d: call %d, round %d is datum %d\n", me, lane, call, round, datum);
  assert(datum == datum_of(call, round, in));
  datum = 0;
  here_taken++;
  finished[in]++
}

// Steps up to the next wait are merged into one: no peer can observe the difference, and nothing that a peer does
// meanwhile changes them.
proctype Block(byte me; byte call; byte lane) {
  byte round, datum, here_sent, here_taken;  // registers
  byte out = ring(me, lane);
  byte in = ring(1 - me, lane);
  atomic {
    (call == 0 || predecessor_allows(me * CALLS + call - 1));
    begun[me * CALLS + call]++;
#ifndef GO_ON_AFTER_GIVING_UP
    if
    :: spent[me] -> goto done
    :: else -> skip
    fi;
#endif
    resume()
  }
  do
  :: round < rounds_of(call) ->
     atomic {
       if
       :: lane < lanes_of(call, me) -> send_chunk()
       :: else -> skip
       fi;
#ifndef NO_SAVE
       if  // while the data of the last round is still on its way
       :: round + 1 == rounds_of(call) ->
          sent[out] = here_sent;
          taken[in] = here_taken + (lane < lanes_of(call, 1 - me) -> 1 : 0)
       :: else -> skip
       fi;
#endif
       if
       :: lane < lanes_of(call, 1 - me) -> take_chunk()
       :: else -> skip
       fi;
       round++;
       if
       :: round < rounds_of(call) -> returned[in] = here_taken
       :: else -> break  // the next launch on this lane gives back
       fi
     }
  od;
  goto done;
gave_up:
  printf("rank %d, lane %d: gives up in call %d\n", me, lane, call);
  spent[me] = 1;
done:
  ended[me * CALLS + call]++
}

// Either no rank gives up, or one does at any time and its host tells the others.
proctype Host() {
  if
  :: skip
  :: late = 0
  :: late = 1
  fi;
  if
  :: late < RANKS -> aborted = 1
  :: else -> skip
  fi
}

init {
  byte rank, call, lane;
  atomic {
    for (rank : 0 .. RANKS - 1) {
      for (call : 0 .. CALLS - 1) {
        for (lane : 0 .. blocks_of(call) - 1) {
          run Block(rank, call, lane)
        }
      }
    }
    run Host()
  }
}
