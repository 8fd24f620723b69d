#pragma once
#include "sluice/base/options/option.h"
#include "sluice/train/options.h"

namespace sluice::train {

/// Returns all options of training and inference, with those of their session, as data.
const OptionTable<Options>& options_table();

}  // namespace sluice::train
