#include "bootstrap/pmix.hpp"

#include <pmix.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/own_thread.hpp"
#include "base/shared_library.hpp"
#include "base/shortage.hpp"
#include "bootstrap/bootstrap.hpp"

namespace strait {
namespace {

/// The functions of libpmix that are used here, from the libpmix of the launcher's installation.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get_nb) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
};

constexpr const char* remedy = ". Set STRAIT_ROOT and STRAIT_KEY on all ranks instead";

Result<Library> load_library() {
  // Never unloaded, because libpmix has threads of its own. RTLD_GLOBAL, because its plug-ins look for its symbols.
  SharedLibrary pmix("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (!pmix.is_loaded())
    return fail(Code::unsupported,
                "the launcher offers PMIx, but libpmix cannot be loaded: " + pmix.problem() + remedy);
  Library library;
  pmix.need(library.init, "PMIx_Init");
  pmix.need(library.finalize, "PMIx_Finalize");
  pmix.need(library.put, "PMIx_Put");
  pmix.need(library.commit, "PMIx_Commit");
  pmix.need(library.fence, "PMIx_Fence_nb");
  pmix.need(library.get, "PMIx_Get_nb");
  pmix.need(library.error_string, "PMIx_Error_string");
  if (!pmix.missing().empty()) return fail(Code::unsupported, "libpmix.so.2 lacks " + pmix.missing() + remedy);
  return library;
}

/// The result of one call. Shared by the waiter and libpmix, which may answer after the waiter has given up.
struct Answer {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<pmix_status_t> status;
  bool is_awaited = true;
  pmix_proc_t self{};  ///< of PMIx_Init
  std::string text;
  std::uint32_t number = 0;

  bool still_awaited() {
    std::lock_guard lock(mutex);
    return is_awaited;
  }
  /// Returns whether anyone still waits for it.
  bool finish(pmix_status_t result) {
    std::lock_guard lock(mutex);
    status = result;
    arrived.notify_one();
    return is_awaited;
  }

  static std::shared_ptr<Answer>* hold(const std::shared_ptr<Answer>& answer) {
    return new std::shared_ptr<Answer>(answer);
  }
  static void deliver(void* held, pmix_status_t status, const pmix_value_t* value) {
    std::unique_ptr<std::shared_ptr<Answer>> owner(static_cast<std::shared_ptr<Answer>*>(held));
    Answer& answer = **owner;
    std::lock_guard lock(answer.mutex);
    answer.status = status;
    if (value && value->type == PMIX_STRING && value->data.string) answer.text = value->data.string;
    if (value && value->type == PMIX_UINT32) answer.number = value->data.uint32;
    answer.arrived.notify_one();
  }
};

/// Held by a call of libpmix that may hang: the next one waits for it, because it would find libpmix half initialized.
std::mutex& turn() {
  static auto* const mutex = new std::mutex;  // never destroyed: the thread may outlive main()
  return *mutex;
}

/// Begins a call of libpmix that waits for the launcher's server as long as that takes, on a thread of its own, which
/// may outlive the wait for the answer.
template <class Call>
Result<std::shared_ptr<Answer>> begin(Call call) {
  return catch_shortage([&]() -> Result<std::shared_ptr<Answer>> {
    auto answer = std::make_shared<Answer>();
    const SignalsBlocked blocked;
    std::thread([answer, call] {
      is_own_thread = true;
      const std::scoped_lock own_turn(turn());
      if (answer->still_awaited()) call(*answer);
    }).detach();
    return answer;
  });
}

/// Why an answer may not come, and what to do about it.
struct Cause {
  const char* text;
  const char* advice;
};
constexpr Cause missing_rank{"a rank of the job has not started to join", "Start it, or look at its output"};
constexpr Cause silent_server{"the launcher's PMIx server does not answer",
                              "Look whether mpirun, orted, prted or slurmstepd is stopped on this host"};

void on_operation(pmix_status_t status, void* held) { Answer::deliver(held, status, nullptr); }
void on_value(pmix_status_t status, pmix_value_t* value, void* held) { Answer::deliver(held, status, value); }

class PmixSession {
 public:
  static Result<std::unique_ptr<PmixSession>> open(const Wait& wait) {
    STRAIT_ASSIGN(Library library, load_library());
    std::unique_ptr<PmixSession> session(new PmixSession(library, wait));
    STRAIT_ASSIGN(auto answer, begin([library](Answer& init) {
                    const pmix_status_t status = library.init(&init.self, nullptr, 0);
                    if (!init.finish(status) && status == PMIX_SUCCESS) library.finalize(nullptr, 0);
                  }));
    STRAIT_TRY(session->await("PMIx_Init", *answer, silent_server, wait));
    session->self_ = answer->self;
    session->open_ = true;
    return session;
  }
  ~PmixSession() {
    // PMIx_Finalize could block forever while an answer is outstanding.
    if (!open_ || abandoned_) return;
    constexpr std::int64_t patience_ms = 1000;  // what was to be exchanged is there: nothing depends on the answer
    const auto finalize = [library = library_](Answer& answer) { answer.finish(library.finalize(nullptr, 0)); };
    if (const auto answer = begin(finalize))
      (void)await("PMIx_Finalize", **answer, silent_server, {Deadline::after_ms(patience_ms), wait_.abort});
  }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  Status put(const std::string& key, std::string text) {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    STRAIT_TRY(check("PMIx_Put", library_.put(PMIX_GLOBAL, key.c_str(), &value)));
    STRAIT_ASSIGN(auto answer, begin([library = library_](Answer& commit) { commit.finish(library.commit()); }));
    return await("PMIx_Commit", *answer, silent_server, wait_);
  }

  Status fence(const Wait& wait) {
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof(collect.key) - 1);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    auto answer = std::make_shared<Answer>();
    auto* held = Answer::hold(answer);
    return await("PMIx_Fence", library_.fence(nullptr, 0, &collect, 1, on_operation, held), held, *answer, wait);
  }

  Result<std::shared_ptr<Answer>> get(pmix_rank_t rank, const char* key) {
    pmix_proc_t whose = self_;
    whose.rank = rank;
    auto answer = std::make_shared<Answer>();
    auto* held = Answer::hold(answer);
    STRAIT_TRY(await("PMIx_Get", library_.get(&whose, key, nullptr, 0, on_value, held), held, *answer, wait_));
    return answer;
  }

 private:
  PmixSession(const Library& library, const Wait& wait) : library_(library), wait_(wait) {}

  Status check(const std::string& what, pmix_status_t status) const {
    if (status == PMIX_SUCCESS) return {};
    return fail(Code::remote_error, what + " failed: " + library_.error_string(status) + remedy);
  }

  /// For a non-blocking call that `started` says has begun, or not.
  Status await(const std::string& what, pmix_status_t started, std::shared_ptr<Answer>* held, Answer& answer,
               const Wait& wait) {
    if (started == PMIX_SUCCESS) return await(what, answer, missing_rank, wait);
    delete held;  // no callback will come
    return started == PMIX_OPERATION_SUCCEEDED ? Status{} : check(what, started);
  }

  Status await(const std::string& what, Answer& answer, const Cause& cause, const Wait& wait) {
    std::unique_lock lock(answer.mutex);
    while (!answer.status) {
      const bool aborted = wait.aborted();
      abandoned_ = aborted || wait.deadline.expired();
      answer.is_awaited = !abandoned_;
      if (aborted) return fail(Code::aborted, "aborted during " + what);
      if (abandoned_)
        return fail(Code::timeout,
                    what + " did not finish by the deadline: " + cause.text + ". " + cause.advice + remedy);
      wait.remind(what + " of the launcher has not finished: " + cause.text + ". " + cause.advice);
      answer.arrived.wait_for(lock, std::chrono::milliseconds(wait.deadline.poll_ms()));
    }
    return check(what, *answer.status);
  }

  Library library_;
  Wait wait_;
  pmix_proc_t self_{};
  bool open_ = false;
  bool abandoned_ = false;
};

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::byte b : bytes) text += {digits[std::to_integer<int>(b) >> 4], digits[std::to_integer<int>(b) & 15]};
  return text;
}

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16)));
  return bytes;
}

/// Fails with rank 0's error, and gives it to the other ranks, for which it waits for a moment.
tl::unexpected<Error> refuse(PmixSession& session, const std::string& key, const Error& why, const Wait& wait) {
  if (session.put(key, to_hex(pack_refusal(why))))
    (void)session.fence({earlier(wait.deadline, Deadline::after_ms(withdrawal_ms)), wait.abort});
  return tl::unexpected(why);
}

}  // namespace

Result<PmixMeeting> meet_through_pmix(int rank, const std::function<Result<UniqueId>()>& make_id, const Wait& wait) {
  // A process may make several communicators one after another, and stored values cannot be replaced: each gets a key
  // of its own.
  static std::atomic<int> meetings{0};
  std::string key = "strait.unique_id." + std::to_string(meetings.fetch_add(1));
  STRAIT_ASSIGN(auto session, PmixSession::open(wait));
  if (rank == 0) {
    const auto id = make_id();
    if (!id) return refuse(*session, key, id.error(), wait);
    STRAIT_TRY(session->put(key, to_hex(id->pack())));
  }
  STRAIT_TRY(session->fence(wait));
  STRAIT_ASSIGN(auto packed, session->get(0, key.c_str()));
  STRAIT_ASSIGN(auto size, session->get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE));
  PmixMeeting meeting;
  STRAIT_ASSIGN(meeting.id, unpack_id_or_refusal(from_hex(packed->text)));
  meeting.ranks = static_cast<int>(size->number);
  return meeting;
}

}  // namespace strait
