#pragma once

#include <utility>

namespace strait {

/// Scope guard: calls `work` when it goes out of scope, whether by return or by exception.
template <class F>
class AtScopeEnd {
 public:
  explicit AtScopeEnd(F work) : work_(std::move(work)) {}
  ~AtScopeEnd() { work_(); }
  AtScopeEnd(const AtScopeEnd&) = delete;
  AtScopeEnd& operator=(const AtScopeEnd&) = delete;

 private:
  F work_;
};

}  // namespace strait
