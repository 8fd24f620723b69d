#pragma once
#include "sluice/session/options.h"

namespace sluice::opaque {

/// Returns an opaque device as a device of a session. SLUICE_OPAQUE=threads gives each queue a
/// thread. SLUICE_OPAQUE_SEED sets the seed of what is random. All choices that exist at a time are
/// of one family, so they may exchange data.
DeviceChoice choice();

}  // namespace sluice::opaque
