// Copies between GPUs (executor/copy_engine/peer_copies.cpp): three ranks make two calls of any kinds of collectives,
// and synchronize by words at the beginning and the end of each. A rank has the user's stream, a stream that puts
// chunks into the windows of peers, and a stream that takes out what has arrived in its own windows; in a reduction the
// latter is the kernel, which is launched before the ranks have synchronized. In some runs one rank's second call
// differs from the others'. Streams fence before each write of a word, so memory is modelled as plain. In-place calls
// write directly into the outputs of peers and use only the words of the beginning and the end. There are two
// exceptions: broadcasts, whose receivers pass on what the root has sent them, and all-to-alls whose blocks are
// overwritten, where a rank tells its peers when it has saved a chunk.
// variants: WITH_SCATTER WITH_ALL_GATHER WITH_IN_PLACE WITH_PASSED_ON WITH_SAVES OTHER
// mutants: NO_BEGUN=assertion RECEIVERS_DO_NOT_WAIT=assertion ONE_BEGUN=assertion
// mutants: CLEAR_BEGUN_LATE=assertion CLEAR_EARLY=assertion NO_DONE=assertion ONE_DONE=assertion
// mutants: WITH_IN_PLACE:NO_BEGUN=assertion WITH_IN_PLACE:ONE_BEGUN=assertion WITH_IN_PLACE:NO_DONE=assertion
// mutants: WITH_IN_PLACE:ONE_DONE=assertion WITH_IN_PLACE:TELL_BEFORE_JOIN=assertion
// mutants: WITH_PASSED_ON:NO_WAIT_FOR_ROOT=assertion WITH_PASSED_ON:NO_CLEAR=assertion WITH_PASSED_ON:ONE_BEGUN=assertion
// mutants: WITH_SAVES:NO_WAIT_FOR_SAVED=assertion WITH_SAVES:NO_CLEAR=assertion WITH_SAVES:SAVE_ONE_BY_ONE=deadlock
// mutants: NO_CLEAR=assertion KEEP_DONE=assertion TELL_BEFORE_JOIN=deadlock OTHER:AT_LEAST=assertion
#define RANKS 3
#define CALLS 2
#define CHUNKS 2  // sent through windows of one slot
#define PAIRS (RANKS * RANKS)
#define of(rank, from) ((rank) * RANKS + (from))
mtype { ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, IN_PLACE, PASSED_ON, SAVES };
#define is_in_place(kind) ((kind) == IN_PLACE || (kind) == PASSED_ON || (kind) == SAVES)
mtype called[RANKS * CALLS];
#define call_of(rank, call) called[(rank) * CALLS + (call)]
#define ROOT 1
#define sends(kind, from, to) \
  ((from) != (to) && ((kind) == GATHER -> (to) == ROOT : ((kind) == SCATTER -> (from) == ROOT : 1)))

// Words, indexed [of(owner, writer)]. `taken` counts the chunks that a rank has taken out of the other's window there,
// or has added.
byte begun[PAIRS];
bit done[PAIRS];
byte arrived[PAIRS], taken[PAIRS];
// The contents of a window, of(reader, writer); 0: nothing left to take.
byte window[PAIRS];
// The contents of a rank's output in place, of(reader, writer): the number of the call plus one; if words order the
// writes, the chunk written last. `saved`: the chunk of an overwritten block that was saved last, of(owner, writer).
byte output[PAIRS];
#ifdef WITH_SAVES
byte saved[PAIRS];
#endif
#define has_sends(kind, me) (sends(kind, me, ((me) + 1) % RANKS) || sends(kind, me, ((me) + 2) % RANKS))
#define has_receives(kind, me) (sends(kind, ((me) + 1) % RANKS, me) || sends(kind, ((me) + 2) % RANKS, me))
#define datum_of(call, chunk) (1 + (call) * CHUNKS + (chunk))

byte at[RANKS];    // call in which a rank accepts writes to its words: its number plus one, or 0
byte went[RANKS];  // number of calls for which its streams were forked
byte put[RANKS];   // number of calls that its streams have completed
byte took[RANKS];
bit mismatch;  // the second calls differ: when nothing else can happen, the host ends every wait

#ifdef AT_LEAST
#define is_begun(peer) (begun[of(me, peer)] >= kind)
#else
#define is_begun(peer) (begun[of(me, peer)] == kind)
#endif
#ifdef NO_BEGUN
#define all_begun 1
#elif defined(ONE_BEGUN)
#define all_begun (is_begun((me + 1) % RANKS))
#else
#define all_begun (is_begun((me + 1) % RANKS) && is_begun((me + 2) % RANKS))
#endif
#ifdef NO_DONE
#define all_done 1
#elif defined(ONE_DONE)
#define all_done (done[of(me, (me + 1) % RANKS)])
#else
#define all_done (done[of(me, (me + 1) % RANKS)] && done[of(me, (me + 2) % RANKS)])
#endif

#define wait_for(condition) if :: (condition) -> skip :: mismatch && timeout -> goto gave_up fi

// A write to a peer's word: the peer must be in this call and must not have cleared its words yet.
#define tell(words, peer, value) \
  assert(at[peer] == call + 1); \
  words[of(peer, me)] = value

// The words of the beginning and the end must be clear when they are written.
#define meet(words, peer, value) \
  assert(words[of(peer, me)] == 0); \
  words[of(peer, me)] = value

#define peer_after(k) ((me + (k)) % RANKS)
#define write_out(peer, datum) \
  assert(at[peer] == call + 1);  /* the peer's stream has come to the call, and not gone on */ \
  output[of(peer, me)] = datum

#if defined(NO_WAIT_FOR_ROOT) || defined(NO_WAIT_FOR_SAVED)
#define is_there(from) 1
#else
#define is_there(from) (arrived[of(me, from)] > step)
#endif

inline pass_on() {
  k = 1;
  do
  :: k < RANKS && me == ROOT ->
     atomic { write_out(peer_after(k), datum_of(call, step)) };
     atomic { tell(arrived, peer_after(k), step + 1); k++ }
  :: k < RANKS && me != ROOT && peer_after(k) != ROOT ->
     atomic {
       wait_for(is_there(ROOT));
       assert(output[of(me, ROOT)] >= datum_of(call, step));
       write_out(peer_after(k), datum_of(call, step));
       k++
     }
  :: k < RANKS && me != ROOT && peer_after(k) == ROOT -> k++
  :: else -> break
  od
}

inline save() {
  atomic { saved[of(me, peer_after(k))] = datum_of(call, step) };
  atomic { tell(arrived, peer_after(k), step + 1) }
}

inline write_over() {
  atomic {
    wait_for(is_there(peer_after(k)));
    assert(saved[of(peer_after(k), me)] >= datum_of(call, step));
    write_out(peer_after(k), datum_of(call, step))
  }
}

inline save_and_write_over() {
  k = 1;
#ifdef SAVE_ONE_BY_ONE
  do
  :: k < RANKS -> save(); write_over(); k++
  :: else -> break
  od
#else
  do
  :: k < RANKS -> save(); k++
  :: else -> break
  od;
  k = 1;
  do
  :: k < RANKS -> write_over(); k++
  :: else -> break
  od
#endif
}

inline met() {
  assert(call_of(0, call) == kind && call_of(1, call) == kind && call_of(2, call) == kind)
}

proctype Putter(byte me) {
  byte call, chunk, k, step;
  mtype kind;
  do
  :: call < CALLS ->
     atomic { wait_for(went[me] > call); kind = call_of(me, call) };
     if
     :: has_sends(kind, me) -> atomic { wait_for(all_begun); met() }
     :: else -> skip
     fi;
     chunk = (is_in_place(kind) -> CHUNKS : 0);
     k = 1;
     step = 0;
     do
#ifdef WITH_IN_PLACE
     :: kind == IN_PLACE && k < RANKS ->
        atomic { write_out(peer_after(k), call + 1); k++ }
#endif
#ifdef WITH_PASSED_ON
     :: kind == PASSED_ON && step < CHUNKS -> pass_on(); step++
#endif
#ifdef WITH_SAVES
     :: kind == SAVES && step < CHUNKS -> save_and_write_over(); step++
#endif
     :: chunk < CHUNKS ->
        k = 1;
        do
        :: k < RANKS && sends(kind, me, (me + k) % RANKS) ->
           atomic {
             wait_for(taken[of(me, (me + k) % RANKS)] >= chunk);
             assert(window[of((me + k) % RANKS, me)] == 0);
             window[of((me + k) % RANKS, me)] = datum_of(call, chunk)
           };
           atomic { tell(arrived, (me + k) % RANKS, chunk + 1); k++ }
        :: k < RANKS && !sends(kind, me, (me + k) % RANKS) -> k++
        :: else -> break
        od;
        chunk++
     :: else -> break
     od;
     atomic { put[me]++; call++; kind = 0 }
  :: else -> break
  od;
gave_up:
}

inline take_out(peer) {
  assert(window[of(me, peer)] == datum_of(call, chunk));
  window[of(me, peer)] = 0
}

proctype Taker(byte me) {
  byte call, chunk, k;
  mtype kind;
  do
  :: call < CALLS ->
     atomic { wait_for(went[me] > call); kind = call_of(me, call) };
#ifndef RECEIVERS_DO_NOT_WAIT
     if
     :: kind != REDUCE_SCATTER && !is_in_place(kind) && has_receives(kind, me) -> atomic { wait_for(all_begun); met() }
     :: else -> skip
     fi;
#endif
     chunk = (is_in_place(kind) -> CHUNKS : 0);
     do
     :: chunk < CHUNKS && kind == REDUCE_SCATTER ->  // when the kernel has added what all have sent, it tells all
        atomic { wait_for(arrived[of(me, (me + 1) % RANKS)] > chunk); take_out((me + 1) % RANKS) };
        atomic { wait_for(arrived[of(me, (me + 2) % RANKS)] > chunk); take_out((me + 2) % RANKS) };
        atomic { tell(taken, (me + 1) % RANKS, chunk + 1) };
        atomic { tell(taken, (me + 2) % RANKS, chunk + 1) };
        chunk++
     :: chunk < CHUNKS && kind != REDUCE_SCATTER ->
        k = 1;
        do
        :: k < RANKS && sends(kind, (me + k) % RANKS, me) ->
           atomic { wait_for(arrived[of(me, (me + k) % RANKS)] > chunk); take_out((me + k) % RANKS) };
           atomic { tell(taken, (me + k) % RANKS, chunk + 1); k++ }
        :: k < RANKS && !sends(kind, (me + k) % RANKS, me) -> k++
        :: else -> break
        od;
        chunk++
     :: else -> break
     od;
     atomic { took[me]++; call++; kind = 0 }
  :: else -> break
  od;
gave_up:
}

#define clear(words) d_step { words[of(me, 0)] = 0; words[of(me, 1)] = 0; words[of(me, 2)] = 0 }

inline clear_words() {
  atomic {
    at[me] = 0;
    clear(arrived);
    clear(taken)
  }
}

inline tell_done() {
  atomic { meet(done, (me + 1) % RANKS, 1) };
  atomic { meet(done, (me + 2) % RANKS, 1) }
}

proctype User(byte me) {
  byte call;
  mtype kind;
  do
  :: call < CALLS ->
     atomic { kind = call_of(me, call); at[me] = call + 1 };
     atomic { meet(begun, (me + 1) % RANKS, kind) };
     atomic { meet(begun, (me + 2) % RANKS, kind); went[me]++ };
#ifdef TELL_BEFORE_JOIN
     clear(begun);
     tell_done();
     wait_for(put[me] > call && took[me] > call);
#else
     wait_for(put[me] > call && took[me] > call);
#ifdef CLEAR_EARLY
     clear_words();
#endif
#ifndef CLEAR_BEGUN_LATE
     clear(begun);
#endif
     tell_done();
#endif
     wait_for(all_done);
     assert(kind != IN_PLACE ||
            (output[of(me, (me + 1) % RANKS)] == call + 1 && output[of(me, (me + 2) % RANKS)] == call + 1));
     assert((kind != SAVES && (kind != PASSED_ON || me == ROOT)) ||
            (output[of(me, (me + 1) % RANKS)] == datum_of(call, CHUNKS - 1) &&
             output[of(me, (me + 2) % RANKS)] == datum_of(call, CHUNKS - 1)));
#ifdef CLEAR_BEGUN_LATE
     clear(begun);
#endif
#ifdef NO_CLEAR
     at[me] = 0;
#else
     clear_words();
#endif
#ifndef KEEP_DONE
     clear(done);
#endif
     atomic { call++; kind = 0 }
  :: else -> break
  od;
gave_up:
}

init {
  byte rank, call;
  mtype kind;
  atomic {
    for (call : 0 .. CALLS - 1) {
      if
#ifdef WITH_ALL_GATHER
      :: kind = ALL_GATHER
#elif defined(WITH_IN_PLACE)
      :: kind = IN_PLACE
#elif defined(WITH_PASSED_ON)
      :: kind = PASSED_ON
#elif defined(WITH_SAVES)
      :: kind = SAVES
#else
      :: kind = SCATTER
#endif
      :: kind = GATHER
      :: kind = REDUCE_SCATTER
      fi;
      for (rank : 0 .. RANKS - 1) {
        call_of(rank, call) = kind
      }
    }
#ifdef OTHER
    mismatch = 1;
    if
    :: call_of(2, CALLS - 1) = ALL_GATHER
    :: call_of(0, CALLS - 1) = ALL_GATHER
    fi;
#endif
    for (rank : 0 .. RANKS - 1) {
      run Putter(rank);
      run Taker(rank);
      run User(rank)
    }
  }
}
