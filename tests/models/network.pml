// A GPU rank and its proxy (src/kernels/network.cuh): blocks that together bring rounds into slots of host memory, and
// a thread of the host that carries each round to other hosts and reports this by one counter. A block is up to DEPTH
// rounds ahead of what has been carried out and, if data arrives, of what it has taken. There are four calls, of which
// the second has only one block; all counters continue from call to call. The first call has two launches, between
// which the proxy continues with what is on its way. In the second and the third call nothing arrives: they end once
// all data is in slots, so the next calls may find slots, and with SHORT also the place of a call's description, still
// in use. SHORT calls report their description together with their first round. With MESSAGES the third call has no
// rounds, but uses all slots for pieces, as messages do. Messages wait for all calls before, and later rounds wait for
// messages. That call ends once all its data is in slots or, with ANSWERED, has been sent. Other hosts are not
// modelled: the proxy may stop at any time, and then the abort word is raised.
//
// A block is one thread here; block.pml models its threads. What a block brings and takes in one step may happen in any
// order; it reports when both are done.
// variants: ROUNDS SHORT MESSAGES ANSWERED
// mutants: NO_FENCE=assertion NO_FENCE_OF_CALL=assertion NO_RELEASE=assertion
// mutants: NO_ACQUIRE_OF_CALL=assertion NO_ACQUIRE_OF_SHARES=assertion NO_ACQUIRE_OF_RESULTS=assertion
// mutants: ONE_BLOCK_IS_ENOUGH=assertion PUSHED_BEFORE_TAKING=assertion TOO_FAR_AHEAD=assertion
// mutants: DONE_BEFORE_READING=assertion DONE_BEFORE_WRITING=assertion
// mutants: ROUNDS_NOT_KEPT=assertion CALLS_NOT_KEPT=deadlock KEPT_BEFORE_ALL_HAVE_READ=deadlock
// mutants: PUSHES_COUNTED_BY_BLOCK=deadlock NO_AFTER_PREDECESSOR=assertion
// mutants: NO_ABORT=deadlock GO_ON_AFTER_GIVING_UP=assertion
// mutants: KEPT_BY_EACH_LAUNCH=deadlock STEP_LEFT_OUT=deadlock STEP_TWICE=assertion
// mutants: SLOT_NOT_AWAITED=assertion SHORT:ONE_MORE_DESCRIBED=assertion SHORT:TAKEN_FOR_CARRIED_OUT=assertion
// mutants: MESSAGES:MESSAGES_NOT_AWAITED=assertion MESSAGES:ROUNDS_NOT_AWAITED=assertion
// mutants: MESSAGES:CARRIED_OUT_WHEN_HEARD=assertion
#define BLOCKS 2
#define PROXY BLOCKS
#define DEPTH 2
#define CALLS 4
#define SLOTS (BLOCKS * DEPTH)
#define PLACES (2 * SLOTS + DEPTH)
bit has_stopped;  // the proxy has stopped
#define deadline_passed (me == PROXY && has_stopped)
#include "memory.inc"

#ifdef ANSWERED  // the block waits for the answer to these messages
#define MESSAGES
#endif
#ifdef MESSAGES
#define is_messages(call) ((call) == 2)
#else
#define is_messages(call) false
#endif
#ifdef SHORT
#define rounds_of_third 1
#else
#define rounds_of_third (is_messages(2) -> 0 : 2)
#endif
#define rounds_of(call) ((call) == 0 -> 3 : ((call) == 2 -> rounds_of_third : 1))
#ifdef ANSWERED
#define is_awaited(call) ((call) != 1)
#else
#define is_awaited(call) ((call) == 0 || (call) == 3)
#endif
#define blocks_of(call) ((call) == 1 -> 1 : 2)
#define LAUNCHES (CALLS + 1)
#define call_of(launch) ((launch) < 2 -> 0 : (launch) - 1)
#define CUT 2  // number of steps of the first launch; the second launch makes the call's other steps
#if defined(STEP_LEFT_OUT)
#define AFTER_CUT (CUT + 1)
#elif defined(STEP_TWICE)
#define AFTER_CUT (CUT - 1)
#else
#define AFTER_CUT CUT
#endif
#define first_step_of(launch) ((launch) == 1 -> AFTER_CUT : 0)
#define steps_of(call) (rounds_of(call) + (is_awaited(call) && !is_messages(call) -> LEAD : 0))
#define end_step_of(launch) ((launch) == 0 -> CUT : steps_of(call_of(launch)))
#define share_place(block, round) ((block) * DEPTH + (round) % DEPTH)
#define result_place(block, round) (SLOTS + share_place(block, round))
#define call_place(call) (2 * SLOTS + (call) % DEPTH)
#define datum_of(call, round, block) (1 + ((call) * 4 + (round)) * BLOCKS + (block))
#define RESULT 64  // is added to the data that arrives

// Words of host memory that only count up: reading an old value is like reading earlier.
byte posted, carried_out, done, pushed[BLOCKS], moved, ready;
// In the device's memory.
byte calls, rounds, through;
byte messages, known;  // number of calls up to the last messages, and of those known to have been carried out
bit is_over;  // a launch has given up
byte ended[LAUNCHES];  // number of ended blocks, of each launch
// What is still to be read. Not part of the protocol, but what it is checked against.
bit is_unread[PLACES];

#ifdef NO_AFTER_PREDECESSOR
#define predecessor_has_ended (launch == 0 || ended[launch - 1] > 0)
#else
#define predecessor_has_ended (launch == 0 || ended[launch - 1] == blocks_of(call_of(launch - 1)))
#endif

inline keep() {
#ifndef ROUNDS_NOT_KEPT
  rounds = first + rounds_of(call);
#endif
  if
#ifdef TAKEN_FOR_CARRIED_OUT
  :: true -> known = number
#else
  :: is_awaited(call) -> known = number
  :: else -> skip
#endif
  fi;
#ifdef MESSAGES
  if
  :: is_messages(call) -> messages = number
  :: else -> skip
  fi;
#endif
#ifndef CALLS_NOT_KEPT
  calls = number
#else
  skip
#endif
}

// Describes the call. SHORT calls report that later, with their first round.
inline post() {
  assert(!is_unread[call_place(call)]);
  is_unread[call_place(call)] = 1;
  store(call_place(call), call + 1, 0);
#ifndef SHORT
#ifndef NO_FENCE_OF_CALL
  arrive_all(call_place(call), 1);
#endif
  posted = number
#endif
}

#define is_carried_out(least) (known >= (least) || carried_out >= (least))
#ifdef ONE_MORE_DESCRIBED
#define may_be_described is_carried_out(calls - DEPTH)
#else
#define may_be_described is_carried_out(calls + 1 - DEPTH)
#endif
#ifdef MESSAGES_NOT_AWAITED
#define may_follow true
#else
#define may_follow is_carried_out(messages)
#endif

// Waits until the call may be described and its slots hold nothing of another kind.
inline await_room() {
#ifndef ROUNDS_NOT_AWAITED
  if
  :: is_messages(call) -> wait_for(is_carried_out(calls))
  :: else -> skip
  fi;
#endif
  wait_for(may_be_described && may_follow)
}

inline begin_launch() {
  predecessor_has_ended;
#ifndef GO_ON_AFTER_GIVING_UP
  if
  :: is_over -> goto gave_up
  :: else -> skip
  fi;
#endif
  await_room();
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

#ifdef SLOT_NOT_AWAITED
#define waits takes
#else
#define waits (fills || takes)
#endif

inline prepare() {
  fills = step < rounds_of(call);
  takes = step >= LEAD && step - LEAD < rounds_of(call);
  if
  :: waits ->
#ifdef NO_ACQUIRE_OF_RESULTS
     if
     :: takes -> load_result()
     :: else -> skip
     fi;
#endif
     wait_for(done + LEAD > filled)  // then `taken`, if there is one, has been carried out, too
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
#ifdef SHORT
       ;
       if
       :: me == 0 && step == 0 ->
#ifndef NO_FENCE_OF_CALL
          arrive_all(call_place(call), 1);
#endif
          posted = number
       :: else -> skip
       fi
#endif
    :: else -> skip
    fi
  }
}

// Called by one block. Uses the first slots, whichever rounds were there.
inline send_messages() {
  atomic {
    for (piece : 0 .. DEPTH - 1) {
      assert(!is_unread[share_place(0, piece)]);
      is_unread[share_place(0, piece)] = 1;
      store(share_place(0, piece), datum_of(call, piece, 0), 0)
    }
    piece = 0
  };
  atomic {
#ifndef NO_FENCE
    arrive_all(share_place(0, 0), DEPTH);
#endif
    moved = DEPTH
  }
#ifdef ANSWERED
  ;
  atomic { wait_for(ready == DEPTH) }
#endif
}

#ifdef PUSHED_BEFORE_TAKING
#define is_through (!fills)
#else
#define is_through (!fills && !takes)
#endif

#ifdef KEPT_BY_EACH_LAUNCH
#define is_last true
#else
#define is_last (launch != 0)  // the last launch of its call
#endif

proctype Block(byte me) {
  byte launch, call, step, first, number, datum, piece;
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
#ifdef MESSAGES
       if
       :: is_messages(call) && me == 0 -> send_messages()
       :: else -> skip
       fi;
#endif
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

// A result may be written even if nobody takes it.
inline write_result() {
  atomic {
    assert(!is_unread[result_place(block, total)]);
    is_unread[result_place(block, total)] = is_awaited(call);
    store(result_place(block, total), datum_of(call, round, block) + RESULT, 0)
  }
}

inline tell_done() { done = total + 1 }

inline carry_messages() {
  atomic { wait_for(moved == DEPTH) };
  for (block : 0 .. DEPTH - 1) {
    atomic {
      assert(memory[share_place(0, block)].datum == datum_of(call, block, 0));
      is_unread[share_place(0, block)] = 0;
      ready++
    }
  }
}

proctype Proxy(byte me) {
  byte call, round, total, block, described;
  byte shares[BLOCKS];
  for (call : 0 .. CALLS - 1) {
    atomic {
#ifdef NO_ACQUIRE_OF_CALL
      described = memory[call_place(call)].datum;
#endif
      wait_for(posted > call);
#ifndef NO_ACQUIRE_OF_CALL
      described = memory[call_place(call)].datum;
#endif
      assert(described == call + 1);
      is_unread[call_place(call)] = 0
    };
#ifdef CARRIED_OUT_WHEN_HEARD
    carried_out = call + 1;
#endif
#ifdef MESSAGES
    if
    :: is_messages(call) -> carry_messages()
    :: else -> skip
    fi;
#endif
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
    };
    carried_out = call + 1
  }
gave_up:
}

// The proxy stops or something else fails at any time, or nothing does.
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
