#pragma once

#include "device/device_rank.hpp"
#include "device/device_reducers.hpp"
#include "kernels/launch.hpp"

namespace strait {

/// What kernels of this rank have said of their waits since the last time, said to the user or to all ranks: a wait
/// that is long, or longer than the deadline. From any thread.
void tell_of_mailbox(kernels::Mailbox& mailbox, const DeviceRank::Request& request, const DeviceReducers& reducers);

}  // namespace strait
