#pragma once

/// The kernels that measure the costs of a GPU apart from its links, as PTX. The driver compiles them for the GPU of
/// the machine, so measuring needs no toolkit. They need sm_70 or later, for acquire and release operations.
///
/// - nothing: does nothing, for the time of a launch.
/// - clear: sets a flag to 0.
/// - ping: one thread hands a number back and forth with another GPU, as a step of a plan does apart from its bytes: a
///   fence and a relaxed store publish it, an acquiring load polls for it. Gives up after some seconds of polling.
/// - copy_over: copies `size` bytes in vectors of 16 bytes.
/// - add_up: the same, but adds floats: to = to + from.
namespace strait::topo {

inline constexpr const char* kernels_ptx = R"ptx(
.version 6.0
.target sm_70
.address_size 64

.visible .entry nothing() { ret; }

.visible .entry clear(.param .u64 flag)
{
  .reg .u64 %at;
  .reg .u32 %zero;
  ld.param.u64 %at, [flag];
  mov.u32 %zero, 0;
  st.relaxed.sys.u32 [%at], %zero;
  ret;
}

// One thread. Hands a number back and forth with another GPU: what a step of a plan does apart from its bytes. Gives up
// after so many looks that seconds have passed.
.visible .entry ping(.param .u64 own, .param .u64 other, .param .u32 rounds, .param .u32 first)
{
  .reg .pred %p;
  .reg .u64 %own, %other;
  .reg .u32 %rounds, %first, %round, %seen, %looks;
  ld.param.u64 %own, [own];
  ld.param.u64 %other, [other];
  ld.param.u32 %rounds, [rounds];
  ld.param.u32 %first, [first];
  mov.u32 %round, 0;
NEXT:
  add.u32 %round, %round, 1;
  setp.gt.u32 %p, %round, %rounds;
  @%p bra DONE;
  setp.eq.u32 %p, %first, 0;
  @%p bra AWAIT;
  fence.acq_rel.sys;
  st.relaxed.sys.u32 [%other], %round;
AWAIT:
  mov.u32 %looks, 0;
LOOK:
  add.u32 %looks, %looks, 1;
  setp.gt.u32 %p, %looks, 4000000;
  @%p bra DONE;
  ld.acquire.sys.u32 %seen, [%own];
  setp.lt.u32 %p, %seen, %round;
  @%p bra LOOK;
  setp.ne.u32 %p, %first, 0;
  @%p bra NEXT;
  fence.acq_rel.sys;
  st.relaxed.sys.u32 [%other], %round;
  bra NEXT;
DONE:
  ret;
}

// Vectors of 16 bytes, `size` bytes in all.
.visible .entry copy_over(.param .u64 to, .param .u64 from, .param .u64 size)
{
  .reg .pred %p;
  .reg .u64 %to, %from, %size, %at, %stride, %a, %b;
  .reg .u32 %x, %y, %z, %w, %block, %threads, %thread, %blocks;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  ld.param.u64 %size, [size];
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mad.lo.u32 %thread, %block, %threads, %thread;
  mul.wide.u32 %at, %thread, 16;
  mul.lo.u32 %threads, %threads, %blocks;
  mul.wide.u32 %stride, %threads, 16;
LOOP:
  setp.ge.u64 %p, %at, %size;
  @%p bra DONE;
  add.u64 %a, %from, %at;
  add.u64 %b, %to, %at;
  ld.global.v4.u32 {%x, %y, %z, %w}, [%a];
  st.global.v4.u32 [%b], {%x, %y, %z, %w};
  add.u64 %at, %at, %stride;
  bra LOOP;
DONE:
  ret;
}

// Likewise to = to + from, of floats.
.visible .entry add_up(.param .u64 to, .param .u64 from, .param .u64 size)
{
  .reg .pred %p;
  .reg .u64 %to, %from, %size, %at, %stride, %a, %b;
  .reg .f32 %x, %y, %z, %w, %s, %t, %u, %v;
  .reg .u32 %block, %threads, %thread, %blocks;
  ld.param.u64 %to, [to];
  ld.param.u64 %from, [from];
  ld.param.u64 %size, [size];
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mad.lo.u32 %thread, %block, %threads, %thread;
  mul.wide.u32 %at, %thread, 16;
  mul.lo.u32 %threads, %threads, %blocks;
  mul.wide.u32 %stride, %threads, 16;
LOOP:
  setp.ge.u64 %p, %at, %size;
  @%p bra DONE;
  add.u64 %a, %from, %at;
  add.u64 %b, %to, %at;
  ld.global.v4.f32 {%x, %y, %z, %w}, [%a];
  ld.global.v4.f32 {%s, %t, %u, %v}, [%b];
  add.rn.f32 %x, %x, %s;
  add.rn.f32 %y, %y, %t;
  add.rn.f32 %z, %z, %u;
  add.rn.f32 %w, %w, %v;
  st.global.v4.f32 [%b], {%x, %y, %z, %w};
  add.u64 %at, %at, %stride;
  bra LOOP;
DONE:
  ret;
}
)ptx";

}  // namespace strait::topo
