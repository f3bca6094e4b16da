// Links of host ranks in shared memory (transports/slots): one writer, two readers of the same slots. A slot's header
// holds the number of the message and the signature of the call; the number is stored last, with release order. In some
// runs one of the writer's calls differs from the readers'.
// mutants: NO_RELEASE=assertion NO_ACQUIRE=assertion ANY_NUMBER=assertion ONE_RELEASE_IS_ENOUGH=assertion
// mutants: RELEASE_BEFORE_READING=assertion NO_COMPARISON=assertion NO_ABORT=deadlock
#define DEPTH 2
#define READERS 2
#define RINGS READERS
#define MESSAGES 5
#define PLACES (3 * DEPTH)
#include "memory.inc"
#include "lane.inc"

#define number_place(message) slot_of(message)
#define signature_place(message) (DEPTH + slot_of(message))
#define payload_place(message) (2 * DEPTH + slot_of(message))
#define OURS 1
#define ANOTHER 2
#define datum_of(message, signature) ((message) * 2 + (signature))
#ifdef ANY_NUMBER
#define number_of(message) 1
#else
#define number_of(message) ((message) + 1)
#endif

byte other_message = MESSAGES;  // the writer's message that belongs to another call

proctype Writer() {
  byte message, signature;
  for (message : 0 .. MESSAGES - 1) {
    // try_reserve
    wait_for(has_room(0));
#ifndef ONE_RELEASE_IS_ENOUGH
    wait_for(has_room(1));
#endif
    signature = (message == other_message -> ANOTHER : OURS);
    printf("writer: message %d, signature %d\n", message, signature);
    assert_unread(0);
    assert_unread(1);
    store(payload_place(message), datum_of(message, signature), 0);
    // publish
    store(signature_place(message), signature, 0);
#ifndef NO_RELEASE
    arrive_all(0, PLACES);
#endif
    store(number_place(message), 0, number_of(message));
    atomic { sent[0]++; sent[1]++ }
  }
gave_up:
}

proctype Reader(byte me) {
  byte message, signature, datum, nothing;
  for (message : 0 .. MESSAGES - 1) {
    // try_acquire
#ifdef NO_ACQUIRE
    datum = memory[payload_place(message)].datum;
#endif
    take(number_place(message), number_of(message), nothing);
    signature = memory[signature_place(message)].datum;
#ifndef NO_COMPARISON
    if
    :: signature == ANOTHER -> aborted = 1; goto gave_up
    :: else -> skip
    fi;
#endif
#ifdef RELEASE_BEFORE_READING
    returned[me] = message + 1;
#endif
#ifndef NO_ACQUIRE
    datum = memory[payload_place(message)].datum;
#endif
    printf("reader %d: message %d has signature %d and is datum %d\n", me, message, signature, datum);
    assert(signature == OURS && datum == datum_of(message, OURS));
    atomic { signature = 0; datum = 0; taken[me]++; finished[me]++ };
    // release
    give_back(me)
  }
gave_up:
}

// A failure may happen at any time, or never.
proctype Host() {
  if
  :: skip
  :: aborted = 1
  fi
}

init {
  atomic {
    if
    :: skip
    :: other_message = 1
    :: other_message = 3
    fi;
    run Writer();
    run Reader(0);
    run Reader(1);
    run Host()
  }
}
