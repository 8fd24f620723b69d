#pragma once
#include "sluice/session/options.h"

namespace sluice {

/// Makes an opaque test device (tests/opaque), in programs that link one; null in all others.
inline DeviceChoice (*make_opaque_device)() = nullptr;

}  // namespace sluice
