// GPUs that upload chunks to host memory, and the CPU threads that add them up (executor/cpu_reducers, and
// bulk_exchange.cuh as configured by launch_to_reducers). Two ranks make two reductions on two lanes with two slots
// each. A GPU's kernel fills its own slots, LEAD rounds ahead of what it takes. The thread that adds up a lane writes
// one result, which both GPUs read, and tells each GPU by a separate flag. Each lane has its own thread (LANE_EACH), or
// one thread handles both (BOTH_LANES). In some runs one rank's second reduction differs from the other's.
//
// Kernels are ahead by fewer rounds than there are slots. So before a GPU fills a slot again, it has taken the result
// of the slot's previous use, and whoever sees the slot filled knows that the result's slot is free: flags alone give
// all the guarantees of the counters. FAR_AHEAD goes as far ahead as the counters allow, so that only they hold back
// both sides. There are no failures in that variant.
// variants: LANE_EACH BOTH_LANES FAR_AHEAD
// mutants: NO_FENCE=assertion NO_RELEASE=assertion NO_ACQUIRE_OF_CHUNKS=assertion NO_ACQUIRE_OF_RESULTS=assertion
// mutants: ONE_GPU_IS_ENOUGH=assertion FLAG_WITHOUT_USE=assertion FLAG_WITHOUT_CALL=assertion NO_ABORT=deadlock
// mutants: ONE_FLAG_FOR_ALL=deadlock BOTH_LANES:NO_RELEASE=assertion
// mutants: FAR_AHEAD:NO_CREDIT_OF_CHUNKS=assertion FAR_AHEAD:NO_CREDIT_OF_RESULTS=assertion
// mutants: FAR_AHEAD:ONE_RETURN_IS_ENOUGH=assertion FAR_AHEAD:RETURN_BEFORE_READING=assertion
// mutants: FAR_AHEAD:GIVE_BACK_BEFORE_READING=assertion FAR_AHEAD:TOO_FAR_AHEAD=deadlock
#define RANKS 2
#define LANES 2
#define DEPTH 2
#define CALLS 2
#if defined(TOO_FAR_AHEAD)
#define LEAD (2 * DEPTH)
#define rounds_of(call, lane) (5 - (call) - (lane))
#elif defined(FAR_AHEAD)
#define LEAD (2 * DEPTH - 1)
#define rounds_of(call, lane) (3 - 2 * (call) - (lane))
#else
#define LEAD (DEPTH - 1)
#define rounds_of(call, lane) (3 - (call) - (lane))
#endif
#define RINGS (2 * RANKS * LANES)
#define CHUNKS (RANKS * LANES * DEPTH)
#ifdef FAR_AHEAD
#define NEVER_ABORTED
#endif
#define PLACES (3 * CHUNKS + LANES * DEPTH)
#include "memory.inc"
#include "lane.inc"

// Rings are ordered by writer, so that what a GPU stores to is contiguous: its chunks, and its flags.
#define up(rank, lane) ((rank) * LANES + (lane))
#define down(rank, lane) (RANKS * LANES + up(rank, lane))
#define chunk_place(rank, lane, use) (up(rank, lane) * DEPTH + slot_of(use))
#define chunk_flag_place(rank, lane, use) (CHUNKS + chunk_place(rank, lane, use))
#define result_flag_place(rank, lane, use) (2 * CHUNKS + chunk_place(rank, lane, use))
#define result_place(lane, use) (3 * CHUNKS + (lane) * DEPTH + slot_of(use))
#define OF_ANOTHER_CALL 64
#define datum_of(rank, lane, use, differs) \
  (1 + ((use) * LANES + (lane)) * RANKS + (rank) + ((differs) -> OF_ANOTHER_CALL : 0))
#define sum_of(lane, use, differs) (datum_of(0, lane, use, differs) + datum_of(1, lane, use, differs))

byte other_call = CALLS;  // rank 1's call that differs from rank 0's
byte due[RINGS];          // the flag of a chunk that is to be published
bit is_due[RANKS], has_left[RANKS];
#define differs_in(rank, call) ((rank) == 1 && (call) == other_call)

#ifdef NO_CREDIT_OF_CHUNKS
#define has_chunk_slot(lane) true
#else
#define has_chunk_slot(lane) has_room(up(me, lane))
#endif

// Finds the lanes on which a chunk is uploaded and on which a result is taken in this round.
inline prepare() {
  for (lane : 0 .. LANES - 1) {
    outgoing[lane] = round < rounds_of(call, lane);
    incoming[lane] = round >= LEAD && round - LEAD < rounds_of(call, lane);
    if
    :: outgoing[lane] -> wait_for(has_chunk_slot(lane))
    :: else -> skip
    fi;
    if
    :: incoming[lane] ->
#ifdef NO_ACQUIRE_OF_RESULTS
       result[lane] = memory[result_place(lane, taken[down(me, lane)])].datum;  // loaded before the flag is seen
#endif
       take(result_flag_place(me, lane, taken[down(me, lane)]), flag_of(taken[down(me, lane)], differs_in(me, call)),
            nothing)
#ifdef GIVE_BACK_BEFORE_READING
       ;
       returned[down(me, lane)] = taken[down(me, lane)] + 1
#endif
    :: else -> skip
    fi
  }
}

inline push() {
  for (lane : 0 .. LANES - 1) {
    if
    :: outgoing[lane] ->
       printf("GPU %d: use %d of lane %d is of call %d\n", me, sent[up(me, lane)], lane, call);
       assert_unread(up(me, lane));
       store(chunk_place(me, lane, sent[up(me, lane)]),
             datum_of(me, lane, sent[up(me, lane)], differs_in(me, call)), 0)
    :: else -> skip
    fi
  }
}

inline take_result(a_lane) {
  atomic {
#ifndef NO_ACQUIRE_OF_RESULTS
    result[a_lane] = memory[result_place(a_lane, taken[down(me, a_lane)])].datum;
#endif
    printf("GPU %d: result %d of lane %d is datum %d\n", me, taken[down(me, a_lane)], a_lane, result[a_lane]);
    assert(result[a_lane] == sum_of(a_lane, taken[down(me, a_lane)], differs_in(me, call)));
    result[a_lane] = 0;
    incoming[a_lane] = 0;
    taken[down(me, a_lane)]++;
    finished[down(me, a_lane)]++
  }
}

// In any order, because each warp has its own pieces.
inline combine() {
  do
  :: incoming[0] -> take_result(0)
  :: incoming[1] -> take_result(1)
  :: !incoming[0] && !incoming[1] -> break
  od
}

inline publish() {
  for (lane : 0 .. LANES - 1) {
    if
    :: outgoing[lane] ->
       due[up(me, lane)] = flag_of(sent[up(me, lane)], differs_in(me, call));
       sent[up(me, lane)]++;
       outgoing[lane] = 0
    :: else -> skip
    fi
  }
  is_due[me] = 1
}

// The threads that publish flags while others prepare the next round.
proctype FlagPublisher(byte me) {
  byte lane;
  do
  :: atomic {
       is_due[me] ->
#ifndef NO_FENCE
       arrive_all(chunk_place(me, 0, 0), LANES * DEPTH);
       arrive_all(chunk_flag_place(me, 0, 0), LANES * DEPTH);
#endif
       for (lane : 0 .. LANES - 1) {
         if
         :: due[up(me, lane)] != 0 ->
            store(chunk_flag_place(me, lane, sent[up(me, lane)] - 1), 0, due[up(me, lane)]);
            due[up(me, lane)] = 0
         :: else -> skip
         fi
       }
       is_due[me] = 0
     }
  :: has_left[me] && !is_due[me] -> break
  od
}

inline give_back_all() {
  give_back(down(me, 0));
  give_back(down(me, 1))
}

// A block that serves both lanes. Steps up to the next wait are merged into one: no thread can observe the difference.
proctype Gpu(byte me) {
  byte call, round, lane, nothing;
  byte result[LANES];
  bit outgoing[LANES], incoming[LANES];
  for (call : 0 .. CALLS - 1) {
    atomic { give_back_all() };
    for (round : 0 .. rounds_of(call, 0) - 1 + LEAD) {
      atomic {
        prepare();
        wait_for(!is_due[me]);  // the barrier
        if
        :: push(); lane = 0
        :: lane = LANES  // a block with an odd number takes before it sends
        fi
      };
      combine();
      atomic {
        if
        :: lane == LANES -> push()
        :: else -> skip
        fi;
        if
        :: round < rounds_of(call, 0) - 1 + LEAD -> give_back_all()
        :: else -> skip  // the next launch does it
        fi
      };
      atomic {
        publish();
        lane = 0
      }
    }
  }
gave_up:
  has_left[me] = 1
}

#define uses(lane) sent[down(0, lane)]
#define is_left(lane) (round[lane] < rounds_of(call, lane))
#define is_there(place, a_mark) \
  (memory[place].mark == (a_mark) || memory[place].travels && memory[place].next_mark == (a_mark))
#define has_come(rank, lane) \
  is_there(chunk_flag_place(rank, lane, uses(lane)), flag_of(uses(lane), differs_in(me, call)))
#ifdef ONE_GPU_IS_ENOUGH
#define all_have_come(lane) has_come(0, lane)
#else
#define all_have_come(lane) (has_come(0, lane) && has_come(1, lane))
#endif
#if defined(NO_CREDIT_OF_RESULTS)
#define has_result_slot(lane) true
#elif defined(ONE_RETURN_IS_ENOUGH)
#define has_result_slot(lane) has_room(down(0, lane))
#else
#define has_result_slot(lane) (has_room(down(0, lane)) && has_room(down(1, lane)))
#endif
#define is_ready(lane) (is_left(lane) && all_have_come(lane) && has_result_slot(lane))

inline see(rank, lane) {
  take(chunk_flag_place(rank, lane, uses(lane)), flag_of(uses(lane), differs_in(me, call)), nothing)
}

inline load(rank, lane, use) {
  chunk[(lane) * RANKS + (rank)] = memory[chunk_place(rank, lane, use)].datum
}

inline add_chunk(rank, lane) {
#ifndef NO_ACQUIRE_OF_CHUNKS
  load(rank, lane, uses(lane));
#endif
  printf("thread %d: use %d of lane %d by GPU %d is datum %d\n", me, uses(lane), lane, rank,
         chunk[(lane) * RANKS + (rank)]);
  assert(chunk[(lane) * RANKS + (rank)] == datum_of(rank, lane, uses(lane), differs_in(me, call)));
  sum = sum + chunk[(lane) * RANKS + (rank)];
  chunk[(lane) * RANKS + (rank)] = 0;
  finished[up(rank, lane)]++
}

inline tell(rank, lane) {
  store(result_flag_place(rank, lane, uses(lane)), 0, flag_of(uses(lane), differs_in(me, call)));
  returned[up(rank, lane)] = uses(lane) + 1
}

// Called when is_ready.
inline reduce_chunk(lane) {
  atomic { add_chunk(0, lane) };
  atomic {
    add_chunk(1, lane);
    assert_unread(down(0, lane));
    assert_unread(down(1, lane));
    store(result_place(lane, uses(lane)), sum, 0);
    sum = 0
  };
  atomic {
#ifndef NO_RELEASE
    arrive_all(result_place(lane, 0), DEPTH);
#endif
    tell(0, lane)
  };
  atomic {
#ifndef ONE_FLAG_FOR_ALL
    tell(1, lane);
#endif
    sent[down(0, lane)]++;
    sent[down(1, lane)]++;
    round[lane]++
#ifdef NO_ACQUIRE_OF_CHUNKS
    ;
    load(0, lane, uses(lane));
    load(1, lane, uses(lane))
#endif
  }
}

inline look_at(lane) {
#ifndef ONE_GPU_IS_ENOUGH
  see(1, lane);
#endif
  see(0, lane)
#ifdef RETURN_BEFORE_READING
  ;
  returned[up(0, lane)] = uses(lane) + 1;
  returned[up(1, lane)] = uses(lane) + 1
#endif
}

// A thread that adds up the lanes from `first` to `last`.
proctype Thread(byte me; byte first; byte last) {
  byte call, nothing, sum;
  byte round[LANES];
  byte chunk[LANES * RANKS];
  for (call : 0 .. CALLS - 1) {
    do
    :: atomic { first == 0 && is_ready(0) -> look_at(0) };
       reduce_chunk(0)
    :: atomic { last == 1 && is_ready(1) -> look_at(1) };
       reduce_chunk(1)
    :: (first == 1 || !is_left(0)) && (last == 0 || !is_left(1)) -> break
    or_give_up
    od;
    atomic { round[0] = 0; round[1] = 0 }
  }
gave_up:
}

#ifndef NEVER_ABORTED
// A failure may happen at any time, or never. If the calls differ, the comparison on the host raises the abort word.
proctype Host() {
  if
  :: aborted = 1
  :: other_call == CALLS -> skip
  fi
}
#endif

init {
  atomic {
#ifndef NEVER_ABORTED
    if
    :: skip
    :: other_call = 1
    fi;
    run Host();
#endif
    run Gpu(0);
    run Gpu(1);
    run FlagPublisher(0);
    run FlagPublisher(1);
#ifdef BOTH_LANES
    run Thread(0, 0, 1)
#else
    run Thread(0, 0, 0);
    run Thread(1, 1, 1)
#endif
  }
}
