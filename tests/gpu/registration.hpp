#pragma once

#include "gpu/device_side.hpp"

namespace strait::testing {

/// One rank's registration of memory, undone by the destructor.
class Registration {
 public:
  Registration(straitComm_t comm, void* memory, std::size_t bytes) : comm_(comm) {
    STRAIT_EXPECT_OK(straitCommRegister(comm, memory, bytes, &handle_));
  }
  ~Registration() { STRAIT_EXPECT_OK(straitCommDeregister(comm_, handle_)); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

 private:
  straitComm_t comm_;
  void* handle_ = nullptr;
};

}  // namespace strait::testing
