/// Strait for C++: owners and types over strait.h, which says what every call means.
///
///   strait::Communicator comm = strait::Communicator::from_environment();
///   std::vector<float> gradients = ...;
///   comm.all_reduce(std::span(gradients), straitSum);
///
/// Failures are thrown as strait::Exception. Header only, C++20.
#ifndef STRAIT_HPP_
#define STRAIT_HPP_

#if __cplusplus < 201709L  // g++ 10 with -std=c++20 says 201709
#error "strait.hpp needs C++20: compile with -std=c++20, or target_compile_features(... PRIVATE cxx_std_20)"
#endif

#include <strait/strait.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace strait {
/// Inline, so that users need not write its name; named, so that these types differ from the library's own.
inline namespace api {

/// A call that failed. result() is the class of the failure; what() says what failed, where, and the remedy.
class Exception : public std::runtime_error {
 public:
  Exception(straitResult_t result, const std::string& message) : std::runtime_error(message), result_(result) {}
  straitResult_t result() const noexcept { return result_; }

 private:
  straitResult_t result_;
};

/// Throws if `result` is not straitSuccess. `comm` may be null.
inline void throw_on_failure(straitResult_t result, straitComm_t comm = nullptr) {
  if (result == straitSuccess) return;
  const std::string detail = straitGetLastError(comm);
  throw Exception(result, detail.empty() ? straitGetErrorString(result) : detail);
}

/// The straitDataType_t of T. Specialise it for your own 16-bit and 8-bit floating-point types:
///   template <> inline constexpr straitDataType_t strait::data_type<my::bf16> = straitBfloat16;
template <class T>
inline constexpr straitDataType_t data_type = [] {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, long double> &&
                    !(std::is_integral_v<T> && sizeof(T) == 2),
                "Strait has no element type for T: specialise strait::data_type<T>");
  if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? straitFloat32 : straitFloat64;
  if (sizeof(T) == 1) return std::is_signed_v<T> ? straitInt8 : straitUint8;
  if (sizeof(T) == 4) return std::is_signed_v<T> ? straitInt32 : straitUint32;
  return std::is_signed_v<T> ? straitInt64 : straitUint64;
}();
template <>
inline constexpr straitDataType_t data_type<std::byte> = straitUint8;

/// The ticket by which ranks find one another. Make it on one rank, and pass it on through a channel that you trust.
inline straitUniqueId make_unique_id() {
  straitUniqueId id;
  throw_on_failure(straitGetUniqueId(&id));
  return id;
}

/// While it lives, this thread's calls are recorded; end() runs them together. If the scope is left without end(), as
/// by an exception, none of them runs, and none of the enclosing groups' calls either: their buffers may be gone by
/// then.
class Group {
 public:
  Group() { throw_on_failure(straitGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (open_) static_cast<void>(straitGroupCancel());
  }
  void end() {
    open_ = false;
    throw_on_failure(straitGroupEnd());
  }

 private:
  bool open_ = true;
};

/// Host memory that other processes of the host can read in place (straitMemAlloc).
template <class T>
class Memory {
  static_assert(std::is_trivial_v<T>, "Strait's memory holds plain elements");

 public:
  explicit Memory(std::size_t count) : count_(count) {
    if (count > SIZE_MAX / sizeof(T)) throw Exception(straitOutOfMemory, "Memory: more elements than can be addressed");
    void* data = nullptr;
    throw_on_failure(straitMemAlloc(&data, count * sizeof(T)));
    data_ = static_cast<T*>(data);
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) straitMemFree(data_);
  }
  std::span<T> span() const noexcept { return {data_, count_}; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// A registration of memory with a communicator, made by Communicator::register_memory. The destructor undoes it, and
/// must run before the communicator's.
class Registration {
 public:
  Registration(straitComm_t comm, void* handle) : comm_(comm), handle_(handle) {}
  Registration(Registration&& other) noexcept : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)) {}
  Registration& operator=(Registration&& other) noexcept {
    std::swap(comm_, other.comm_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Registration() {
    if (handle_ != nullptr) straitCommDeregister(comm_, handle_);
  }

 private:
  straitComm_t comm_;
  void* handle_;
};

/// One rank's handle of a communicator. Move only; the destructor calls straitCommDestroy. Buffers are spans; lengths
/// that must agree are checked. If the send and the receive span are the same memory, the call is in place.
class Communicator {
 public:
  Communicator(const straitUniqueId& id, int rank, int ranks, const straitConfig_t* config = nullptr) {
    throw_on_failure(straitCommInitRank(&comm_, ranks, &id, rank, config));
  }
  /// As straitCommInitEnv: joins the ranks of the launcher; without a launcher, one rank.
  static Communicator from_environment(const straitConfig_t* config = nullptr) {
    straitComm_t comm = nullptr;
    throw_on_failure(straitCommInitEnv(&comm, config));
    return Communicator(comm);
  }
  /// Takes ownership of a communicator of the C interface.
  explicit Communicator(straitComm_t comm) noexcept : comm_(comm) {}
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Communicator() { straitCommDestroy(comm_); }

  /// For calls of the C interface; null if split() left this rank out.
  straitComm_t get() const noexcept { return comm_; }
  explicit operator bool() const noexcept { return comm_ != nullptr; }

  int rank() const { return number(straitCommUserRank); }
  int ranks() const { return number(straitCommCount); }
  /// As straitCommGetTransport.
  const char* transport() const {
    const char* name = nullptr;
    check(straitCommGetTransport(comm_, &name, nullptr));
    return name;
  }

  Communicator split(int color, int key, const straitConfig_t* config = nullptr) const {
    straitComm_t part = nullptr;
    check(straitCommSplit(comm_, color, key, &part, config));
    return Communicator(part);
  }
  /// A communicator of its ranks that are not excluded, even after it has failed (straitCommShrink).
  Communicator shrink(std::span<const int> excluded, const straitConfig_t* config = nullptr) const {
    straitComm_t smaller = nullptr;
    check(straitCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &smaller, config));
    return Communicator(smaller);
  }
  /// Waits until this rank's GPU has finished all calls (straitCommSynchronize).
  void synchronize() const { check(straitCommSynchronize(comm_)); }
  /// Whether this rank's GPU has finished all calls (straitCommQuery); from any thread.
  bool is_done() const {
    int done = 0;
    check(straitCommQuery(comm_, &done));
    return done != 0;
  }
  void abort() const { check(straitCommAbort(comm_)); }
  /// The sticky error; from any thread.
  straitResult_t error() const {
    straitResult_t error = straitSuccess;
    check(straitCommGetAsyncError(comm_, &error));
    return error;
  }
  /// Writes the last calls of its ranks for `strait trace`; without a path, to the folder that STRAIT_FLIGHT_RECORDER
  /// names.
  void dump_flight_recorder(const char* path = nullptr) const { check(straitCommDumpFlightRecorder(comm_, path)); }
  template <class T>
  [[nodiscard]] Registration register_memory(const Memory<T>& memory) const {
    void* handle = nullptr;
    check(straitCommRegister(comm_, memory.span().data(), memory.span().size_bytes(), &handle));
    return Registration(comm_, handle);
  }

  template <class T>
  void all_reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive, straitRedOp_t op = straitSum,
                  straitStream_t stream = nullptr, const straitCallOptions_t* options = nullptr) const {
    same(send.size(), receive.size(), "all_reduce: the spans must be equally long");
    check(
        straitAllReduceWithOptions(send.data(), receive.data(), send.size(), data_type<T>, op, comm_, stream, options));
  }
  /// In place.
  template <class T>
  void all_reduce(std::span<T> buffer, straitRedOp_t op = straitSum, straitStream_t stream = nullptr,
                  const straitCallOptions_t* options = nullptr) const {
    all_reduce<T>(buffer, buffer, op, stream, options);
  }
  template <class T>
  void all_gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive, straitStream_t stream = nullptr,
                  const straitCallOptions_t* options = nullptr) const {
    same(send.size() * count(), receive.size(), "all_gather: the receive span must hold one send span a rank");
    check(straitAllGatherWithOptions(send.data(), receive.data(), send.size(), data_type<T>, comm_, stream, options));
  }
  template <class T>
  void reduce_scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive, straitRedOp_t op = straitSum,
                      straitStream_t stream = nullptr, const straitCallOptions_t* options = nullptr) const {
    same(send.size(), receive.size() * count(), "reduce_scatter: the send span must hold one receive span a rank");
    check(straitReduceScatterWithOptions(send.data(), receive.data(), receive.size(), data_type<T>, op, comm_, stream,
                                         options));
  }
  template <class T>
  void all_to_all(std::span<const std::type_identity_t<T>> send, std::span<T> receive, straitStream_t stream = nullptr,
                  const straitCallOptions_t* options = nullptr) const {
    same(send.size(), receive.size(), "all_to_all: the spans must be equally long");
    same(send.size() % count(), 0, "all_to_all: the spans must divide into one block a rank");
    check(straitAllToAllWithOptions(send.data(), receive.data(), send.size() / count(), data_type<T>, comm_, stream,
                                    options));
  }
  /// Counts and offsets in elements, by rank.
  template <class T>
  void all_to_all_v(std::span<const std::type_identity_t<T>> send, std::span<const std::size_t> send_counts,
                    std::span<const std::size_t> send_offsets, std::span<T> receive,
                    std::span<const std::size_t> receive_counts, std::span<const std::size_t> receive_offsets,
                    straitStream_t stream = nullptr) const {
    for (const std::size_t size :
         {send_counts.size(), send_offsets.size(), receive_counts.size(), receive_offsets.size()})
      same(size, count(), "all_to_all_v: there must be one count and one offset a rank");
    for (std::size_t r = 0; r < count(); ++r)
      if (send_offsets[r] + send_counts[r] > send.size() || receive_offsets[r] + receive_counts[r] > receive.size())
        throw Exception(straitInvalidArgument, "all_to_all_v: a block ends beyond its span");
    check(straitAllToAllv(send.data(), send_counts.data(), send_offsets.data(), receive.data(), receive_counts.data(),
                          receive_offsets.data(), data_type<T>, comm_, stream));
  }
  /// From the root's buffer into the buffers of all others.
  template <class T>
  void broadcast(std::span<T> buffer, int root, straitStream_t stream = nullptr,
                 const straitCallOptions_t* options = nullptr) const {
    check(straitBroadcastWithOptions(buffer.data(), buffer.data(), buffer.size(), data_type<T>, root, comm_, stream,
                                     options));
  }
  /// `receive` is used on the root only, and may be empty elsewhere.
  template <class T>
  void reduce(std::span<const std::type_identity_t<T>> send, std::span<T> receive, int root,
              straitRedOp_t op = straitSum, straitStream_t stream = nullptr,
              const straitCallOptions_t* options = nullptr) const {
    if (rank() == root) same(send.size(), receive.size(), "reduce: the spans must be equally long");
    check(straitReduceWithOptions(send.data(), receive.data(), send.size(), data_type<T>, op, root, comm_, stream,
                                  options));
  }
  template <class T>
  void gather(std::span<const std::type_identity_t<T>> send, std::span<T> receive, int root,
              straitStream_t stream = nullptr, const straitCallOptions_t* options = nullptr) const {
    if (rank() == root)
      same(send.size() * count(), receive.size(), "gather: the receive span must hold one send span a rank");
    check(
        straitGatherWithOptions(send.data(), receive.data(), send.size(), data_type<T>, root, comm_, stream, options));
  }
  template <class T>
  void scatter(std::span<const std::type_identity_t<T>> send, std::span<T> receive, int root,
               straitStream_t stream = nullptr, const straitCallOptions_t* options = nullptr) const {
    if (rank() == root)
      same(send.size(), receive.size() * count(), "scatter: the send span must hold one receive span a rank");
    check(straitScatterWithOptions(send.data(), receive.data(), receive.size(), data_type<T>, root, comm_, stream,
                                   options));
  }
  template <class T>
  void send(std::span<T> buffer, int peer, straitStream_t stream = nullptr) const {
    check(straitSend(buffer.data(), buffer.size(), data_type<std::remove_const_t<T>>, peer, comm_, stream));
  }
  template <class T>
  void receive(std::span<T> buffer, int peer, straitStream_t stream = nullptr) const {
    check(straitRecv(buffer.data(), buffer.size(), data_type<T>, peer, comm_, stream));
  }
  void barrier(straitStream_t stream = nullptr) const { check(straitBarrier(comm_, stream)); }

 private:
  void check(straitResult_t result) const { throw_on_failure(result, comm_); }
  static void same(std::size_t a, std::size_t b, const char* message) {
    if (a != b) throw Exception(straitInvalidArgument, message);
  }
  int number(straitResult_t (*query)(straitComm_t, int*)) const {
    int value = 0;
    check(query(comm_, &value));
    return value;
  }
  std::size_t count() const { return static_cast<std::size_t>(ranks()); }

  straitComm_t comm_ = nullptr;
};

}  // namespace api
}  // namespace strait

#endif
