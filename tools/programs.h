#pragma once
#include <memory>
#include <string>

#include "sluice/compiler/compile.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/sluice.h"
#include "sluice/train/plan/plan.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {

/// The programs of a model. "train" does one step of `accumulate` micro-batches, "eval" computes
/// logits of `eval_batch` samples. They share the weights. Options that do not train have "eval"
/// alone.
struct Programs : train::PlannedPrograms {
  std::string offload_reason;  ///< OffloadDecision::why() in the words of the flags.
};

/// A refusal of programs that do not fit, for commands that print their plan.
class RefusedPrograms : public DoesNotFit {
 public:
  RefusedPrograms(const DoesNotFit& refusal, std::shared_ptr<Programs> programs);
  const std::shared_ptr<Programs>& programs() const { return programs_; }

 private:
  std::shared_ptr<Programs> programs_;
};

/// Builds and compiles the programs with the locations that the options ask for; "auto" is
/// train::Offload::kAutomatic. Error{kUsage} for rates, names or combinations that do not make a
/// model. RefusedPrograms, which names options that would fit, if the programs do not fit.
Programs build_programs(const ToolOptions& options);

/// Opens a session on programs, and moves their plan into it.
train::TrainingModel open_model(Programs& programs, const ToolOptions& options);
/// Opens a session on programs that only infer, and moves their plan into it.
train::InferenceModel open_inference(Programs& programs, const ToolOptions& options);

/// "offload: none; the program fits --memory" and a line break.
std::string offload_line(const Programs& programs);
/// Writes that line to stderr if the choice was left to the tool.
void log_offload(const ToolOptions& options, const Programs& programs);
void add_offload(const Programs& programs, JsonRecord& record);

/// "sum of 4 micro-batches, mean of 2 replicas, accumulators float16" for reductions of gradients
/// that differ from the defaults; else empty.
std::string reductions_text(const train::Training& training);
void add_reductions(const train::Training& training, JsonRecord& record);

/// The learning rates of a run of `steps` steps.
train::LearningRateSchedule schedule_of(const ToolOptions& options, int64_t steps);

/// Returns the number of devices that the stages of the model need.
int64_t devices_of_replica(const ToolOptions& options);

/// The session that the command line asks for.
SessionOptions session_options(const ToolOptions& options);

/// Reports remote memory that is slower than this machine's: "remote memory throttled to 1000000
/// B/s" and a line break, or "remote_bandwidth" of a record; else nothing.
std::string throttle_line(const ToolOptions& options);
void add_throttle(const ToolOptions& options, JsonRecord& record);

/// A line for each compiler pass: its name, time, changes and reason.
std::string passes_text(const Compiled& compiled);
/// A line for each kind of fused kernel, and for each reason why operators do not share one.
std::string fusions_text(const Compiled& compiled);

/// Samples of all replicas in a step of "train".
int64_t samples_of_step(const ToolOptions& options);

}  // namespace sluice::tool
