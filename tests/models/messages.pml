// Messages between GPUs by copy engines (executor/copy_engine/peer_messages.cpp): on one lane between two ranks, in one
// direction, three messages of one to three chunks through two slots. All lanes, directions and pairs are alike, and
// share nothing. In some runs the receiver's last message is another one than the sender's. Words are written by streams
// that fence before each write, so memory is plain.
// variants: ALIKE OTHER
// mutants: NO_READY=assertion NO_TAKEN=assertion NO_ARRIVED=assertion OTHER:AT_LEAST=assertion
// mutants: KEEP_READY=assertion KEEP_TAKEN=assertion KEEP_ARRIVED=assertion CLEAR_LATE=assertion
// mutants: CLEAR_ARRIVED_LATE=deadlock TELL_ALL_TAKEN=assertion READY_EARLY=assertion
#define SLOTS 2
#define CHUNKS 3
#define MESSAGES 3
#define datum(chunk) (1 + message * CHUNKS + (chunk))

// By the number of a message its chunks, as either rank sees it, which is all that its hash tells.
byte sent[MESSAGES], received[MESSAGES];
byte ready, taken, arrived;  // words
byte window[SLOTS];          // 0: nothing that is still to be taken
bit mismatch;                // in the end the host ends every wait

#define wait_for(condition) if :: (condition) -> skip :: mismatch && timeout -> goto gave_up fi
#ifdef AT_LEAST
#define is_ready (ready >= sent[message])
#elif defined(NO_READY)
#define is_ready 1
#else
#define is_ready (ready == sent[message])
#endif

// Both at once.
inline clear_words() {
  d_step {
#ifndef KEEP_READY
    ready = 0;
#endif
#ifndef KEEP_TAKEN
    taken = 0
#endif
  }
}

proctype Sender() {
  byte message, chunk;
  do
  :: message < MESSAGES ->
     atomic { wait_for(is_ready); assert(sent[message] == received[message]) };
     chunk = 0;
     do
     :: chunk < sent[message] ->
#ifndef NO_TAKEN
        if
        :: chunk >= SLOTS -> wait_for(taken >= chunk - SLOTS + 1)
        :: else -> skip
        fi;
#endif
#ifndef CLEAR_LATE
        if
        :: chunk + 1 == sent[message] -> clear_words()
        :: else -> skip
        fi;
#endif
        atomic { assert(window[chunk % SLOTS] == 0); window[chunk % SLOTS] = datum(chunk) };
        arrived = chunk + 1;
        chunk++
     :: else -> break
     od;
#ifdef CLEAR_LATE
     clear_words();
#endif
     message++
  :: else -> break
  od;
gave_up:
}

proctype Receiver() {
  byte message, chunk;
  do
  :: message < MESSAGES ->
     chunk = 0;
#if defined(READY_EARLY) || defined(CLEAR_ARRIVED_LATE)
     if
     :: message == 0 -> ready = received[0]
     :: else -> skip
     fi;
#else
     atomic { assert(ready == 0 && taken == 0 && arrived == 0); ready = received[message] };
#endif
     do
     :: chunk < received[message] ->
#ifndef NO_ARRIVED
        wait_for(arrived >= chunk + 1);
#endif
#if !defined(KEEP_ARRIVED) && !defined(CLEAR_ARRIVED_LATE)
        if
        :: chunk + 1 == received[message] -> arrived = 0
        :: else -> skip
        fi;
#endif
#ifdef READY_EARLY
        if
        :: chunk + 1 == received[message] && message + 1 < MESSAGES -> ready = received[message + 1]
        :: else -> skip
        fi;
#endif
        atomic { assert(window[chunk % SLOTS] == datum(chunk)); window[chunk % SLOTS] = 0 };
#ifdef TELL_ALL_TAKEN
        taken = chunk + 1;
#else
        if
        :: chunk + SLOTS < received[message] -> taken = chunk + 1
        :: else -> skip
        fi;
#endif
        chunk++
     :: else -> break
     od;
#ifdef CLEAR_ARRIVED_LATE
     if
     :: message + 1 < MESSAGES -> ready = received[message + 1]
     :: else -> skip
     fi;
     arrived = 0;
#endif
     message++
  :: else -> break
  od;
gave_up:
}

init {
  byte message, chunks;
  atomic {
    for (message : 0 .. MESSAGES - 1) {
      select (chunks : 1 .. CHUNKS);
      sent[message] = chunks;
      received[message] = chunks
    }
#ifdef OTHER
    mismatch = 1;
    received[MESSAGES - 1] = 1 + sent[MESSAGES - 1] % CHUNKS;
#endif
    run Sender();
    run Receiver()
  }
}
