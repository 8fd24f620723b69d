#include "sluice/train/options/schedule_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace sluice::train {
namespace {

std::string decay_word(Decay decay) { return forms::words<Decay>(decay_words()).print(decay); }

// Requires one of some decays: "{decay} linear, cosine or restarts".
Requirement<LearningRateSchedule> decays(std::vector<Decay> all) {
  std::string text = "{decay} ";
  for (size_t i = 0; i < all.size(); ++i)
    text += (i == 0 ? "" : i + 1 == all.size() ? " or " : ", ") + decay_word(all[i]);
  return {std::move(text), [all = std::move(all)](const LearningRateSchedule& o) {
            return std::find(all.begin(), all.end(), o.decay) != all.end();
          }};
}

// Integers between commas; an empty list is printed as "none".
void add_milestones(OptionTable<LearningRateSchedule>& t) {
  t.add({"milestones", OptionType::kList, "STEPS",
         "Reduce the learning rate from each of these steps on, for example 1000,2000",
         [](const LearningRateSchedule& o) {
           return o.milestones.empty() ? std::string("none")
                                       : fmt::format("{}", fmt::join(o.milestones, ", "));
         },
         [](LearningRateSchedule& o, const OptionTexts& texts) {
           o.milestones.clear();
           if (texts == OptionTexts{"none"}) return;
           for (const std::string& text : texts)
             forms::assign(o.milestones.emplace_back(), forms::integers<int64_t>(1), {text});
         }})
      .named("--lr-milestones")
      .require(decays({Decay::kMilestones}));
}

OptionTable<OneCycle> one_cycle_table() {
  const forms::Interval at_least_one{.min = 1};
  OptionTable<OneCycle> t;
  t.add("pct_start", &OneCycle::pct_start,
        forms::floats({.max = 1, .excludes_min = true, .excludes_max = true}, "FRACTION"),
        "Raise the learning rate in this fraction of the steps")
      .named("--lr-pct-start");
  t.add("div_factor", &OneCycle::div_factor, forms::floats(at_least_one),
        "Start at the learning rate divided by X")
      .named("--lr-div-factor");
  t.add("final_div_factor", &OneCycle::final_div_factor, forms::floats(at_least_one),
        "End at the first rate divided by X")
      .named("--lr-final-div-factor");
  t.add("anneal", &OneCycle::anneal,
        forms::words<OneCycle::Anneal>(
            {{"cosine", OneCycle::Anneal::kCosine}, {"linear", OneCycle::Anneal::kLinear}}),
        "Change the learning rate along half waves of a cosine, or linearly")
      .named("--lr-anneal");
  t.add("three_phase", &OneCycle::three_phase, forms::flags(),
        "Fall to the first rate as fast as the rate rose, then to the last one")
      .named("--lr-three-phase");
  return t;
}

OptionTable<Plateau> plateau_table() {
  OptionTable<Plateau> t;
  t.add("mode", &Plateau::mode,
        forms::words<Plateau::Mode>({{"min", Plateau::Mode::kMin}, {"max", Plateau::Mode::kMax}}),
        "Take smaller (min) or larger (max) values of the validation as better")
      .named("--plateau-mode");
  t.add("patience", &Plateau::patience, forms::integers<int64_t>(0),
        "Keep the learning rate for N validations without improvement")
      .named("--plateau-patience");
  t.add("threshold", &Plateau::threshold, forms::floats({}),
        "Count a difference of X from the best value as an improvement")
      .named("--plateau-threshold");
  t.add("threshold_mode", &Plateau::threshold_mode,
        forms::words<Plateau::ThresholdMode>({{"relative", Plateau::ThresholdMode::kRelative},
                                              {"absolute", Plateau::ThresholdMode::kAbsolute}}),
        "Multiply the threshold by the best value (relative) or not")
      .named("--plateau-threshold-mode");
  t.add("cooldown", &Plateau::cooldown, forms::integers<int64_t>(0),
        "Ignore bad values in the N validations after a reduction")
      .named("--plateau-cooldown");
  t.add("epsilon", &Plateau::epsilon, forms::floats({}),
        "Leave out reductions of the learning rate by at most X")
      .named("--plateau-epsilon");
  return t;
}

OptionTable<LearningRateSchedule> make_schedule_table() {
  using enum Decay;
  OptionTable<LearningRateSchedule> t;
  t.add("decay", &LearningRateSchedule::decay, forms::words<Decay>(decay_words()),
        "Change the learning rate after the warm-up in this way")
      .named("--lr-schedule");
  t.add("peak", &LearningRateSchedule::peak, forms::floats({}, "RATE"),
        "Set the learning rate after the warm-up")
      .named("--lr");
  t.add("warmup_steps", &LearningRateSchedule::warmup_steps, forms::integers<int64_t>(0),
        "Raise the learning rate linearly in the first N steps")
      .require({"{decay} other than one_cycle and function", [](const LearningRateSchedule& o) {
                  return o.decay != kOneCycle && o.decay != kFunction;
                }});
  t.add("steps", &LearningRateSchedule::steps, forms::integers<int64_t>(0),
        "End the schedule after N steps");
  t.add("minimum", &LearningRateSchedule::minimum, forms::floats({}, "RATE"),
        "End the decay of the learning rate at RATE, at most that of the peak")
      .named("--min-lr")
      .require(decays({kLinear, kCosine, kRestarts, kStep, kMilestones, kInverseSqrt, kPlateau}));
  t.add("period", &LearningRateSchedule::period, forms::integers<int64_t>(1),
        "Restart after N steps (restarts), reduce the rate every N steps (step), or halve it after "
        "3N steps (inverse_sqrt)")
      .named("--lr-period")
      .require(decays({kRestarts, kStep, kInverseSqrt}));
  t.add("multiplier", &LearningRateSchedule::multiplier, forms::integers<int64_t>(1),
        "Make each cycle N times as long as the cycle before it")
      .named("--lr-multiplier")
      .require(decays({kRestarts}));
  t.add("factor", &LearningRateSchedule::factor,
        forms::floats({.max = 1, .excludes_min = true, .excludes_max = true}, "FACTOR"),
        "Multiply the learning rate by FACTOR at a reduction")
      .named("--lr-factor")
      .require(decays({kStep, kMilestones, kPlateau}));
  add_milestones(t);
  const OptionTable<OneCycle> one_cycle = one_cycle_table();
  for (const Option<OneCycle>& o : one_cycle)
    t.add_member("one_cycle.", &LearningRateSchedule::one_cycle, o).require(decays({kOneCycle}));
  const OptionTable<Plateau> plateau = plateau_table();
  for (const Option<Plateau>& o : plateau)
    t.add_member("plateau.", &LearningRateSchedule::plateau, o).require(decays({kPlateau}));
  t.add({"function", OptionType::kText, "", "Compute the learning rate by a function",
         [](const LearningRateSchedule& o) -> std::string {
           return o.function ? "a function" : "none";
         }})
      .require(decays({kFunction}));
  return t;
}

// Returns the error of members that do not fit each other, with names of members in braces; empty
// without one.
std::string combination_fault(const LearningRateSchedule& o) {
  const auto requires_member = [&](const char* member) {
    return fmt::format("{{decay}} {} requires {{{}}} (it is {})", decay_word(o.decay), member,
                       schedule_table().find(member).print(o));
  };
  if (o.minimum > o.peak)
    return fmt::format("{{minimum}}: must be at most the learning rate, {}, got {}", o.peak,
                       o.minimum);
  if ((o.decay == Decay::kRestarts || o.decay == Decay::kStep) && !o.period)
    return requires_member("period");
  if (o.decay == Decay::kInverseSqrt && !o.period && o.warmup_steps == 0)
    return "{decay} inverse_sqrt requires {period} or {warmup_steps} (both are absent)";
  if (o.decay == Decay::kMilestones && o.milestones.empty()) return requires_member("milestones");
  if (o.decay == Decay::kFunction && !o.function) return requires_member("function");
  if (o.decay != Decay::kFunction && o.function)
    return fmt::format("{{function}} requires {{decay}} function (it is {})", decay_word(o.decay));
  int64_t last = o.warmup_steps;
  for (const int64_t milestone : o.milestones) {
    if (milestone <= last)
      return fmt::format("{{milestones}}: must be ascending and above the {} warm-up steps, got {}",
                         o.warmup_steps, fmt::join(o.milestones, ", "));
    last = milestone;
  }
  if (o.plateau.threshold_mode == Plateau::ThresholdMode::kRelative && o.plateau.threshold >= 1)
    return fmt::format("{{plateau.threshold}}: must be below 1 if it is relative, got {}",
                       o.plateau.threshold);
  return "";
}

}  // namespace

const forms::Words<Decay>& decay_words() {
  static const forms::Words<Decay> words = {
      {"constant", Decay::kConstant},  {"linear", Decay::kLinear},
      {"cosine", Decay::kCosine},      {"restarts", Decay::kRestarts},
      {"step", Decay::kStep},          {"milestones", Decay::kMilestones},
      {"one_cycle", Decay::kOneCycle}, {"inverse_sqrt", Decay::kInverseSqrt},
      {"plateau", Decay::kPlateau},    {"function", Decay::kFunction}};
  return words;
}

const OptionTable<LearningRateSchedule>& schedule_table() {
  static const OptionTable<LearningRateSchedule> table = make_schedule_table();
  return table;
}

void check_combination(std::string_view prefix, const LearningRateSchedule& schedule,
                       OptionNames names) {
  std::string fault = combination_fault(schedule);
  if (fault.empty()) return;
  while (!sluice::internal::name_in_braces(fault).empty()) {
    fault = sluice::internal::replace_braces(fault, [&](const std::string& name) {
      return names == OptionNames::kMembers ? name : flag_of(schedule_table().find(name));
    });
  }
  fail(ErrorKind::kUsage, "{}{}", prefix, fault);
}

void check_schedule(std::string_view what, const LearningRateSchedule& schedule) {
  check_learning_rate(fmt::format("{}.peak:", what), schedule.peak);
  try {
    schedule_table().check(schedule);
  } catch (const Error& e) {
    fail(e.kind(), "{}.{}", what, e.what());
  }
  check_combination(fmt::format("{}.", what), schedule, OptionNames::kMembers);
}

}  // namespace sluice::train
