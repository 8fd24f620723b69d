#pragma once
#include <string_view>

#include "sluice/base/options/option.h"
#include "sluice/train/options.h"

namespace sluice::train {

/// Returns the words of all decays: "cosine" for Decay::kCosine.
const forms::Words<Decay>& decay_words();

/// Returns the members of LearningRateSchedule as data. Flags of `peak` and `steps` are the
/// caller's.
const OptionTable<LearningRateSchedule>& schedule_table();

/// Error{kUsage} for members that do not fit each other, named as `names` says and after `prefix`:
/// check_schedule() without the ranges and requirements of the table.
void check_combination(std::string_view prefix, const LearningRateSchedule& schedule,
                       OptionNames names);

}  // namespace sluice::train
