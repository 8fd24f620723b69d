#include <algorithm>
#include <cmath>
#include <numbers>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/train/options.h"

namespace sluice::train {

void check_learning_rate(std::string_view what, double rate) {
  require(std::isfinite(static_cast<float>(rate)) && rate >= 0,
          "{} must be a finite float32 of at least 0, got {}", what, number_text(rate));
}

double LearningRateSchedule::at(int64_t step) const {
  if (step < warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const auto after = static_cast<double>(step - warmup_steps);
  const auto span = static_cast<double>(std::max<int64_t>(steps - warmup_steps, 1));
  const double progress = std::min(after / span, 1.0);
  switch (decay) {
    case Decay::kConstant:
      return peak;
    case Decay::kLinear:
      return minimum + (peak - minimum) * (1 - progress);
    case Decay::kCosine:
      return minimum + (peak - minimum) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
  return peak;
}

}  // namespace sluice::train
