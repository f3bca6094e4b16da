// Messages between GPUs by copy engines (executor/copy_engine/peer_messages.cpp): on one lane between two ranks, in one
// direction, three messages of one to three chunks through two slots. All lanes, directions and pairs work in the same
// way and share nothing. In some runs the receiver's last message differs from the sender's. Streams fence before each
// write of a word, so memory is modelled as plain.
// variants: ALIKE OTHER
// mutants: NO_READY=assertion NO_TAKEN=assertion NO_ARRIVED=assertion OTHER:AT_LEAST=assertion
// mutants: KEEP_READY=assertion KEEP_TAKEN=assertion KEEP_ARRIVED=assertion CLEAR_LATE=assertion
// mutants: CLEAR_ARRIVED_LATE=deadlock TELL_ALL_TAKEN=assertion READY_EARLY=assertion
#define SLOTS 2
#define CHUNKS 3
#define MESSAGES 3
#define datum(chunk) (1 + message * CHUNKS + (chunk))

// The number of chunks of each message, as the sender and the receiver see it. It stands for the message's hash.
byte sent[MESSAGES], received[MESSAGES];
byte ready, taken, arrived;  // the words
byte window[SLOTS];          // 0: nothing left to take
bit mismatch;                // when nothing else can happen, the host ends every wait

#define wait_for(condition) if :: (condition) -> skip :: mismatch && timeout -> goto gave_up fi
#ifdef AT_LEAST
#define is_ready (ready >= sent[message])
#elif defined(NO_READY)
#define is_ready 1
#else
#define is_ready (ready == sent[message])
#endif

// Clears both words at once.
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
