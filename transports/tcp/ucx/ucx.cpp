#include "transports/tcp/ucx/ucx.hpp"

#include <algorithm>

#include "base/own_thread.hpp"
#include "base/shared_library.hpp"

namespace strait::ucx {
namespace {

using namespace ucp_abi;

/// The functions of libucp that are used here.
struct Api {
  Outcome (*init)(unsigned major, unsigned minor, const ContextParameters*, Config, Context*) = nullptr;
  void (*cleanup)(Context) = nullptr;
  Outcome (*read_config)(const char* prefix, const char* file, Config*) = nullptr;
  void (*release_config)(Config) = nullptr;
  Outcome (*create_worker)(Context, const WorkerParameters*, WorkerHandle*) = nullptr;
  void (*destroy_worker)(WorkerHandle) = nullptr;
  Outcome (*get_address)(WorkerHandle, Address*, std::size_t* bytes) = nullptr;
  void (*release_address)(WorkerHandle, Address) = nullptr;
  Outcome (*get_fd)(WorkerHandle, int*) = nullptr;
  Outcome (*arm)(WorkerHandle) = nullptr;
  unsigned (*progress)(WorkerHandle) = nullptr;
  Outcome (*create_endpoint)(WorkerHandle, const EndpointParameters*, Endpoint*) = nullptr;
  void* (*close_endpoint)(Endpoint, const RequestParameters*) = nullptr;
  void* (*send)(Endpoint, const void*, std::size_t bytes, std::uint64_t tag, const RequestParameters*) = nullptr;
  void* (*receive)(WorkerHandle, void*, std::size_t bytes, std::uint64_t tag, std::uint64_t mask,
                   const RequestParameters*) = nullptr;
  Outcome (*look_at)(void* request) = nullptr;
  void (*cancel)(WorkerHandle, void* request) = nullptr;
  void (*free)(void* request) = nullptr;
  const char* (*describe)(Outcome) = nullptr;
  std::string error;  ///< why UCX cannot be used; "" if it can
};

/// Loads UCX. It stays loaded, because it has threads and hooks of its own.
Api load() {
  Api api;
  SharedLibrary library("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library.is_loaded()) {
    api.error = "UCX is not installed (libucx0 of Debian and Ubuntu): " + library.problem();
    return api;
  }
  library.need(api.init, "ucp_init_version");
  library.need(api.cleanup, "ucp_cleanup");
  library.need(api.read_config, "ucp_config_read");
  library.need(api.release_config, "ucp_config_release");
  library.need(api.create_worker, "ucp_worker_create");
  library.need(api.destroy_worker, "ucp_worker_destroy");
  library.need(api.get_address, "ucp_worker_get_address");
  library.need(api.release_address, "ucp_worker_release_address");
  library.need(api.get_fd, "ucp_worker_get_efd");
  library.need(api.arm, "ucp_worker_arm");
  library.need(api.progress, "ucp_worker_progress");
  library.need(api.create_endpoint, "ucp_ep_create");
  library.need(api.close_endpoint, "ucp_ep_close_nbx");
  library.need(api.send, "ucp_tag_send_nbx");
  library.need(api.receive, "ucp_tag_recv_nbx");
  library.need(api.look_at, "ucp_request_check_status");
  library.need(api.cancel, "ucp_request_cancel");
  library.need(api.free, "ucp_request_free");
  library.need(api.describe, "ucs_status_string");
  if (!library.missing().empty()) api.error = "the UCX that is installed has no " + library.missing();
  return api;
}

const Api& ucp() {
  static const Api api = load();
  return api;
}

tl::unexpected<Error> refusal(const char* what, Outcome outcome) {
  return strait::fail(Code::system_error, std::string("UCX cannot ") + what + ": " + ucp().describe(outcome) +
                                              ". UCX_LOG_LEVEL=info shows why, `ucx_info -d` what it finds");
}

/// All buffers lie in host memory; the parameters say so, which spares UCX finding out.
RequestParameters request_parameters() {
  RequestParameters parameters{};
  parameters.fields = request_memory_type;
  parameters.memory_type = memory_type_host;
  return parameters;
}

/// Bounded, so that a peer that sends without pause does not keep the others waiting.
constexpr int most_turns = 64;

/// Returns the tag of a message: the sender in the upper 24 bits, the message's number in the lower 40.
std::uint64_t tag_of(std::uint32_t sender, std::uint64_t number) { return std::uint64_t{sender} << 40 | number; }

}  // namespace

Result<std::unique_ptr<Worker>> Worker::open(std::uint32_t rank, std::uint32_t ranks) {
  if (!ucp().error.empty()) return strait::fail(Code::unsupported, ucp().error);
  std::unique_ptr<Worker> worker(new Worker(rank, ranks));
  STRAIT_TRY(worker->prepare());
  return worker;
}

Status Worker::prepare() {
  const SignalsBlocked inherited;  // inherited by threads that UCX may start
  Config config = nullptr;
  if (const Outcome read = ucp().read_config(nullptr, nullptr, &config); read != Outcome::ok)
    return refusal("read its environment variables", read);
  ContextParameters about{};
  about.fields = context_features;
  about.features = feature_tag | feature_wakeup;
  const Outcome begun = ucp().init(api_major, api_minor, &about, config, &context_);
  ucp().release_config(config);
  if (begun != Outcome::ok) return refusal("begin", begun);
  WorkerParameters how{};
  how.fields = worker_thread_mode;
  how.thread_mode = thread_mode_serialized;
  if (const Outcome made = ucp().create_worker(context_, &how, &worker_); made != Outcome::ok)
    return refusal("make a worker", made);
  Address address = nullptr;
  std::size_t bytes = 0;
  if (const Outcome got = ucp().get_address(worker_, &address, &bytes); got != Outcome::ok)
    return refusal("tell its address", got);
  const auto* const begin = reinterpret_cast<const std::byte*>(address);
  address_.assign(begin, begin + bytes);
  ucp().release_address(worker_, address);
  if (const Outcome got = ucp().get_fd(worker_, &fd_); got != Outcome::ok) return refusal("be slept on", got);
  return {};
}

Worker::~Worker() {
  for (const InFlight& each : in_flight_) {
    ucp().cancel(worker_, each.request);
    ucp().free(each.request);
  }
  RequestParameters by_force{};
  by_force.fields = request_flags;
  by_force.flags = close_by_force;
  for (const Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    void* const closing = ucp().close_endpoint(peer.endpoint, &by_force);
    if (closing != nullptr && !is_error(closing)) ucp().free(closing);
  }
  if (worker_ != nullptr) ucp().destroy_worker(worker_);
  if (context_ != nullptr) ucp().cleanup(context_);
}

Status Worker::connect(std::uint32_t peer, std::span<const std::byte> address) {
  EndpointParameters how{};
  how.fields = endpoint_address | endpoint_error_mode | endpoint_error_handler;
  how.address = address.data();
  how.error_mode = error_mode_peer;  // otherwise UCX ends the process when a peer dies
  how.handle_error = &Worker::handle_error;
  how.argument = &peers_[peer];
  if (const Outcome made = ucp().create_endpoint(worker_, &how, &peers_[peer].endpoint); made != Outcome::ok) {
    peers_[peer].endpoint = nullptr;
    return refusal("connect", made);
  }
  return {};
}

void Worker::handle_error(void* peer, Endpoint /*endpoint*/, Outcome outcome) {
  static_cast<Peer*>(peer)->failure = std::string("UCX: ") + ucp().describe(outcome);
}

void Worker::fail(std::uint32_t peer, Outcome outcome) {
  if (peers_[peer].failure.empty()) handle_error(&peers_[peer], nullptr, outcome);
  peers_[peer].has_lost = true;
}

void Worker::send(std::uint32_t to, std::span<const std::byte> bytes) {
  in_flight_.reserve(in_flight_.size() + 1);
  const RequestParameters parameters = request_parameters();
  Peer& peer = peers_[to];
  follow(ucp().send(peer.endpoint, bytes.data(), bytes.size(), tag_of(rank_, peer.sent), &parameters), to, nullptr);
  ++peer.sent;
}

void Worker::receive(std::uint32_t from, std::span<std::byte> place, bool& has_arrived) {
  in_flight_.reserve(in_flight_.size() + 1);
  const RequestParameters parameters = request_parameters();
  Peer& peer = peers_[from];
  has_arrived = false;
  follow(
      ucp().receive(worker_, place.data(), place.size(), tag_of(from, peer.received), ~std::uint64_t{0}, &parameters),
      from, &has_arrived);
  ++peer.received;
}

void Worker::follow(void* request, std::uint32_t peer, bool* has_arrived) {
  if (is_error(request))
    fail(peer, error_of(request));
  else if (request != nullptr)
    in_flight_.push_back({request, peer, has_arrived});
  else if (has_arrived != nullptr)
    *has_arrived = true;
}

void Worker::progress() {
  for (int turn = 0; turn < most_turns && ucp().progress(worker_) != 0;) ++turn;
  std::erase_if(in_flight_, [this](const InFlight& each) {
    const Outcome outcome = ucp().look_at(each.request);
    if (outcome == Outcome::in_progress) return false;
    if (outcome != Outcome::ok)
      fail(each.peer, outcome);
    else if (each.has_arrived != nullptr)
      *each.has_arrived = true;
    ucp().free(each.request);
    return true;
  });
}

bool Worker::has_lost(std::uint32_t peer) const {
  const auto is_with = [peer](const InFlight& each) { return each.peer == peer; };
  const Peer& about = peers_[peer];
  return about.has_lost ||
         (!about.failure.empty() && (about.sent != 0 || std::any_of(in_flight_.begin(), in_flight_.end(), is_with)));
}

bool Worker::is_sending_to(std::uint32_t peer) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [peer](const InFlight& each) { return each.peer == peer && each.has_arrived == nullptr; });
}

/// A worker that cannot be armed for another reason is looked at when the sleep ends by its timeout.
bool Worker::prepare_sleep() { return ucp().arm(worker_) != Outcome::busy; }

}  // namespace strait::ucx
