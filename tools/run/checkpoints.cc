#include "tools/run/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "sluice/base/sys.h"
#include "sluice/models/model.h"
#include "sluice/train/checkpoints/checkpoint_copy.h"

#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

constexpr const char* kLibrary = "step.";  // Prefix of options that train::Run knows.

// Returns the text of an option that the command line does not give.
std::string default_text(const ToolOptions& o, const Option<ToolOptions>& option) {
  const std::string flag = flag_of(option);
  if (std::find(o.given.begin(), o.given.end(), flag) == o.given.end()) return option.print(o);
  ToolOptions defaults;
  for (const models::Default& d : models::find_model(o.model.name).defaults) {
    if (d.flag == flag) option.read(defaults, {std::string(d.text)});
  }
  return option.print(defaults);
}

// Returns the flags and defaults of the options that decide the bits.
std::map<std::string, train::OptionFact> option_facts(const ToolOptions& o) {
  const FlagTable& table = flag_table();
  std::map<std::string, train::OptionFact> facts;
  size_t index = 0;
  for (const Option<ToolOptions>& option : table.options) {
    const Flag& flag = table.flags[index++];
    if ((flag.commands & kTrain) == 0 && !option.decides_bits) continue;
    const bool of_library = option.name.starts_with(kLibrary);
    train::OptionFact fact{.flag = flag_of(option)};
    if (option.decides_bits) fact.unnamed = default_text(o, option);
    if (!of_library) facts.try_emplace(option.name, fact);
    if (!of_library) fact.unnamed.reset();  // The option that it sets has a default of its own.
    if (!flag.sets.empty()) facts.try_emplace(flag.sets, fact);
  }
  return facts;
}

}  // namespace

std::vector<train::NamedOption> bit_options(const ToolOptions& o, int64_t steps) {
  std::vector<train::NamedOption> options;
  for (const Option<ToolOptions>& option : flag_table().options) {
    const bool known = std::any_of(options.begin(), options.end(), [&](const auto& other) {
      return other.first == option.name;  // Several commands may have a flag of one name.
    });
    if (option.decides_bits && !known && !option.name.starts_with(kLibrary))
      options.emplace_back(option.name, option.print(o));
  }
  if (o.train.patience > 0 || o.train.schedule.decay == train::Decay::kPlateau) {
    options.emplace_back("validate_every", fmt::format("{}", o.train.validate_every));
    options.emplace_back("test_batch", fmt::format("{}", o.model.sizes.eval_batch));
    options.emplace_back("test_iterations", fmt::format("{}", o.train.test_iterations));
    options.emplace_back("metric", o.train.metric.empty() ? "first" : o.train.metric);
  }
  constexpr train::Decay kOfAllSteps[] = {train::Decay::kLinear, train::Decay::kCosine,
                                          train::Decay::kOneCycle};
  const auto* const end = std::end(kOfAllSteps);
  if (o.train.lr_schedule && std::find(kOfAllSteps, end, o.train.schedule.decay) != end)
    options.emplace_back("steps", fmt::format("{}", steps));
  return options;
}

std::vector<report::KindBytes> host_buffers(const ToolOptions& o,
                                            const exe::Executable& executable) {
  if (o.train.checkpoint.empty() || o.train.save_copy != train::SaveCopy::kHost) return {};
  const int processes = o.step.session.group == nullptr ? 1 : o.step.session.group->size();
  return {{"copy of the variables for checkpoints",
           train::copy_bytes(train::variables_of(executable), /*process=*/0, processes)}};
}

void check_host_buffers(const ToolOptions& o, const exe::Executable& executable) {
  for (const report::KindBytes& b : host_buffers(o, executable))
    train::check_copy_budget(executable, b.bytes);
}

void add_host_buffers(const ToolOptions& o, const exe::Executable& executable, JsonRecord& record) {
  std::vector<JsonRecord> all;
  for (const report::KindBytes& b : host_buffers(o, executable)) {
    all.emplace_back().add("kind", b.kind);
    all.back().add("bytes", b.bytes);
  }
  if (!all.empty()) record.add("host_buffers", std::move(all));
}

void resume_run(train::TrainingModel& model, const ToolOptions& o, int64_t steps) {
  if (o.train.resume.empty()) return;
  const train::Resumed resumed = train::resume(
      model, o.train.resume,
      {.override = o.train.override, .options = bit_options(o, steps), .facts = option_facts(o)});
  if (!o.output.speaks()) return;
  for (const std::string& reason : resumed.skipped)
    sys::print_stderr("skipped a damaged checkpoint: {}\n", reason);
  for (const std::string& change : resumed.changed) sys::print_stderr("changed {}\n", change);
  sys::print_stderr("resumed {} after step {}\n", resumed.checkpoint, resumed.run.updates);
}

std::optional<train::Checkpoints> open_checkpoints(const train::TrainingModel& model,
                                                   const ToolOptions& o, int64_t steps,
                                                   std::map<std::string, std::string> metadata) {
  if (o.train.checkpoint.empty()) return std::nullopt;
  if (o.output.speaks()) {
    train::TrainingModel handle = model;
    for (const report::KindBytes& b : host_buffers(o, handle.session().executable()))
      sys::print_stderr("host memory: {} bytes, {}\n", report::grouped(b.bytes), b.kind);
  }
  const SaveInterval interval = o.train.save_every.value_or(SaveInterval());
  return train::Checkpoints(model, {.folder = o.train.checkpoint,
                                    .save_every = interval.steps,
                                    .save_every_seconds = interval.seconds,
                                    .keep = o.train.keep,
                                    .copy = o.train.save_copy,
                                    .options = bit_options(o, steps),
                                    .metadata = std::move(metadata)});
}

void log_checkpoints(const train::Checkpoints& checkpoints, const ToolOptions& o) {
  if (!o.output.speaks()) return;
  const train::Checkpoints::Statistics s = checkpoints.statistics();
  sys::print_stderr(
      "{} checkpoint{} of {} bytes, the newest {}; a copy of {} bytes; waited {:.3f} s, wrote for "
      "{:.3f} s\n",
      s.saves, s.saves == 1 ? "" : "s", s.bytes, checkpoints.newest(), s.copy_bytes,
      s.waited_seconds, s.write_seconds);
}

Error with_checkpoint(const Error& error, const train::Checkpoints& checkpoints) {
  const std::string newest = checkpoints.newest();
  return Error(error.kind(), newest.empty()
                                 ? fmt::format("{}\n  {} has no checkpoint yet", error.what(),
                                               checkpoints.folder())
                                 : fmt::format("{}\n  continue from {} with --resume {}",
                                               error.what(), newest, checkpoints.folder()));
}

void inspect_folder(const std::string& folder) {
  bool whole = false;
  for (const train::CheckpointInfo& c : train::inspect_checkpoints(folder)) {
    if (!c.damage.empty()) {
      fmt::print("{}: damaged: {}\n", c.path, c.damage);
      continue;
    }
    whole = true;
    fmt::print("{}: step {}, epoch {}, {} samples of it, {} variables in {} files, {} bytes\n",
               c.path, c.run.updates, c.run.epoch, c.run.epoch_samples, c.variables, c.parts,
               c.bytes);
  }
  if (!whole)
    fail(ErrorKind::kNoCheckpoint, "{}: must have a whole checkpoint, got damaged ones alone",
         folder);
}

}  // namespace sluice::tool
