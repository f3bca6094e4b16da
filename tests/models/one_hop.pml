// One hop between three ranks (run_exchange): in each round every rank sends a chunk to every peer and takes one from
// it. An all-to-all exchange, a broadcast, a gather and another exchange follow one another, with two slots per ring.
// In bulk, a rank that both sends and takes sends one round ahead.
// variants: LINES BULK
// mutants: NO_CREDIT=assertion FLAG_WITHOUT_USE=assertion TAKE_BEFORE_SENDING=deadlock NO_GIVE_BACK_AT_START=deadlock
// mutants: NO_ABORT=deadlock BULK:NO_FENCE=assertion
#define RANKS 3
#define DEPTH 2
#define RINGS (RANKS * RANKS)
#define CALLS 4
#ifdef BULK
#define lead_of(call) ((call) == 0 || (call) == 3)
#define PLACES (2 * RINGS * DEPTH)
#else
#define lead_of(call) 0
#define PLACES (RINGS * DEPTH)
#endif
#ifdef LINES
byte late = RANKS;  // the rank whose deadline has passed
#define deadline_passed (late == me)
#else
#define NEVER_ABORTED  // block.pml models giving up in bulk
#endif
#include "memory.inc"
#include "lane.inc"

#ifdef BULK
bit due[RINGS];       // a chunk is to be published
bit is_due[RANKS];    // the chunks of a round are to be published
bit has_left[RANKS];  // the rank has left its kernel
#endif

// Rings are ordered by writer, so that what one rank stores to is contiguous: first the slots of all ranks, then the
// flags.
#define ring(writer, reader) ((writer) * RANKS + (reader))
#define slot_place(ring, use) ((ring) * DEPTH + slot_of(use))
#define flag_place(ring, use) (RINGS * DEPTH + slot_place(ring, use))

#define rounds_of(call) ((call) == 0 -> 2 : 1 + (call) % 2)
#define sends(call, writer, reader) \
  ((writer) != (reader) && ((call) != 1 || (writer) == 0) && ((call) != 2 || (reader) == 1))
#define datum_of(call, round, writer, reader) (1 + ((call) * 2 + (round)) * RINGS + ring(writer, reader))

// Finds the peers to which a chunk goes in this round and from which one comes. The counts determine the slots.
inline prepare() {
  for (peer : 0 .. RANKS - 1) {
    outgoing[peer] = sends(call, me, peer) && round < rounds_of(call);
    incoming[peer] = sends(call, peer, me) && round >= lead_of(call);
    if
    :: outgoing[peer] -> wait_for(has_room(ring(me, peer)))
    :: else -> skip
    fi;
#ifdef BULK
    if
    :: incoming[peer] ->
       take(flag_place(ring(peer, me), taken[ring(peer, me)]), flag_of(taken[ring(peer, me)], 0), datum)
    :: else -> skip
    fi
#endif
  }
}

inline push() {
  for (peer : 0 .. RANKS - 1) {
    if
    :: outgoing[peer] ->
       printf("rank %d: use %d towards %d is call %d, round %d\n", me, sent[ring(me, peer)], peer, call, round);
       assert_unread(ring(me, peer));
       store(slot_place(ring(me, peer), sent[ring(me, peer)]), datum_of(call, round, me, peer),
             flag_of(sent[ring(me, peer)], 0))
    :: else -> skip
    fi
  }
}

inline take_from(a_peer) {
  atomic {
#ifdef BULK
    datum = memory[slot_place(ring(a_peer, me), taken[ring(a_peer, me)])].datum;
#else
    take(slot_place(ring(a_peer, me), taken[ring(a_peer, me)]), flag_of(taken[ring(a_peer, me)], 0), datum);
#endif
    printf("rank %d: call %d, round %d from %d is datum %d\n", me, call, round - lead_of(call), a_peer, datum);
    assert(datum == datum_of(call, round - lead_of(call), a_peer, me));
    datum = 0;
    incoming[a_peer] = 0;
    taken[ring(a_peer, me)]++;
    finished[ring(a_peer, me)]++
  }
}

// In any order, because each warp has its own pieces.
inline combine() {
  do
  :: incoming[0] -> take_from(0)
  :: incoming[1] -> take_from(1)
  :: incoming[2] -> take_from(2)
  :: !incoming[0] && !incoming[1] && !incoming[2] -> break
  od
}

inline publish() {
  for (peer : 0 .. RANKS - 1) {
    if
    :: outgoing[peer] ->
#ifdef BULK
       due[ring(me, peer)] = 1;
#endif
       sent[ring(me, peer)]++;
       outgoing[peer] = 0
    :: else -> skip
    fi
  }
#ifdef BULK
  is_due[me] = 1
#endif
}

#ifdef BULK
// The threads that publish flags while others prepare the next round.
proctype FlagPublisher(byte me) {
  byte peer;
  do
  :: atomic {
       is_due[me] ->
#ifndef NO_FENCE
       arrive_all(ring(me, 0) * DEPTH, RANKS * DEPTH);
       arrive_all((RINGS + ring(me, 0)) * DEPTH, RANKS * DEPTH);
#endif
       for (peer : 0 .. RANKS - 1) {
         if
         :: due[ring(me, peer)] ->
            store(flag_place(ring(me, peer), sent[ring(me, peer)] - 1), 0, flag_of(sent[ring(me, peer)] - 1, 0));
            due[ring(me, peer)] = 0
         :: else -> skip
         fi
       }
       is_due[me] = 0
     }
  :: has_left[me] && !is_due[me] -> break
  od
}
#endif

inline give_back_all() {
  for (peer : 0 .. RANKS - 1) {
    give_back(ring(peer, me))
  }
}

// Steps up to the next wait are merged into one: no peer can observe the difference, and nothing that a peer does
// meanwhile changes them.
proctype Rank(byte me) {
  byte call, round, peer, datum;
  bit outgoing[RANKS], incoming[RANKS];
  for (call : 0 .. CALLS - 1) {
#ifndef NO_GIVE_BACK_AT_START
    atomic { give_back_all() };
#endif
    for (round : 0 .. rounds_of(call) - 1 + lead_of(call)) {
#ifdef TAKE_BEFORE_SENDING
      atomic { prepare() };
      combine();
      atomic { push() };
#else
      atomic {
        prepare();
#ifdef BULK
        wait_for(!is_due[me]);  // the barrier
#endif
        push()
      };
      combine();
#endif
      atomic {
        if
        :: round < rounds_of(call) - 1 + lead_of(call) -> give_back_all()
        :: else -> skip  // the next launch does it
        fi
      };
      atomic { publish() }
    }
  }
gave_up:
#ifdef BULK
  has_left[me] = 1
#endif
}

#ifdef LINES
// Either no rank gives up, or one does at any time and its host tells the others.
proctype Host() {
  if
  :: skip
  :: late = 0
  :: late = 1
  :: late = 2
  fi;
  if
  :: late < RANKS -> aborted = 1
  :: else -> skip
  fi
}
#endif

init {
  atomic {
    run Rank(0);
    run Rank(1);
    run Rank(2);
#ifdef BULK
    run FlagPublisher(0);
    run FlagPublisher(1);
    run FlagPublisher(2)
#endif
  };
#ifdef LINES
  run Host()
#endif
}
