// Memory that all ranks of a communicator register together.
#include "communicator/agree.hpp"
#include "communicator/comm.hpp"
#include "communicator/init_watch.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait {

Status Comm::register_memory(std::uint64_t handle, void* pointer, std::size_t bytes) {
  Status registered = or_tell_out_of_memory([&] { return register_on_all(handle, pointer, bytes); });
  if (!registered) STRAIT_TRY(cause_of(registered.error()));
  return registered;
}

Status Comm::register_on_all(std::uint64_t handle, void* pointer, std::size_t bytes) {
  STRAIT_TRY(announce_failure());
  const Deadline deadline = Deadline::after_ms(options_.init_timeout_ms);
  device_deadline_ = deadline;
  channel_->set_call("registration of memory");
  InitWatch init("straitCommRegister", deadline, init_place());
  STRAIT_TRY(begin_set_up(SetUpCall::registration, deadline));
  init.all_have_called("the other ranks, which register their memory too");
  const std::uint64_t number = registrations_.next_number();
  registrations_.add(handle, number, pointer, bytes);  // first, as it may need memory
  Status agreed = register_with_all(number, pointer, bytes, deadline);
  if (agreed)
    init.succeed();
  else
    registrations_.remove(handle);
  return agreed;
}

Status Comm::register_with_all(std::uint64_t number, void* pointer, std::size_t bytes, const Deadline& deadline) {
  if (device_) {
    STRAIT_TRY(device_->register_memory(number, pointer, bytes));
    Status agreed = agree(*channel_, {}, "register its memory", deadline);
    if (!agreed) device_->drop_unused_registration(number);
    return agreed;
  }
  Status own;
  if (!transport_->sees_any_memory()) {
    auto heap = shm::SharedHeap::instance();
    if (!heap || !(*heap)->contains(pointer, bytes))
      own = fail(Code::invalid_argument, "memory to be registered must come from straitMemAlloc");
  }
  // Checked here, because a rank that cannot access a peer's memory would find out in the middle of an operation.
  const bool reads_peers = transport_->has_peer_memory();
  for (std::uint32_t peer = 0; peer < ranks_ && own && reads_peers; ++peer)
    if (!transport_->sees_memory_of(peer))
      own = fail(Code::unsupported, "the shared memory of " + watch_->name_of(peer) +
                                        " could not be mapped when the communicator was made (see the warnings of that "
                                        "moment). Check the limit of address space (ulimit -v), or do without "
                                        "straitCommRegister: calls then copy once more");
  return agree(*channel_, own, "register its memory", deadline);
}

void Comm::drop_unused_registration(std::uint64_t handle) {
  const auto number = registrations_.number_of(handle);
  if (!number) return;
  device_->drop_unused_registration(*number);
  registrations_.remove(handle);
}

Status Comm::deregister_memory(std::uint64_t handle) {
  const auto number = registrations_.number_of(handle);
  if (!number)
    return fail(Code::invalid_argument, "this handle was not given by straitCommRegister, or already given back");
  Status done = device_ ? device_->deregister_memory(*number) : Status();
  if (done || done.error().code != Code::aborted) registrations_.remove(handle);  // otherwise its users may still end
  return done;
}

bool Comm::is_registered(const void* pointer, std::size_t bytes) const {
  return bytes == 0 ||  // a rank without such a buffer must not veto what the others have
         registrations_.contain(pointer, bytes);
}

}  // namespace strait
