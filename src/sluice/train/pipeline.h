#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/train/training_step.h"

/// Pipelines from functions. Each function builds a stage, and the outputs of a stage are the
/// arguments of the next one:
///
///     train::Training t = train::pipeline(
///         ir, {first, middle, last},
///         {.accumulate = 8,
///          .inputs = {{.name = "rate", .spec = f32_spec({})}},
///          .fields = {{.name = "x", .spec = f32_spec({4, 6})},
///                     {.name = "labels", .spec = i32_spec({4})}},
///          .optimizer = nn::Optimizer::adam(),
///          .learning_rate = train::StreamedRate{"rate"}});
///
/// Models of a pipeline are called with samples and work with fit(), DataLoader and evaluate():
///
///     train::TrainingModel model = train::training_model({first, middle, last}, options);
///     train::DataLoader loader(model.options(), dataset, {.batch_size = 4});
///     train::fit(model, loader, {.epochs = 3});
///     train::InferenceModel test = train::inference_model(model);
///     train::Evaluation result = train::evaluate(test, test_dataset);
///
/// A network of blocks (nn/block.h) with `pipelined()` is the other form of a pipeline.
namespace sluice::train {

class InferenceModel;
class TrainingModel;

/// The tensors that a stage may read.
class StageInputs : public Inputs {
 public:
  StageInputs(Inputs fields, Tensors arguments, std::string stage)
      : Inputs(std::move(fields)), arguments_(std::move(arguments)), stage_(std::move(stage)) {}

  /// Returns argument `i`: of stage 0, the `inputs` and then the `fields` of the pipeline; of
  /// another stage, the outputs of the stage before it. Error{kUsage} if there are fewer.
  const Tensor& operator[](size_t i) const;
  /// Returns an input or a field of the pipeline by its name, in any stage.
  using Inputs::operator[];
  const Tensors& arguments() const { return arguments_; }
  size_t size() const { return arguments_.size(); }

 private:
  Tensors arguments_;
  std::string stage_;
};

/// A function that builds a stage and returns its outputs:
///
///     Tensor first(nn::Builder& b, const train::StageInputs& in);
///     Tensors second(nn::Builder& b, const train::StageInputs& in);
///
/// It makes variables through the builder. Their names must differ between stages. It may read
/// tensors that earlier stages made, variables included, for example captured in a lambda. It runs
/// once to build the training program, and again to build the program of evaluation
/// (nn::Builder::mode).
class StageFunction {
 public:
  template <typename F>
  requires std::invocable<const F&, nn::Builder&, const StageInputs&> StageFunction(F build)
      : build_([f = std::move(build)](nn::Builder& b, const StageInputs& in) -> Tensors {
          using Result = std::invoke_result_t<const F&, nn::Builder&, const StageInputs&>;
          if constexpr (std::same_as<Result, Tensor>) {
            return {f(b, in)};
          } else {
            return f(b, in);
          }
        }) {}

  Tensors operator()(nn::Builder& b, const StageInputs& in) const { return build_(b, in); }

 private:
  std::function<Tensors(nn::Builder&, const StageInputs&)> build_;
};

/// A stage: a function, or a list of functions that run in the same step of the schedule on devices
/// of their own. All functions of a list have the same arguments. Their outputs, in their order,
/// are the arguments of the next stage. They must not read tensors or share variables of each
/// other.
class PipelineStage {
 public:
  template <typename F>
  requires std::constructible_from<StageFunction, F> PipelineStage(F function)
      : functions_{StageFunction(std::move(function))} {}
  PipelineStage(std::initializer_list<StageFunction> concurrent) : functions_(concurrent) {}

  const std::vector<StageFunction>& functions() const { return functions_; }

 private:
  std::vector<StageFunction> functions_;
};

/// The device of a stage, or one device for each function of a concurrent stage.
class StageDevices {
 public:
  StageDevices(int device) : numbers_{device} {}  // NOLINT: implicit
  StageDevices(std::initializer_list<int> concurrent) : numbers_(concurrent) {}

  const std::vector<int>& numbers() const { return numbers_; }

 private:
  std::vector<int> numbers_;
};

/// Outputs of a pipeline that are summed over the micro-batches of an update, or of a run without
/// an optimizer, micro-batches ascending. Each sum is written once: its stream has an entry for
/// each update.
struct OutputSums {
  std::vector<std::string> outputs = {};  ///< Names of outputs. Empty: all that are written.
  /// Dtype of the sums: f32, f16 or bf16. A value is rounded to it before it is added. Absent: that
  /// of the output.
  AccumulatorDtype dtype = {};
};

/// Only `accumulate` is mandatory. Fields without a description are those of Options.
struct PipelineOptions {
  /// Micro-batches per update, or of a run without an optimizer: any number from 1.
  int64_t accumulate = 0;
  /// Times that a run fills and drains the pipeline, each with an update.
  int64_t device_iterations = 1;
  /// Slices of a micro-batch that a stage runs before the next stage begins. Only 1 is supported.
  int64_t batch_serialization_iterations = 1;
  std::vector<Field> inputs = {};  ///< Values of a run, such as a learning rate.
  std::vector<Field> fields = {};  ///< Values of a micro-batch, such as images and labels.
  /// Names of the streams that return the outputs of the last stage, in their order. With an
  /// optimizer, output 0 is the loss. Default: {"loss"} with an optimizer.
  std::vector<std::string> outputs = {};
  /// Writes the loss alone. Requires an optimizer. Excludes `outfeed_mask`.
  bool outfeed_loss = false;
  /// Names of outputs that are not written. Requires an optimizer.
  std::vector<std::string> outfeed_mask = {};
  /// Absent: the outputs of each micro-batch are written.
  std::optional<OutputSums> accumulate_outputs = {};
  /// Absent: the pipeline does not train. Options of gradients and updates are then refused.
  std::optional<nn::Optimizer> optimizer = {};
  LearningRate learning_rate = {};                ///< StreamedRate may name an input.
  std::vector<StageDevices> device_mapping = {};  ///< Device of each stage. Default: 0, 1, 2, …
  Schedule schedule = Schedule::kGrouped;
  std::shared_ptr<data::InfeedQueue> infeed = nullptr;    ///< Produces `fields`.
  std::shared_ptr<data::OutfeedQueue> outfeed = nullptr;  ///< Takes the outputs that are written.
  Recompute recompute = {};  ///< Blocks: stage0, stage1, …; of a list: stage1.0, stage1.1, …
  TensorLocations locations = {};
  IoMode io_mode = IoMode::kIo;
  Accumulation accumulation_reduction = Accumulation::kRunningMean;
  ReplicaReduction replica_reduction = ReplicaReduction::kMean;
  AccumulatorDtype accumulator_dtype = {};
  GradientHook gradient_hook = nullptr;
  std::optional<double> max_grad_norm = {};
  uint64_t seed = 0;
  int replicas = 1;             ///< For pipeline(), the number of the Ir or 1.
  SessionOptions session = {};  ///< Devices and threads of a model; without effect on pipeline().
};

/// Adds the programs of a pipeline to `ir`. The stages are the blocks of a network, so that the
/// results have the bits of the same functions on one device.
///
/// With an optimizer, these are the programs of build_training(): "train", and "eval", which
/// returns all outputs for one micro-batch. Training::losses has the loss, and
/// Training::predictions the other outputs. Without one, the program is "eval" (build_inference()).
///
/// Error{kUsage}: fewer than two stages; a mapping that has not one device of at least 0 for each
/// function; `accumulate` or `device_iterations` below 1; a loss that is not a floating-point
/// scalar; outputs without a name in `outputs`; names in `outfeed_mask` and `accumulate_outputs`
/// that are not those of outputs that may be written; a mask that leaves no output; an optimizer
/// without a variable that it trains; concurrent functions that depend on each other; a stage whose
/// results nothing reads; an input or a field that no stage reads.
Training pipeline(Ir ir, const std::vector<PipelineStage>& stages, const PipelineOptions& options);

/// Makes a model that trains a pipeline. `options.optimizer` must be given. A call takes the
/// `fields` of m · D · N · R samples and one value of each of the `inputs`, and returns the outputs
/// that are written, of all micro-batches. Nothing is compiled yet, but the stages are built once
/// to check them. Error{kUsage} as for pipeline().
TrainingModel training_model(const std::vector<PipelineStage>& stages,
                             const PipelineOptions& options);

/// Makes a model that infers with a pipeline and weights of its own. `options.optimizer` must be
/// absent. A call takes the samples of `accumulate` · `device_iterations` micro-batches, as
/// CallSize::device_iterations reports them. Error{kUsage} as for pipeline().
InferenceModel inference_model(const std::vector<PipelineStage>& stages,
                               const PipelineOptions& options);

}  // namespace sluice::train
