#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/train/options.h"

namespace sluice::train {
namespace {

// Returns the value at fraction `p` of the half wave of a cosine from `begin` to `end`.
double half_wave(double begin, double end, double p) {
  return end + (begin - end) * (1 + std::cos(std::numbers::pi * p)) / 2;
}

// Returns s / n, at most 1.
double progress(int64_t s, int64_t n) {
  return std::min(static_cast<double>(s) / static_cast<double>(std::max<int64_t>(n, 1)), 1.0);
}

// Returns step s of cycles as a fraction of its cycle.
double cycle_progress(int64_t s, int64_t period, int64_t multiplier) {
  if (multiplier == 1) return progress(s % period, period);
  while (s >= period) {
    s -= period;
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    period = period > kMax / multiplier ? kMax : period * multiplier;
  }
  return progress(s, period);
}

double one_cycle_rate(const OneCycle& o, double peak, int64_t step, int64_t steps) {
  const double start = peak / o.div_factor, end = start / o.final_div_factor;
  struct Phase {
    double last_step, from, to;
  };
  const auto n = static_cast<double>(std::max<int64_t>(steps, 1));
  const double rise = o.pct_start * n;
  Phase phases[] = {{rise - 1, start, peak}, {2 * rise - 2, peak, start}, {n - 1, start, end}};
  if (!o.three_phase) phases[1] = phases[2] = {n - 1, peak, end};
  const double at = std::min(static_cast<double>(step), n - 1);
  double begin = 0;
  for (const Phase& phase : phases) {
    if (at > phase.last_step && &phase != std::end(phases) - 1) {
      begin = phase.last_step;
      continue;
    }
    const double length = phase.last_step - begin;
    const double p = length > 0 ? (at - begin) / length : 1;
    return o.anneal == OneCycle::Anneal::kCosine ? half_wave(phase.from, phase.to, p)
                                                 : phase.from + (phase.to - phase.from) * p;
  }
  return end;
}

bool is_improvement(const Plateau& o, double value, double best) {
  const bool relative = o.threshold_mode == Plateau::ThresholdMode::kRelative;
  if (o.mode == Plateau::Mode::kMin)
    return value < (relative ? best * (1 - o.threshold) : best - o.threshold);
  return value > (relative ? best * (1 + o.threshold) : best + o.threshold);
}

}  // namespace

void check_learning_rate(std::string_view what, double rate) {
  require(std::isfinite(static_cast<float>(rate)) && rate >= 0,
          "{} must be a finite float32 of at least 0, got {}", what, number_text(rate));
}

double LearningRateSchedule::at(int64_t step, const PlateauState& state) const {
  if (decay == Decay::kFunction) {
    require(function != nullptr, "learning rate: decay function requires a function, got none");
    return function(step);
  }
  if (decay == Decay::kOneCycle) return one_cycle_rate(one_cycle, peak, step, steps);
  if (step < warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const int64_t s = step - warmup_steps, n = steps - warmup_steps;
  const int64_t length = std::max<int64_t>(period.value_or(warmup_steps), 1);
  const auto limited = [&](double part) { return std::max(peak * part, minimum); };
  switch (decay) {
    case Decay::kConstant:
    case Decay::kOneCycle:
    case Decay::kFunction:
      break;
    case Decay::kLinear:
      return minimum + (peak - minimum) * (1 - progress(s, n));
    case Decay::kCosine:
      return half_wave(peak, minimum, progress(s, n));
    case Decay::kRestarts:
      return half_wave(peak, minimum, cycle_progress(s, length, multiplier));
    case Decay::kStep:
      return limited(std::pow(factor, static_cast<double>(s / length)));
    case Decay::kMilestones: {
      const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step);
      return limited(std::pow(factor, static_cast<double>(passed - milestones.begin())));
    }
    case Decay::kInverseSqrt:
      return limited(1 / std::sqrt(1 + static_cast<double>(s) / static_cast<double>(length)));
    case Decay::kPlateau:
      return limited(state.factor);
  }
  return peak;
}

void LearningRateSchedule::observe(PlateauState& state, double value) const {
  if (decay != Decay::kPlateau) return;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double worst = plateau.mode == Plateau::Mode::kMin ? kInfinity : -kInfinity;
  if (is_improvement(plateau, value, state.best.value_or(worst))) {
    state.best = value;
    state.bad = 0;
  } else {
    ++state.bad;
  }
  if (state.cooldown > 0) {
    --state.cooldown;
    state.bad = 0;
  }
  if (state.bad <= plateau.patience) return;
  state.bad = 0;
  state.cooldown = plateau.cooldown;
  PlateauState reduced = state;
  reduced.factor *= factor;
  if (at(warmup_steps, state) - at(warmup_steps, reduced) > plateau.epsilon) state = reduced;
}

}  // namespace sluice::train
