// The directory of shared memory (Segment::find_or_make): ranks find the block that belongs to a key, or make it,
// without a lock and without waiting. Two ranks look for one key; then a third rank and one of the two look for another
// key, whose search begins at the same entry. Any rank may be killed at any step. Only atomic operations are used, so
// no stores are delayed.
// mutants: KEY_IS_STORED=assertion OFFSET_IS_STORED=assertion ADDRESSES_ARE_READ_AND_WRITTEN=assertion
// mutants: WAITS_FOR_THE_MAKER=deadlock
#define RANKS 3
#define ENTRIES 2
#define KEYS 2
#define NOBODY 255

byte key[ENTRIES], offset[ENTRIES];  // 0: none
byte used = 1;                       // number of addresses handed out
byte block_of_key[KEYS + 1];         // the block that was returned first for a key. Not part of the protocol
byte key_of_block[RANKS + KEYS];     // the key that a block was first returned for. Not part of the protocol
byte killed = NOBODY;

inline claim_entry() {
  do
  :: seen = key[entry];
     if
     :: seen == 0 ->
#ifdef KEY_IS_STORED
        key[entry] = wanted; seen = wanted
#else
        atomic {  // compare_exchange_strong
          seen = key[entry];
          if
          :: seen == 0 -> key[entry] = wanted; seen = wanted
          :: else -> skip
          fi
        }
#endif
     :: else -> skip
     fi;
     if
     :: seen == wanted -> break
     :: else -> entry++
     fi
  od
}

inline block_of() {
  block = offset[entry];
  if
  :: block == 0 ->
#ifdef WAITS_FOR_THE_MAKER
     if
     :: made_entry[entry] == me + 1 || made_entry[entry] == 0 -> made_entry[entry] = me + 1
     :: else -> offset[entry] != 0
     fi;
#endif
#ifdef ADDRESSES_ARE_READ_AND_WRITTEN
     begin = used;
     used = begin + 1;
#else
     atomic { begin = used; used++ };  // fetch_add
#endif
#ifdef OFFSET_IS_STORED
     offset[entry] = begin;
     block = begin
#else
     atomic {  // compare_exchange_strong
       block = offset[entry];
       if
       :: block == 0 -> offset[entry] = begin; block = begin
       :: else -> skip
       fi
     }
#endif
  :: else -> skip
  fi
}
#ifdef WAITS_FOR_THE_MAKER
byte made_entry[ENTRIES];
#endif

inline use_block() {
  atomic {
    printf("rank %d: key %d has block %d\n", me, wanted, block);
    assert(block != 0);
    assert(block_of_key[wanted] == 0 || block_of_key[wanted] == block);
    assert(key_of_block[block] == 0 || key_of_block[block] == wanted);
    block_of_key[wanted] = block;
    key_of_block[block] = wanted;
    entry = 0;
    seen = 0;
    begin = 0;
    block = 0
  }
}

proctype Rank(byte me; byte wanted) {
  byte entry, seen, begin, block;
  {
    do
    :: claim_entry();
       block_of();
       use_block();
       if
       :: me == 1 && wanted < KEYS -> wanted++
       :: else -> break
       fi
    od
  } unless { killed == me }
}

proctype Killer() {
  if
  :: skip
  :: killed = 0
  :: killed = 1
  :: killed = 2
  fi
}

init {
  atomic { run Rank(0, 1); run Rank(1, 1); run Rank(2, 2); run Killer() }
}
