// Piped kernels of two ranks (src/kernels/piped.cuh), with a stream in each direction. The sender puts contributions
// into the peer's slots; the owner (fetcher, adders and storer) takes contributions that arrive and puts results into
// slots between them; the receiver takes results. Each goes through the iterations as fast as it can, and all count the
// slots in the same way. The flag publisher publishes what is written; the returner gives slots back, in order, once
// they are both fetched and received. Two launches follow one another; the second gives back what the first takes last.
// With TWO_HOP: an all-reduce, whose second slice is shorter, and a reduce, whose root owns nothing. With EXCHANGE: an
// exchange in place, where received data overwrites what was sent.
// variants: TWO_HOP EXCHANGE
// mutants: NO_CREDIT=assertion RESULTS_WITHOUT_CREDIT=assertion THREE_SLOTS=deadlock
// mutants: RETURNED_BEFORE_FETCHED=assertion RETURNED_BEFORE_RECEIVED=assertion RETURNED_WHEN_BEGUN=assertion
// mutants: PUBLISHED_WHEN_LOADED=assertion PUBLISHED_WHEN_FETCHED=assertion
// mutants: SENDER_DOES_NOT_FLUSH=deadlock RECEIVER_DOES_NOT_PASS=deadlock OWNER_DOES_NOT_FLUSH=deadlock
// mutants: COUNTS_WITHOUT_RESULTS=deadlock
// mutants: EXCHANGE:NO_GIVE_BACK_AT_START=deadlock EXCHANGE:OVERWRITES_AT_ONCE=assertion
#define RANKS 2
#define LAUNCHES 2
#if defined(EXCHANGE)
#define DEPTH 2
#elif defined(THREE_SLOTS)
#define DEPTH 3
#else
#define DEPTH 4
#endif

#include "piped.inc"

// The sender's tasks up to `end` are written.
inline sender_writes(end) {
  do
  :: sent_written[me] < (end) ->
     set_datum(contributes(me, sent_written[me]), sent[me] + written_uses, contribution_of(me, sent_written[me]));
     written_uses = written_uses + uses_out(me, sent_written[me]);
     sent_written[me]++
  :: else -> break
  od
}

// What is complete may be reported at once, or as late as possible (is_late): a pipe still loads two tasks, and reports
// what is written only when it must wait for others (pipe.pml).
#define LOADING 2
bit is_late;

// What a role does in an iteration is one step, as soon as it may be done. Before a role waits, it completes what is
// under way. Its last step ends the launch.
proctype Sender(byte me) {
  byte launch, iteration, uses, written_uses;
#define may_send (!contributes(me, iteration) || is_free(me, sent[me] + uses))
  do
  :: atomic {
       goes_on && may_send ->
       if
       :: contributes(me, iteration) -> write(sent[me] + uses, contribution_of(me, iteration))
       :: else -> skip
       fi;
       uses = uses + uses_out(me, iteration);
       iteration++;
       if
       :: !is_late ->
          sent_loaded[me] = iteration;
          sender_writes(iteration)
       :: is_late && sent_loaded[me] + LOADING < iteration -> sent_loaded[me] = iteration - LOADING
       :: else -> skip
       fi
     }
#ifndef SENDER_DOES_NOT_FLUSH
  :: atomic {
       goes_on && !may_send && sent_written[me] < iteration ->
       sent_loaded[me] = iteration;
       sender_writes(iteration)
     }
#endif
  :: atomic {
       is_through ->
       sent_loaded[me] = iteration;
       sender_writes(iteration);
       uses = 0;
       written_uses = 0;
       end_launch()
     }
  od
}

#ifdef EXCHANGE
#define result_from(iteration) contribution_of(1 - me, iteration)
#else
#define result_from(iteration) result_of(1 - me, iteration)
#endif

#define use_passed (taken[me] + passed_uses + takes(me, passed))
inline receiver_passes(end) {
  do
  :: passed < (end) ->
     end_read(receives(me, passed), use_passed, result_from(passed));
     passed_uses = passed_uses + uses_in(me, passed);
     passed++
  :: else -> break
  od;
  received[me] = passed
}

#if defined(EXCHANGE) && !defined(OVERWRITES_AT_ONCE)
#define may_overwrite(iteration) (sent_loaded[me] > (iteration))
#else
#define may_overwrite(iteration) true
#endif

proctype Receiver(byte me) {
  byte launch, iteration, uses, passed, passed_uses;
#define use_received (taken[me] + uses + takes(me, iteration))
#define may_receive (!receives(me, iteration) || has_come(1 - me, use_received) && may_overwrite(iteration))
  do
  :: atomic {
       goes_on && may_receive ->
       if
       :: receives(me, iteration) ->
          read(use_received, result_from(iteration));
#ifdef EXCHANGE
          assert(sent_loaded[me] > iteration)  // it overwrites what was sent
#endif
       :: else -> skip
       fi;
       uses = uses + uses_in(me, iteration);
       iteration++;
       receiver_passes(iteration - LOADING * is_late);
#ifdef RETURNED_WHEN_BEGUN
       received[me] = iteration
#endif
     }
#ifndef RECEIVER_DOES_NOT_PASS
  :: atomic { goes_on && !may_receive && passed < iteration -> receiver_passes(iteration) }
#endif
  :: atomic {
       is_through ->
       receiver_passes(iteration);
       uses = 0;
       passed = 0;
       passed_uses = 0;
       end_launch()
     }
  od
}

#ifndef EXCHANGE
#ifdef RESULTS_WITHOUT_CREDIT
#define has_slot(use) true
#else
#define has_slot(use) is_free(me, use)
#endif
// The use of a slot for the result that the storer makes of what arrives in this iteration.
#define result_use(iteration, uses) (sent[me] + contributes(me, 0) + uses + contributes(me, (iteration) + 1))

inline owner_writes(end) {
  do
  :: written < (end) ->
     set_datum(results(me, written + 1), result_use(written, written_uses), result_of(me, written + 1));
     written_uses = written_uses + uses_out(me, written + 1);
     written++
  :: else -> break
  od;
  stored[me] = written
}

// A contribution that arrives in an iteration is read, and its result is put into a slot of the next iteration.
// sets.pml models how fetcher, adders and storer work together.
proctype Owner(byte me) {
  byte launch, iteration, taking, resulting, written, written_uses;
#define may_fetch \
  ((!takes(me, iteration) || has_come(1 - me, taken[me] + taking)) && \
   (!results(me, iteration + 1) || has_slot(result_use(iteration, resulting))))
  do
  :: atomic {
       goes_on && may_fetch ->
       end_read(takes(me, iteration), taken[me] + taking, contribution_of(1 - me, iteration));
       fetched[me] = (takes(me, iteration) -> iteration + 1 : fetched[me]);
       if
       :: results(me, iteration + 1) -> write(result_use(iteration, resulting), result_of(me, iteration + 1))
       :: else -> skip
       fi;
       taking = taking + uses_in(me, iteration);
       resulting = resulting + uses_out(me, iteration + 1);
       iteration++;
       if
       :: is_late -> skip
       :: else -> owner_writes(iteration)
       fi
     }
#ifndef OWNER_DOES_NOT_FLUSH
  :: atomic { goes_on && !may_fetch && written < iteration -> owner_writes(iteration) }
#endif
  :: atomic {
       is_through ->
       owner_writes(iteration);
       fetched[me] = iteration;
       taking = 0;
       resulting = 0;
       written = 0;
       written_uses = 0;
       end_launch()
     }
  od
}
#endif

#ifdef PUBLISHED_WHEN_LOADED
#define is_sent(iteration) (sent_loaded[me] > (iteration))
#else
#define is_sent(iteration) (sent_written[me] > (iteration))
#endif
#ifdef PUBLISHED_WHEN_FETCHED
#define is_stored(round) (fetched[me] > (round))
#else
#define is_stored(round) (stored[me] > (round))
#endif
// In the mutants that leave out one condition, it is still required for the last iteration, which is not given back
// anyway.
#define is_last(iteration) ((iteration) + 1 == ITERATIONS(launch))
#if defined(EXCHANGE)
#define is_fetched(iteration) true
#elif defined(RETURNED_BEFORE_FETCHED)
#define is_fetched(iteration) (fetched[me] > (iteration) || !is_last(iteration))
#else
#define is_fetched(iteration) (fetched[me] > (iteration))
#endif
#ifdef RETURNED_BEFORE_RECEIVED
#define is_received(iteration) (received[me] > (iteration) || !is_last(iteration))
#else
#define is_received(iteration) (received[me] > (iteration))
#endif

inline publish(use) {
  printf("rank %d: publishes use %d\n", me, use);
  slot(me, use).flag = (use) + 1
}

#define may_publish_contribution (contributed < ITERATIONS(launch) && is_sent(contributed))
inline publish_contributions() {
  do
  :: may_publish_contribution ->
     if
     :: contributes(me, contributed) -> publish(sent[me] + contributed_uses)
     :: else -> skip
     fi;
     contributed_uses = contributed_uses + uses_out(me, contributed);
     contributed++
  :: else -> break
  od
}

#ifdef EXCHANGE
#define may_publish_result false
#else
#define may_publish_result (resulted < ITERATIONS(launch) && (resulted == 0 || is_stored(resulted - 1)))
#endif
inline publish_results() {
  do
  :: may_publish_result ->
     if
     :: results(me, resulted) -> publish(sent[me] + resulted_uses + contributes(me, resulted))
     :: else -> skip
     fi;
     resulted_uses = resulted_uses + uses_out(me, resulted);
     resulted++
  :: else -> break
  od
}

#define may_give_back (back < ITERATIONS(launch) && is_fetched(back) && is_received(back))
inline give_back() {
  do
  :: may_give_back ->
     back_uses = back_uses + uses_in(me, back);
     back++
  :: else -> break
  od;
  if
  :: back < ITERATIONS(launch) && back_uses != returned_by_us ->
     returned[1 - me] = taken[me] + back_uses;
     returned_by_us = back_uses
  :: else -> skip  // the next launch gives back what comes last
  fi
}

inline resume() {
  sent_loaded[me] = 0;
  sent_written[me] = 0;
  fetched[me] = 0;
  stored[me] = 0;
  received[me] = 0;
#ifndef NO_GIVE_BACK_AT_START
  returned[1 - me] = taken[me];
#endif
  begun[me]++
}

inline save() {
#ifdef COUNTS_WITHOUT_RESULTS
  sent[me] = sent[me] + contributed;
#else
  sent[me] = sent[me] + contributed_uses;
#endif
  taken[me] = taken[me] + back_uses;
  ended[me] = 0;
  contributed = 0;
  contributed_uses = 0;
  resulted = 0;
  resulted_uses = 0;
  back = 0;
  back_uses = 0;
  returned_by_us = 0
}

// The flag publisher and the returner. Each handles all that is due in one step, because a reader may see any flag
// late.
proctype FlagPublisher(byte me) {
  byte launch;
  byte contributed, contributed_uses, resulted, resulted_uses, back, back_uses;  // iterations, and the slots in them
  byte returned_by_us;
  do
  :: atomic { begun[me] == launch -> resume() }
  :: atomic {
       begun[me] > launch && (may_publish_contribution || may_publish_result) ->
       publish_contributions();
#ifndef EXCHANGE
       publish_results();
#endif
     }
  :: atomic { begun[me] > launch && may_give_back -> give_back() }
  :: atomic {
       ended[me] == ROLES && !(may_publish_contribution || may_publish_result || may_give_back) ->
       save();
       launch++;
       if
       :: launch == LAUNCHES -> break
       :: else -> skip
       fi
     }
  od
}

init {
  byte rank;
  atomic {
    if
    :: is_late = 1
    :: is_late = 0
    fi;
    for (rank : 0 .. RANKS - 1) {
      run Sender(rank);
      run Receiver(rank);
#ifndef EXCHANGE
      run Owner(rank);
#endif
      run FlagPublisher(rank)
    }
  }
}
