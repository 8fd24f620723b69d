#pragma once
#include <memory>

#include "family.h"
#include "sluice/runtime/queue.h"

namespace sluice::opaque {

/// Creates a queue of a device.
std::unique_ptr<runtime::Queue> make_queue(const std::shared_ptr<DeviceState>& device);

/// Returns the state of an open device. Error{kInternal} for a device of another kind.
DeviceState& state_of(runtime::QueuedDevice& device);

}  // namespace sluice::opaque
