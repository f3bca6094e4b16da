#pragma once

#include <memory>
#include <type_traits>

#include "strait/strait.h"

namespace strait::tools {

struct DestroyComm {
  void operator()(straitComm_t comm) const { straitCommDestroy(comm); }
};
/// A communicator that is destroyed at the end.
using OwnedComm = std::unique_ptr<std::remove_pointer_t<straitComm_t>, DestroyComm>;

}  // namespace strait::tools
