// A GPU rank and its proxy (src/kernels/network.cuh): blocks that bring rounds into slots of host memory together, and
// a thread of the host that carries each round out, to other hosts, and says so by one counter. A block is up to DEPTH
// rounds ahead of what it has taken. Three calls, of which the second has one block only: all counters go on. The first
// call has two launches, between which the proxy goes on with what is on its way. What other hosts do is no part of
// this: the proxy may stop at any time, and then the abort word is raised.
//
// A block is one thread here; block.pml has its threads. What it brings and takes in one step it may do in any order: it
// tells when both are done.
// mutants: NO_FENCE=assertion NO_FENCE_OF_CALL=assertion NO_RELEASE=assertion
// mutants: NO_ACQUIRE_OF_CALL=assertion NO_ACQUIRE_OF_SHARES=assertion NO_ACQUIRE_OF_RESULTS=assertion
// mutants: ONE_BLOCK_IS_ENOUGH=assertion PUSHED_BEFORE_TAKING=assertion TOO_FAR_AHEAD=assertion
// mutants: DONE_BEFORE_READING=assertion DONE_BEFORE_WRITING=assertion
// mutants: ROUNDS_NOT_KEPT=assertion CALLS_NOT_KEPT=deadlock KEPT_BEFORE_ALL_HAVE_READ=assertion
// mutants: PUSHES_COUNTED_BY_BLOCK=deadlock NO_AFTER_PREDECESSOR=assertion
// mutants: NO_ABORT=deadlock GO_ON_AFTER_GIVING_UP=assertion
// mutants: KEPT_BY_EACH_LAUNCH=deadlock STEP_LEFT_OUT=deadlock STEP_TWICE=assertion
#define BLOCKS 2
#define PROXY BLOCKS
#define DEPTH 2
#define CALLS 3
#define SLOTS (BLOCKS * DEPTH)
#define PLACES (2 * SLOTS + 1)
bit has_stopped;  // the proxy
#define deadline_passed (me == PROXY && has_stopped)
#include "memory.inc"

#define rounds_of(call) ((call) == 0 -> 3 : (call))
#define blocks_of(call) ((call) == 1 -> 1 : 2)
#define LAUNCHES (CALLS + 1)
#define call_of(launch) ((launch) < 2 -> 0 : (launch) - 1)
#define CUT 2  // steps of the first launch; the second makes the call's others
#if defined(STEP_LEFT_OUT)
#define AFTER_CUT (CUT + 1)
#elif defined(STEP_TWICE)
#define AFTER_CUT (CUT - 1)
#else
#define AFTER_CUT CUT
#endif
#define first_step_of(launch) ((launch) == 1 -> AFTER_CUT : 0)
#define end_step_of(launch) ((launch) == 0 -> CUT : rounds_of(call_of(launch)) + LEAD)
#define share_place(block, round) ((block) * DEPTH + (round) % DEPTH)
#define result_place(block, round) (SLOTS + share_place(block, round))
#define call_place (2 * SLOTS)
#define datum_of(call, round, block) (1 + ((call) * 4 + (round)) * BLOCKS + (block))
#define RESULT 64  // is added to what comes

// Words of host memory that count on: to see one late is to have been late.
byte posted, done, pushed[BLOCKS];
// In the device's memory.
byte calls, rounds, through;
bit is_over;        // a launch has given up
byte ended[LAUNCHES];  // blocks of each
// What is still to be read. No part of the protocol: what it must keep to.
bit is_unread[2 * SLOTS];

#ifdef NO_AFTER_PREDECESSOR
#define predecessor_has_ended (launch == 0 || ended[launch - 1] > 0)
#else
#define predecessor_has_ended (launch == 0 || ended[launch - 1] == blocks_of(call_of(launch - 1)))
#endif

inline keep() {
#ifndef ROUNDS_NOT_KEPT
  rounds = first + rounds_of(call);
#endif
#ifndef CALLS_NOT_KEPT
  calls = number
#else
  skip
#endif
}

inline post() {
  store(call_place, call + 1, 0);
#ifndef NO_FENCE_OF_CALL
  arrive_all(call_place, 1);
#endif
  posted = number
}

inline begin_launch() {
  predecessor_has_ended;
#ifndef GO_ON_AFTER_GIVING_UP
  if
  :: is_over -> goto gave_up
  :: else -> skip
  fi;
#endif
  first = rounds;
  number = calls + 1;
#ifdef KEPT_BEFORE_ALL_HAVE_READ
  keep();
#endif
  if
  :: me == 0 && first_step_of(launch) == 0 -> post()
  :: else -> skip
  fi
}

#ifdef TOO_FAR_AHEAD
#define LEAD (DEPTH + 1)
#else
#define LEAD DEPTH
#endif
#define filled (first + step)
#define taken (first + step - LEAD)

inline load_result() { datum = memory[result_place(me, taken)].datum }

inline prepare() {
  fills = step < rounds_of(call);
  takes = step >= LEAD && step - LEAD < rounds_of(call);
  if
  :: takes ->
#ifdef NO_ACQUIRE_OF_RESULTS
     load_result();
#endif
     wait_for(done > taken)
  :: else -> skip
  fi
}

inline fill() {
  atomic {
    assert(!is_unread[share_place(me, filled)]);
    is_unread[share_place(me, filled)] = 1;
    store(share_place(me, filled), datum_of(call, step, me), 0);
    fills = 0
  }
}

inline take_result() {
  atomic {
#ifndef NO_ACQUIRE_OF_RESULTS
    load_result();
#endif
    printf("block %d: takes %d of round %d\n", me, datum, taken);
    assert(datum == datum_of(call, step - LEAD, me) + RESULT);
    is_unread[result_place(me, taken)] = 0;
    datum = 0;
    takes = 0
  }
}

inline tell_pushed() {
  atomic {
    if
    :: step < rounds_of(call) ->
#ifndef NO_FENCE
       arrive_all(share_place(me, 0), DEPTH);
#endif
#ifdef PUSHES_COUNTED_BY_BLOCK
       pushed[me]++
#else
       pushed[me] = filled + 1
#endif
    :: else -> skip
    fi
  }
}

#ifdef PUSHED_BEFORE_TAKING
#define is_through (!fills)
#else
#define is_through (!fills && !takes)
#endif

#ifdef KEPT_BY_EACH_LAUNCH
#define is_last true
#else
#define is_last (launch != 0)  // of its call
#endif

proctype Block(byte me) {
  byte launch, call, step, first, number, datum;
  bit fills, takes;
  for (launch : 0 .. LAUNCHES - 1) {
    call = call_of(launch);
    if
    :: me < blocks_of(call) ->
       atomic { begin_launch() };
       for (step : first_step_of(launch) .. end_step_of(launch) - 1) {
         atomic { prepare() };
         do
         :: fills -> fill()
         :: takes -> take_result()
         :: is_through -> break
         od;
         tell_pushed()
#ifdef PUSHED_BEFORE_TAKING
         ;
         if
         :: takes -> take_result()
         :: else -> skip
         fi
#endif
       }
       goto ends;
gave_up:
       is_over = 1;
ends:
       atomic {
         through++;
         if
         :: through == blocks_of(call) ->
            through = 0;
#ifndef KEPT_BEFORE_ALL_HAVE_READ
            if
            :: !is_over && is_last -> keep()
            :: else -> skip
            fi
#endif
         :: else -> skip
         fi;
         ended[launch]++;
         step = 0;
         fills = 0;
         takes = 0
       }
    :: else -> skip
    fi
  }
}

inline load_shares() {
  shares[0] = memory[share_place(0, total)].datum;
  shares[1] = memory[share_place(1, total)].datum
}

inline await_shares() {
#ifdef NO_ACQUIRE_OF_SHARES
  load_shares();
#endif
  wait_for(pushed[0] > total);
#ifndef ONE_BLOCK_IS_ENOUGH
  if
  :: blocks_of(call) == 2 -> wait_for(pushed[1] > total)
  :: else -> skip
  fi
#endif
}

inline read_share() {
  atomic {
#ifndef NO_ACQUIRE_OF_SHARES
    load_shares();
#endif
    printf("proxy: %d by block %d in round %d\n", shares[block], block, total);
    assert(shares[block] == datum_of(call, round, block));
    is_unread[share_place(block, total)] = 0;
    shares[0] = 0;
    shares[1] = 0
  }
}

inline write_result() {
  atomic {
    assert(!is_unread[result_place(block, total)]);
    is_unread[result_place(block, total)] = 1;
    store(result_place(block, total), datum_of(call, round, block) + RESULT, 0)
  }
}

inline tell_done() { done = total + 1 }

proctype Proxy(byte me) {
  byte call, round, total, block, described;
  byte shares[BLOCKS];
  for (call : 0 .. CALLS - 1) {
    atomic {
#ifdef NO_ACQUIRE_OF_CALL
      described = memory[call_place].datum;
#endif
      wait_for(posted > call);
#ifndef NO_ACQUIRE_OF_CALL
      described = memory[call_place].datum;
#endif
      assert(described == call + 1)
    };
    for (round : 0 .. rounds_of(call) - 1) {
      atomic { await_shares() };
#ifdef DONE_BEFORE_READING
      tell_done();
#endif
      for (block : 0 .. blocks_of(call) - 1) {
        read_share()
      }
#ifdef DONE_BEFORE_WRITING
      tell_done();
#endif
      for (block : 0 .. blocks_of(call) - 1) {
        write_result()
      }
      atomic {
#ifndef NO_RELEASE
        arrive_all(SLOTS, SLOTS);
#endif
        tell_done();
        total++
      }
    }
  }
gave_up:
}

// The proxy stops, or something else fails, at any time, or nothing does.
proctype Host() {
  if
  :: has_stopped = 1 -> aborted = 1
  :: aborted = 1
  :: skip
  fi
}

init {
  atomic {
    run Block(0);
    run Block(1);
    run Proxy(PROXY);
    run Host()
  }
}
