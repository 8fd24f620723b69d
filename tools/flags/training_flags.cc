#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "sluice/base/options/read_number.h"
#include "sluice/train/options/option_table.h"
#include "sluice/train/options/schedule_table.h"

#include "tools/flags/flag_table.h"
#include "tools/optimizers.h"

namespace sluice::tool {
namespace {

constexpr unsigned kOfSteps = kTrain | kEval | kPlan | kBench;
constexpr unsigned kOfUpdates = kTrain | kPlan | kBench;

constexpr auto of_size(auto member) {
  return member_path(&ToolOptions::model, &ModelOptions::sizes, member);
}
constexpr auto of_train(auto member) { return member_path(&ToolOptions::train, member); }

void add_evaluation(Section s) {
  s.add("test_batch", of_size(&models::Sizes::eval_batch), forms::integers<int64_t>(1),
        "Evaluate N samples at a time on each replica");
  s.add("test_iterations", of_train(&TrainOptions::test_iterations), forms::integers<int64_t>(1),
        "Evaluate N such batches in a call of the program");
}

void add_coefficients(Section s) {
  const TextForm<double> fraction = forms::floats({.max = 1, .excludes_max = true}, "BETA");
  s.add("beta1", of_train(&TrainOptions::beta1), fraction, "Set the decay of Adam's first moment")
      .that_decides_bits()
      .defaults_to("the optimizer's");
  s.add("beta2", of_train(&TrainOptions::beta2), fraction, "Set the decay of Adam's second moment")
      .that_decides_bits()
      .defaults_to("the optimizer's");
  s.add("weight_decay", of_train(&TrainOptions::weight_decay), forms::floats({}, "RATE"),
        "Decay the variables with two axes or more by this coefficient, and not the others")
      .that_decides_bits()
      .defaults_to("that of the optimizer, for all variables");
}

void add_step(FlagTable& table) {
  Section s(table, kOfSteps, "Training", Common::kYes);
  s.add("micro_batch", of_size(&models::Sizes::micro_batch), forms::integers<int64_t>(1),
        "Compute N samples at a time")
      .that_decides_bits();
  s.add_library("accumulate");
  s.add_library("replicas");
  s.add("optimizer", of_train(&TrainOptions::optimizer), optimizers(), "Use this optimizer")
      .that_decides_bits();
  Section rare(table, kOfSteps, "Training", Common::kNo);
  add_coefficients(rare);
  Option<ToolOptions>& norm = rare.add_library("max_grad_norm");
  norm.read = [read = norm.read](ToolOptions& o, const OptionTexts& texts) {
    read(o, texts);
    if (o.step.max_grad_norm == 0) o.step.max_grad_norm.reset();  // No limit.
  };
  rare.add_library("freeze");
  rare.add_library("accumulation_reduction");
  rare.add_library("replica_reduction");
  rare.add_library("accumulator_dtype")
      .require({"{step.accumulate} of at least 2",
                [](const ToolOptions& o) { return o.step.accumulate > 1; }});
  add_evaluation(rare);
}

constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}};

// "200" (steps), "90s", "15m" or "2h".
TextForm<SaveInterval> save_intervals() {
  return {OptionType::kText, "N|15m", "steps of at least 1, or a time such as 90s, 15m or 2h",
          [](const SaveInterval& i) {
            return i.seconds > 0 ? fmt::format("{}s", i.seconds) : fmt::format("{}", i.steps);
          },
          [](const std::string& text) -> std::optional<SaveInterval> {
            if (const auto steps = read_integer<int64_t>(text))
              return *steps > 0 ? std::optional(SaveInterval{.steps = *steps}) : std::nullopt;
            if (text.empty()) return std::nullopt;
            for (const auto& [unit, seconds] : kUnits) {
              if (text.back() != unit) continue;
              const auto number = read_real(text.substr(0, text.size() - 1));
              if (number && *number > 0) return SaveInterval{.seconds = *number * seconds};
            }
            return std::nullopt;
          }};
}

void add_checkpoints(FlagTable& table) {
  Section s(table, kTrain, "Training", Common::kYes);
  for (Section folder : {s, Section(table, kPlan, "Training", Common::kNo)})
    folder.add("checkpoint", of_train(&TrainOptions::checkpoint), forms::texts("DIR"),
               "Save checkpoints to DIR, also at the end and on signals");
  const Requirement<ToolOptions> saves{
      "{checkpoint}", [](const ToolOptions& o) { return !o.train.checkpoint.empty(); }};
  s.add("save_every", of_train(&TrainOptions::save_every), save_intervals(),
        "Save every N steps or 15m")
      .require(saves)
      .defaults_to("at the end");
  s.add("resume", of_train(&TrainOptions::resume), forms::texts("DIR"),
        "Continue the newest whole checkpoint in DIR");
  Section rare(table, kTrain, "Training", Common::kNo);
  rare.add("keep", of_train(&TrainOptions::keep), forms::integers<int64_t>(1, 1000000),
           "Keep the newest N checkpoints")
      .require(saves);
  rare.add("save_copy", of_train(&TrainOptions::save_copy),
           forms::words<train::SaveCopy>(
               {{"host", train::SaveCopy::kHost}, {"none", train::SaveCopy::kNone}}),
           "Copy the variables to host memory and write them while training (host), or let the "
           "training wait for the writing (none)")
      .require(saves);
  rare.last().commands |= kPlan;  // A plan lists the copy.
  rare.add_list("override", of_train(&TrainOptions::override), "NAMES",
                "Continue although these options differ from those of the checkpoint: accumulate, "
                "replicas, data, dtype, ...")
      .require({"{resume}", [](const ToolOptions& o) { return !o.train.resume.empty(); }});
}

void add_validation(Section s) {
  s.add("validate_every", of_train(&TrainOptions::validate_every), forms::integers<int64_t>(1),
        "Evaluate the test samples every N steps")
      .defaults_to("each epoch, with the options below; else at the end");
  s.add("patience", of_train(&TrainOptions::patience), forms::integers<int64_t>(1),
        "Stop after N evaluations without a better --metric")
      .that_decides_bits()
      .defaults_to("never");
  s.add("save_best", of_train(&TrainOptions::save_best), forms::texts("FILE"),
        "Write the variables with the best --metric so far to FILE, and end with them");
  s.add("metric", of_train(&TrainOptions::metric), forms::texts("NAME"),
        "Compare this metric: loss, accuracy, perplexity, top5_accuracy, ...")
      .require(
          {"--patience or --save-best",
           [](const ToolOptions& o) { return o.train.patience > 0 || !o.train.save_best.empty(); },
           [](const ToolOptions&) { return std::string("none of them"); }})
      .defaults_to("the first one");
}

// The decays that the command line has: kFunction requires a program.
forms::Words<train::Decay> decays() {
  forms::Words<train::Decay> words = train::decay_words();
  std::erase_if(words, [](const auto& word) { return word.second == train::Decay::kFunction; });
  return words;
}

// Adds the flag that streams the learning rate.
void add_schedule(Section s) {
  const TextForm<train::Decay> form = forms::words(decays());
  s.add({"schedule.decay", form.type, form.placeholder,
         "Stream the learning rate step by step, and change it in this way",
         [=](const ToolOptions& o) {
           return o.train.lr_schedule ? form.print(o.train.schedule.decay) : "absent";
         },
         [=](ToolOptions& o, const OptionTexts& texts) {
           forms::assign(o.train.schedule.decay, form, texts);
           o.train.lr_schedule = true;
         }})
      .named("--lr-schedule")
      .that_decides_bits()
      .defaults_to("a constant of the program");
}

// Lifts a requirement of a decay to a command line that has some of the decays.
Requirement<ToolOptions> with_schedule(const Requirement<train::LearningRateSchedule>& r) {
  std::vector<std::string> words;
  for (const auto& [word, decay] : decays()) {
    if (r.is_met({.decay = decay})) words.push_back(word);
  }
  const std::string last = words.back();
  words.pop_back();
  return {fmt::format("{{schedule.decay}} {}{}{}", fmt::join(words, ", "),
                      words.empty() ? "" : " or ", last),
          [is_met = r.is_met](const ToolOptions& o) {
            return o.train.lr_schedule && is_met(o.train.schedule);
          }};
}

// Adds the flags of the schedule's other members.
void add_schedule_members(Section s) {
  for (const char* member :
       {"warmup_steps", "minimum", "period", "multiplier", "factor", "milestones",
        "one_cycle.pct_start", "one_cycle.div_factor", "one_cycle.final_div_factor",
        "one_cycle.anneal", "one_cycle.three_phase", "plateau.mode", "plateau.patience",
        "plateau.threshold", "plateau.threshold_mode", "plateau.cooldown", "plateau.epsilon"}) {
    const Option<train::LearningRateSchedule>& inner = train::schedule_table().find(member);
    OptionTable<ToolOptions> lifted;
    Option<ToolOptions>& option =
        lifted.add_member("schedule.", of_train(&TrainOptions::schedule), inner);
    option.requirements = {with_schedule(inner.requirements.at(0))};
    option.decides_bits = true;
    s.add(option);
  }
}

// The flags of `sluice train` alone.
void add_train(FlagTable& table) {
  Section s(table, kTrain, "Training", Common::kYes);
  s.add("epochs", of_train(&TrainOptions::epochs), forms::integers<int64_t>(0),
        "Train N times through the samples");
  s.add("steps", of_train(&TrainOptions::steps), forms::integers<int64_t>(0),
        "Train N steps instead of epochs")
      .defaults_to("by --epochs");
  s.add("save", of_train(&TrainOptions::save), forms::texts("FILE"),
        "Write the variables to FILE at the end");
  add_checkpoints(table);
  add_validation(Section(table, kTrain, "Training", Common::kNo));
  Section rare(table, kTrain, "Training", Common::kNo);
  rare.add("check_replicas", of_train(&TrainOptions::check_replicas), forms::integers<int64_t>(1),
           "Compare the replicas' copies of all variables every N steps; requires --replicas of at "
           "least 2")
      .defaults_to("never");
  rare.add("torch_save", of_train(&TrainOptions::torch_save), forms::texts("FILE"),
           "Write the state_dict of the same PyTorch module to FILE at the end, as safetensors");
  rare.add("log_dir", of_train(&TrainOptions::log_dir), forms::texts("DIR"),
           "Write losses, rates and bytes to DIR, as events for TensorBoard and metrics.csv");
  rare.add("log_histograms", of_train(&TrainOptions::log_histograms), forms::integers<int64_t>(1),
           "Write histograms of each weight as events every N steps")
      .require({"{log_dir}", [](const ToolOptions& o) { return !o.train.log_dir.empty(); }})
      .defaults_to("never");
  rare.add_library("seed");
  Section planned(table, kTrain | kPlan, "Training", Common::kNo);
  for (const char* const name : {"watch.gradients", "watch.values", "watch.every"})
    planned.add_library(name);
  Section(table, kTrain | kPlan, "Training", Common::kNo).add_library("prefetch");
}

}  // namespace

void add_training_flags(FlagTable& table) {
  add_evaluation(Section(table, kPredict, "Model", Common::kYes));
  add_step(table);
  Section rate(table, kOfUpdates, "Training", Common::kYes);
  rate.add("lr", of_train(&TrainOptions::lr), forms::floats({.excludes_min = true}, "RATE"),
           "Set the learning rate")
      .that_decides_bits()
      .defaults_to(default_rates());
  rate.last().sets = "learning_rate";
  add_schedule(rate);
  add_schedule_members(Section(table, kTrain, "Training", Common::kNo));
  Section(table, kOfUpdates, "Training", Common::kNo).add_library("ema_decay");
  Section(table, kOfUpdates, "Training", Common::kNo).add_library("device_iterations");
  Section(table, kTrain | kPlan, "Training", Common::kNo).add_library("output");
  add_train(table);
  Section timing(table, kBench, "Training", Common::kYes);
  timing.add("steps", of_train(&TrainOptions::steps), forms::integers<int64_t>(1), "Time N steps")
      .defaults_to("500");
  timing.add("synthetic", member_path(&ToolOptions::model, &ModelOptions::synthetic),
             forms::flags(), "Report the mean of 5 runs on ones, training and testing");
}

}  // namespace sluice::tool
