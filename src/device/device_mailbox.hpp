#pragma once

#include "device/device_rank.hpp"
#include "device/device_reducers.hpp"
#include "kernels/launch.hpp"

namespace strait {

/// Reports what kernels of this rank have written to the mailbox since the last time: warns the user of a long wait, or
/// raises the error of one that has passed its deadline on all ranks. From any thread.
void tell_of_mailbox(kernels::Mailbox& mailbox, const DeviceRank::Request& request, const DeviceReducers& reducers);

}  // namespace strait
