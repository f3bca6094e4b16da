// Two hops between three ranks (run_two_hop): contributions go to the owner of a slice, and results from there to the
// receivers. Round t is contributed while round t - 1 is reduced and round t - 2 received. An all-reduce, a reduce and
// a broadcast follow one another. Contributions and results share the slots of a ring, in an order that writer and
// reader both derive; four slots are just enough. Through host memory, results use a ring that all ranks read.
// variants: LINES BULK MULTICAST
// mutants: NO_CREDIT=assertion THREE_SLOTS=deadlock RESULT_BEFORE_CONTRIBUTION=assertion
// mutants: BULK:NO_FENCE=assertion
#define RANKS 3
#ifdef THREE_SLOTS
#define DEPTH 3
#else
#define DEPTH 4
#endif
#define PAIRS (RANKS * RANKS)
#define RINGS (2 * PAIRS)
#ifdef MULTICAST
#define CALLS 2  // through host memory a broadcast uses one hop
#else
#define CALLS 3
#endif
#define ROUNDS 3
#ifdef BULK
#define PLACES (2 * PAIRS * DEPTH)
#else
#define PLACES ((PAIRS + RANKS) * DEPTH)
#endif
#define NEVER_ABORTED  // one_hop.pml models giving up
#include "memory.inc"
#include "lane.inc"

// Rings are ordered by writer, so that what one rank stores to is contiguous: first the slots of all ranks, then their
// flags. Rings that all ranks read have counts for each reader, but only one set of slots.
#define ring(writer, reader) ((writer) * RANKS + (reader))
#define slot_place(ring, use) ((ring) * DEPTH + slot_of(use))
#define flag_place(ring, use) (PAIRS * DEPTH + slot_place(ring, use))
#ifdef MULTICAST
#define is_multicast (call == 0)  // an all-reduce, whose results go to all ranks
#define result_ring(writer, reader) (ring(writer, reader) + PAIRS * is_multicast)
#define result_place(writer, reader, use) \
  ((is_multicast * (PAIRS + (writer)) + (1 - is_multicast) * ring(writer, reader)) * DEPTH + slot_of(use))
#else
#define is_multicast false
#define result_ring(writer, reader) ring(writer, reader)
#define result_place(writer, reader, use) slot_place(ring(writer, reader), use)
#endif

// The calls are an all-reduce, a reduce to rank 0 and a broadcast from rank 1.
#define contributes(call, rank) ((call) != 2 || (rank) == 1)
#define owns(call, rank) ((call) == 0 || (call) == 1 && (rank) != 0 || (call) == 2 && (rank) != 1)
#define receives(call, rank) ((call) == 0 || (call) == 1 && (rank) == 0 || (call) == 2 && (rank) != 1)
// The last rank's slice is shorter.
#define rounds_of(call, owner) ((call) == 0 -> ROUNDS - ((owner) == 2) : 3 - (call))
#ifdef BULK
#define last_of(call, rank) (rounds_of(call, 0) + receives(call, rank))
#else
#define last_of(call, rank) (rounds_of(call, 0) + 1)
#endif
#define has_chunk(call, owner, round) (owns(call, owner) && (round) >= 0 && (round) < rounds_of(call, owner))
#define contribution_of(call, round, owner, rank) (1 + (((call) * ROUNDS + (round)) * RANKS + (owner)) * RANKS + (rank))
#define result_of(call, round, owner) (128 + ((call) * ROUNDS + (round)) * RANKS + (owner))

// The uses of slots that this iteration fills and reads, by peer; NONE: it uses no slot.
#define NONE 255
typedef Uses { byte contribution_out, result_out, contribution_in, result_in };

inline reserve_contribution() {
  if
  :: me != peer && contributes(call, me) && has_chunk(call, peer, iteration) ->
     wait_for(has_room(ring(me, peer)));
     assert_unread(ring(me, peer));
     uses[peer].contribution_out = sent[ring(me, peer)];
     sent[ring(me, peer)]++
  :: else -> skip
  fi
}

inline reserve_result() {
  if
  :: me != peer && receives(call, peer) && has_chunk(call, me, iteration - 1) ->
     wait_for(has_room(result_ring(me, peer)));
     assert_unread(result_ring(me, peer));
     uses[peer].result_out = sent[result_ring(me, peer)];
     sent[result_ring(me, peer)]++
  :: else -> skip
  fi
}

inline expect() {
  if
  :: me != peer && contributes(call, peer) && has_chunk(call, me, iteration - 1) ->
     uses[peer].contribution_in = taken[ring(peer, me)];
     taken[ring(peer, me)]++
  :: else -> skip
  fi;
  if
  :: me != peer && receives(call, me) && has_chunk(call, peer, iteration - 2) ->
     uses[peer].result_in = taken[result_ring(peer, me)];
     taken[result_ring(peer, me)]++
  :: else -> skip
  fi
}

#ifdef BULK
inline wait_for_chunk(use) {
  if
  :: use != NONE -> take(flag_place(ring(peer, me), use), flag_of(use, 0), datum)
  :: else -> skip
  fi
}
#else
#define wait_for_chunk(use) skip
#endif

inline prepare() {
  for (peer : 0 .. RANKS - 1) {
#ifdef RESULT_BEFORE_CONTRIBUTION
    reserve_result();
    reserve_contribution();
#else
    reserve_contribution();
    reserve_result();
#endif
    expect();
    wait_for_chunk(uses[peer].contribution_in);
    wait_for_chunk(uses[peer].result_in)
  }
}

inline push() {
  for (peer : 0 .. RANKS - 1) {
    if
    :: uses[peer].contribution_out != NONE ->
       printf("rank %d: use %d towards %d is a contribution: call %d, round %d\n", me, uses[peer].contribution_out,
              peer, call, iteration);
       store(slot_place(ring(me, peer), uses[peer].contribution_out), contribution_of(call, iteration, peer, me),
             flag_of(uses[peer].contribution_out, 0))
    :: else -> skip
    fi
  }
}

inline receive(place, use) {
#ifdef BULK
  datum = memory[place].datum;
#else
  take(place, flag_of(use, 0), datum);
#endif
  printf("rank %d: call %d, iteration %d: from %d comes datum %d\n", me, call, iteration, peer, datum)
}

// Contributions are read in rank order.
inline reduce_own() {
  for (peer : 0 .. RANKS - 1) {
    atomic {
      if
      :: uses[peer].contribution_in != NONE ->
         receive(slot_place(ring(peer, me), uses[peer].contribution_in), uses[peer].contribution_in);
         assert(datum == contribution_of(call, iteration - 1, me, peer));
         finished[ring(peer, me)]++;
         datum = 0
      :: else -> skip
      fi
    }
  }
  atomic {
    for (peer : 0 .. RANKS - 1) {
      if
      :: uses[peer].result_out != NONE && !(is_multicast && peer != (me + 1) % RANKS) ->
         printf("rank %d: use %d towards %d is a result: call %d, round %d\n", me, uses[peer].result_out, peer, call,
                iteration - 1);
         store(result_place(me, peer, uses[peer].result_out), result_of(call, iteration - 1, me),
               flag_of(uses[peer].result_out, 0))
      :: else -> skip
      fi
    }
  }
}

inline collect() {
  for (peer : 0 .. RANKS - 1) {
    atomic {
      if
      :: uses[peer].result_in != NONE ->
         receive(result_place(peer, me, uses[peer].result_in), uses[peer].result_in);
         assert(datum == result_of(call, iteration - 2, peer));
         finished[result_ring(peer, me)]++;
         datum = 0
      :: else -> skip
      fi
    }
  }
}

#ifdef BULK
// The uses that are to be published, and the ranks that have such.
Uses due[PAIRS];
bit is_due[RANKS], has_left[RANKS];

inline publish() {
  for (peer : 0 .. RANKS - 1) {
    due[ring(me, peer)].contribution_out = uses[peer].contribution_out;
    due[ring(me, peer)].result_out = uses[peer].result_out
  }
  is_due[me] = 1
}

inline publish_use(use) {
  if
  :: use != NONE ->
     store(flag_place(ring(me, peer), use), 0, flag_of(use, 0));
     use = NONE
  :: else -> skip
  fi
}

// The threads that publish flags while others prepare the next iteration.
proctype FlagPublisher(byte me) {
  byte peer;
  do
  :: atomic {
       is_due[me] ->
#ifndef NO_FENCE
       arrive_all(ring(me, 0) * DEPTH, RANKS * DEPTH);
       arrive_all((PAIRS + ring(me, 0)) * DEPTH, RANKS * DEPTH);
#endif
       for (peer : 0 .. RANKS - 1) {
         publish_use(due[ring(me, peer)].contribution_out);
         publish_use(due[ring(me, peer)].result_out)
       }
       is_due[me] = 0
     }
  :: has_left[me] && !is_due[me] -> break
  od
}
#endif

inline forget_uses() {
  for (peer : 0 .. RANKS - 1) {
    uses[peer].contribution_out = NONE;
    uses[peer].result_out = NONE;
    uses[peer].contribution_in = NONE;
    uses[peer].result_in = NONE
  }
}

inline give_back_all() {
  for (peer : 0 .. RANKS - 1) {
    give_back(ring(peer, me));
    give_back(result_ring(peer, me))
  }
}

// Steps up to the next wait are merged into one: no peer can observe the difference, and nothing that a peer does
// meanwhile changes them.
proctype Rank(byte me) {
  byte call, peer, datum;
  short iteration;
  Uses uses[RANKS];
  atomic { forget_uses() };
  for (call : 0 .. CALLS - 1) {
    atomic { give_back_all() };
    for (iteration : 0 .. last_of(call, me)) {
      atomic {
        prepare();
#ifdef BULK
        wait_for(!is_due[me]);  // the barrier
#endif
        push()
      };
      reduce_own();
      collect();
      atomic {
        if
        :: iteration < last_of(call, me) -> give_back_all()
        :: else -> skip  // the next launch does it
        fi
      };
      atomic {
#ifdef BULK
        publish();
#endif
        forget_uses()
      }
    }
  }
#ifdef BULK
  has_left[me] = 1
#endif
}

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
  }
}
