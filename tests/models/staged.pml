// Copies through host memory (executor/copy_engine/staged_copies.cpp): three ranks make two calls of any kinds, with
// several rounds, through slots that all ranks share. A rank has a stream that uploads and one that downloads, which
// begin a call when both have ended the previous one. Streams fence before each write of a word, so memory is modelled
// as plain. A copy takes time, during which its source must not change. ONE_QUEUE: both streams share a hardware queue,
// so their commands run in the order in which they were enqueued. ABORT: two ranks, of which rank 1 never makes its
// second call. At some time the communicator fails, and the hosts release the waits of their streams.
// variants: STREAMS ONE_QUEUE ABORT
// mutants: NO_CREDIT=assertion CREDIT_OF_ONE=assertion CREDIT_TOO_SOON=assertion
// mutants: NO_WAIT=assertion WAIT_FOR_ONE=assertion WORD_BEFORE_UPLOAD=assertion WORD_BEFORE_DOWNLOAD=assertion
// mutants: NO_WORD_OF_THE_IDLE=deadlock
// mutants: ONE_QUEUE:LEAD_OF_MORE=deadlock ONE_QUEUE:LAST_WORD_LATE=deadlock ONE_QUEUE:NO_CREDIT=assertion
// mutants: ABORT:NO_RELEASE=deadlock ABORT:RELEASE_ONCE=deadlock ABORT:RELEASE_UPLOADED_ONLY=deadlock
#ifdef ABORT
#define RANKS 2
#define of_rank_2(condition) 1
#else
#define RANKS 3
#define of_rank_2(condition) (condition)
#endif
#define CALLS 2
#ifdef ONE_QUEUE
#define DEPTH 3
#define rounds_of(call) ((call) == 0 -> 4 : 2)
#elif defined(ABORT)
#define DEPTH 1
#define rounds_of(call) ((call) == 0 -> 1 : 2)
#else
#define DEPTH 2
#define rounds_of(call) ((call) == 0 -> 3 : 2)
#endif
#define first_of(call) ((call) == 0 -> 0 : rounds_of(0))
#define end_of(call) (first_of(call) + rounds_of(call))
mtype { ALL, FROM_0, TO_1 };
mtype kinds[CALLS];
#define uploads(rank) (kinds[call] == ALL || (kinds[call] == FROM_0 && (rank) == 0) || (kinds[call] == TO_1 && (rank) != 1))
#define downloads(rank) (kinds[call] == ALL || (kinds[call] == FROM_0 && (rank) != 0) || (kinds[call] == TO_1 && (rank) == 1))

// The contents of the slots: the number of the round plus one; 0: being written.
byte slots[DEPTH * RANKS];
#define chunk_of(round, rank) slots[((round) % DEPTH) * RANKS + (rank)]
byte uploaded[RANKS], downloaded[RANKS];  // the words
byte upped[RANKS], downed[RANKS];         // number of calls that a rank's streams have ended
#ifdef ABORT
bit failed;
#define calls_of(rank) ((rank) == 1 -> 1 : CALLS)
#else
#define calls_of(rank) CALLS
#endif

#ifdef CREDIT_TOO_SOON
#define returned(rank, round) (downloaded[rank] >= (round) - DEPTH)
#else
#define returned(rank, round) (downloaded[rank] >= (round) + 1 - DEPTH)
#endif
#ifdef NO_CREDIT
#define has_credit(round) 1
#elif defined(CREDIT_OF_ONE)
#define has_credit(round) ((round) < DEPTH || (returned(me, round) && returned((me + 1) % RANKS, round)))
#else
#define has_credit(round) ((round) < DEPTH || (returned(0, round) && returned(1, round) && of_rank_2(returned(2, round))))
#endif

#define is_there(rank, round) (!uploads(rank) || uploaded[rank] > (round))
#ifdef NO_WAIT
#define all_there(round) 1
#elif defined(WAIT_FOR_ONE)
#define all_there(round) (is_there(me, round) && is_there((me + 1) % RANKS, round))
#else
#define all_there(round) (is_there(0, round) && is_there(1, round) && of_rank_2(is_there(2, round)))
#endif

// A rank's own chunk is read only by the others.
#define is_right(rank, round) (!uploads(rank) || (rank) == me || chunk_of(round, rank) == (round) + 1)
inline read(round) {
  d_step {
    assert(is_right(0, round));
    assert(is_right(1, round));
    assert(is_right(2, round))
  }
}

#ifdef ABORT  // the copied data does not matter
#define upload(round) has_credit(round)
#define download(round) all_there(round)
#else
inline upload(round) {
  atomic { has_credit(round) -> chunk_of(round, me) = 0 };
#ifdef WORD_BEFORE_UPLOAD
  uploaded[me] = (round) + 1;
#endif
  chunk_of(round, me) = (round) + 1
}

inline download(round) {
  atomic { all_there(round) -> read(round) };
#ifdef WORD_BEFORE_DOWNLOAD
  downloaded[me] = (round) + 1;
#endif
  read(round)
}
#endif

#ifndef ONE_QUEUE
proctype Uploads(byte me) {
  byte call, round;
  do
  :: call < calls_of(me) ->
     downed[me] >= call;
     round = first_of(call);
     do
     :: round < end_of(call) && uploads(me) ->
        upload(round);
        atomic { uploaded[me] = round + 1; round++ }
     :: else -> break
     od;
     atomic {
#ifndef NO_WORD_OF_THE_IDLE
       uploaded[me] = end_of(call);
#endif
       upped[me]++;
       call++;
       round = 0
     }
  :: else -> break
  od
}

proctype Downloads(byte me) {
  byte call, round;
  do
  :: call < calls_of(me) ->
     upped[me] >= call;
     round = first_of(call);
     do
     :: round < end_of(call) && downloads(me) ->
        download(round);
        atomic { downloaded[me] = round + 1; round++ }
     :: else -> break
     od;
     atomic {
#ifndef NO_WORD_OF_THE_IDLE
       downloaded[me] = end_of(call);
#endif
       downed[me]++;
       call++;
       round = 0
     }
  :: else -> break
  od
}
#else

#ifdef LEAD_OF_MORE
#define LEAD (DEPTH - 1)
#else
#define LEAD (DEPTH - 2)
#endif

// A word is enqueued together with the stream's next command.
inline flush_uploaded() {
  if
  :: up_word != 0 -> atomic { uploaded[me] = up_word; up_word = 0 }
  :: else -> skip
  fi
}

inline flush_downloaded() {
  if
  :: down_word != 0 -> atomic { downloaded[me] = down_word; down_word = 0 }
  :: else -> skip
  fi
}

proctype Queue(byte me) {
  byte call, step, up_word, down_word;
  do
  :: call < CALLS ->
     if
     :: !downloads(me) -> downloaded[me] = end_of(call)
     :: !uploads(me) -> uploaded[me] = end_of(call)
     :: uploads(me) && downloads(me) -> skip
     fi;
     do
     :: step < rounds_of(call) + LEAD ->
        if
        :: step < rounds_of(call) && uploads(me) ->
           flush_uploaded();
           upload(first_of(call) + step);
           up_word = first_of(call) + step + 1
        :: else -> skip
        fi;
#ifndef LAST_WORD_LATE
        if
        :: step + 1 == rounds_of(call) -> flush_uploaded()
        :: else -> skip
        fi;
#endif
        if
        :: step >= LEAD && downloads(me) ->
           flush_downloaded();
           download(first_of(call) + step - LEAD);
           down_word = first_of(call) + step - LEAD + 1
        :: else -> skip
        fi;
        step++
     :: else -> break
     od;
#ifdef LAST_WORD_LATE
     flush_uploaded();
#endif
     flush_downloaded();
     atomic { call++; step = 0 }
  :: else -> break
  od
}
#endif

#ifdef ABORT
#define enqueued_by(rank) end_of(calls_of(rank) - 1)
#define is_idle (upped[me] == calls_of(me) && downed[me] == calls_of(me))
#ifdef RELEASE_UPLOADED_ONLY
#define raise_downloaded(rank)
#define behind(rank) (uploaded[rank] < enqueued_by(me))
#else
#define raise_downloaded(rank) downloaded[rank] = (downloaded[rank] < enqueued_by(me) -> enqueued_by(me) : downloaded[rank])
#define behind(rank) (uploaded[rank] < enqueued_by(me) || downloaded[rank] < enqueued_by(me))
#endif
#define raise(rank) \
  uploaded[rank] = (uploaded[rank] < enqueued_by(me) -> enqueued_by(me) : uploaded[rank]); \
  raise_downloaded(rank)

inline release() {
  atomic {
    raise(0);
    raise(1)
  }
}

proctype Host(byte me) {
  failed;
#ifdef RELEASE_ONCE
  release()
#else
  do
  :: is_idle -> break
  :: !is_idle && (behind(0) || behind(1)) -> release()
  od
#endif
}
#endif

init {
  byte rank, call;
  atomic {
    for (call : 0 .. CALLS - 1) {
      if
      :: kinds[call] = ALL
      :: kinds[call] = FROM_0
      :: kinds[call] = TO_1
      fi
    }
    for (rank : 0 .. RANKS - 1) {
#ifdef ONE_QUEUE
      run Queue(rank)
#else
      run Uploads(rank);
      run Downloads(rank)
#endif
#if defined(ABORT) && !defined(NO_RELEASE)
      ;
      run Host(rank)
#endif
    }
  };
#ifdef ABORT
  failed = 1
#else
  skip
#endif
}
