#include "fake_pmix.hpp"

#include <pmix.h>

#include <cstring>

namespace strait::testing {

FakePmix& fake_pmix() {
  static auto* const fake = new FakePmix;  // never destroyed: threads that call it may outlive main()
  return *fake;
}

}  // namespace strait::testing

using strait::testing::fake_pmix;

namespace {

/// As while the server is stopped. Returns with the lock held.
std::unique_lock<std::mutex> wait_while(const bool& hangs) {
  std::unique_lock lock(fake_pmix().mutex);
  fake_pmix().changed.wait(lock, [&] { return !hangs; });
  return lock;
}

}  // namespace

extern "C" {

pmix_status_t PMIx_Init(pmix_proc_t* self, pmix_info_t*, size_t) {
  const auto lock = wait_while(fake_pmix().init_hangs);
  std::strcpy(self->nspace, "fake");
  self->rank = 0;
  ++fake_pmix().open;
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Finalize(const pmix_info_t*, size_t) {
  const auto lock = wait_while(fake_pmix().finalize_hangs);
  --fake_pmix().open;
  fake_pmix().changed.notify_all();
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Put(pmix_scope_t, const pmix_key_t, pmix_value_t* value) {
  const std::scoped_lock lock(fake_pmix().mutex);
  fake_pmix().text = value->data.string;
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Commit() { return PMIX_SUCCESS; }

pmix_status_t PMIx_Fence_nb(const pmix_proc_t*, size_t, const pmix_info_t*, size_t, pmix_op_cbfunc_t done, void* data) {
  done(PMIX_SUCCESS, data);
  return PMIX_SUCCESS;
}

pmix_status_t PMIx_Get_nb(const pmix_proc_t* whose, const pmix_key_t, const pmix_info_t*, size_t,
                          pmix_value_cbfunc_t done, void* data) {
  std::string text;
  {
    const std::scoped_lock lock(fake_pmix().mutex);
    text = fake_pmix().text;
  }
  pmix_value_t value{};
  const bool of_job = whose->rank == PMIX_RANK_WILDCARD;
  value.type = of_job ? PMIX_UINT32 : PMIX_STRING;
  if (of_job)
    value.data.uint32 = 1;
  else
    value.data.string = text.data();
  done(PMIX_SUCCESS, &value, data);
  return PMIX_SUCCESS;
}

const char* PMIx_Error_string(pmix_status_t) { return "an error of the fake"; }
}
