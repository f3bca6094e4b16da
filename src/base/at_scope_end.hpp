#pragma once

#include <utility>

namespace strait {

/// Does something when it goes out of scope, whichever way that comes about.
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
