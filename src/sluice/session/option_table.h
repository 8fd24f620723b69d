#pragma once
#include "sluice/base/options/option.h"
#include "sluice/session/options.h"

namespace sluice {

/// Returns the options of a session as data.
const OptionTable<SessionOptions>& session_table();

}  // namespace sluice
