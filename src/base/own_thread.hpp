#pragma once

namespace strait {

/// Whether this thread is one of Strait's own, which runs nothing of the user's: it says so when it begins. What it
/// selects, as a CUDA device, needs no putting back.
inline thread_local bool is_own_thread = false;

}  // namespace strait
