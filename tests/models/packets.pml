// Packets through host memory: one writer, two readers of the same slots (Cast::multi), and flags that wrap after WRAP
// uses. Every call sends one packet; two calls send a second one, far back in the slot. What lies there may be so old
// that its flag could repeat, so slots are zeroed four times before flags repeat.
// mutants: NO_WIPE=assertion WIPE_BY_EACH_PEERS_THREAD=assertion ONE_RETURN_IS_ENOUGH=assertion
// mutants: NO_GIVE_BACK_AT_START=deadlock
#define DEPTH 2
#define READERS 2
#define RINGS READERS
#define PACKETS 2
#define PLACES (DEPTH * PACKETS)
#define WRAP 16   // number of uses that flags distinguish (2^Packets::use_bits)
#define PERIOD 4  // uses between two wipes of a slot
#define CALLS (WRAP + PERIOD)
#define NEVER_ABORTED
#include "memory.inc"
#include "lane.inc"

#define datum_of(call, packet) (1 + (call) * 2 + (packet))
#define packet_place(use, packet) (slot_of(use) * PACKETS + (packet))
#define wrapping_flag_of(use) (1 + ((use) + 1) % WRAP)  // never 0
#define wipes(use) ((use) >= PERIOD && (use) % PERIOD < DEPTH)

byte first_long, second_long;  // the calls that send two packets
#define packets_of(call) ((call) == first_long || (call) == second_long -> 2 : 1)

inline wipe() {
  if
  :: wipes(sent[0]) ->
     printf("writer: wipes the slot of use %d\n", sent[0]);
     assert_unread(0);
     assert_unread(1);
     store(packet_place(sent[0], 0), 0, 0);
     store(packet_place(sent[0], 1), 0, 0)
  :: else -> skip
  fi
}

// For each reader a thread waits until that reader has returned the slot.
inline reserve() {
#ifdef WIPE_BY_EACH_PEERS_THREAD
  waited[0] = 0;
  waited[1] = 0;
  do
  :: !waited[0] && has_room(0) -> wipe(); waited[0] = 1
  :: !waited[1] && has_room(1) -> wipe(); waited[1] = 1
  :: waited[0] && waited[1] -> break
  od
#else
  wait_for(has_room(0));
#ifndef ONE_RETURN_IS_ENOUGH
  wait_for(has_room(1));
#endif
#ifndef NO_WIPE
  wipe()
#endif
#endif
}

proctype Writer() {
  byte call, packet;
  bit waited[READERS];
  for (call : 0 .. CALLS - 1) {
    reserve();
    printf("writer: use %d is call %d, %d packets\n", sent[0], call, packets_of(call));
    for (packet : 0 .. packets_of(call) - 1) {
      assert_unread(0);
      assert_unread(1);
      store(packet_place(sent[0], packet), datum_of(call, packet), wrapping_flag_of(sent[0]))
    }
    atomic { sent[0]++; sent[1]++ };
    arrive_all(0, PLACES)  // the kernel ends
  }
}

proctype Reader(byte me) {
  byte call, packet, datum;
  for (call : 0 .. CALLS - 1) {
#ifndef NO_GIVE_BACK_AT_START
    give_back(me);
#endif
    for (packet : 0 .. packets_of(call) - 1) {
      take(packet_place(taken[me], packet), wrapping_flag_of(taken[me]), datum);
      printf("reader %d: call %d, packet %d is datum %d\n", me, call, packet, datum);
      assert(datum == datum_of(call, packet));
      datum = 0
    }
    atomic { taken[me]++; finished[me]++ }
  }
}

init {
  atomic {
    select(first_long : 0 .. PERIOD - 1);
    if
    :: second_long = first_long + WRAP  // has the same flags
    :: second_long = first_long + PERIOD
    :: second_long = first_long + 1
    fi;
    run Writer();
    run Reader(0);
    run Reader(1)
  }
}
