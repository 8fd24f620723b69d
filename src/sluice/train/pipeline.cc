#include "sluice/train/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sluice/ops/basic.h"
#include "sluice/train/cut/gradient_rule.h"
#include "sluice/train/model.h"
#include "sluice/train/pipeline/stages.h"

namespace sluice::train {
namespace {

/// A module whose blocks are the functions.
class Functions {
 public:
  Functions(std::vector<PipelineStage> stages, const PipelineOptions& options)
      : stages_(std::move(stages)), outputs_(options.outputs), trains_(options.optimizer) {
    for (const auto* list : {&options.inputs, &options.fields}) {
      for (const Field& field : *list) arguments_.push_back(field.name);
    }
    if (outputs_.empty() && trains_) outputs_.emplace_back("loss");
    hidden_ = hidden(options);
    if (options.accumulate_outputs) sums_ = options.accumulate_outputs;
    check_sums();
  }

  Results build(nn::Builder& b, const Inputs& in) const {
    Tensors values;
    for (const std::string& name : arguments_) values.push_back(in[name]);
    for (size_t s = 0; s < stages_.size(); ++s) values = outputs_of(b, in, s, values);
    return results(values, in);
  }

  std::string block_name(size_t s, size_t f) const {
    return stages_[s].functions().size() == 1 ? fmt::format("stage{}", s)
                                              : fmt::format("stage{}.{}", s, f);
  }

 private:
  // The names of outputs that are not written.
  std::vector<std::string> hidden(const PipelineOptions& options) const {
    require(
        trains_ || (!options.outfeed_loss && options.outfeed_mask.empty()),
        "pipeline: outfeed_loss and outfeed_mask require an optimizer; leave outputs out of the "
        "last stage instead");
    require(!options.outfeed_loss || options.outfeed_mask.empty(),
            "pipeline: outfeed_loss must be given without outfeed_mask, got both");
    for (const std::string& name : options.outfeed_mask) {
      require(has(outputs_, name),
              "pipeline: outfeed_mask must have names of outputs ({}), got '{}'",
              fmt::join(outputs_, ", "), name);
    }
    if (options.outfeed_loss) return {outputs_.begin() + 1, outputs_.end()};
    const auto masked = [&](const std::string& name) { return has(options.outfeed_mask, name); };
    require(outputs_.empty() || !std::all_of(outputs_.begin(), outputs_.end(), masked),
            "pipeline: outfeed_mask must leave an output to write, got all of {}",
            fmt::join(outputs_, ", "));
    return options.outfeed_mask;
  }

  void check_sums() const {
    if (!sums_) return;
    for (const std::string& name : sums_->outputs) {
      require(has(outputs_, name) && !has(hidden_, name),
              "pipeline: accumulate_outputs must have names of outputs that are written, got '{}'",
              name);
    }
  }

  static bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  Writing writing_of(const std::string& name, const TensorSpec& spec, nn::RunMode mode) const {
    if (trains_ && mode == nn::RunMode::kEvaluate) return {};  // The program has no micro-batches.
    if (has(hidden_, name)) return {.form = Writing::Reduction::kNone};
    if (!sums_ || (!sums_->outputs.empty() && !has(sums_->outputs, name))) return {};
    const bool own = std::holds_alternative<std::monostate>(sums_->dtype);
    return {.form = Writing::Reduction::kSum,
            .dtype = own ? spec.dtype : dtype_of(sums_->dtype, name, spec, "accumulate_outputs")};
  }

  Tensors outputs_of(nn::Builder& b, const Inputs& in, size_t s, const Tensors& arguments) const {
    Tensors result;
    for (size_t f = 0; f < stages_[s].functions().size(); ++f) {
      const std::string name = block_name(s, f);
      const nn::Block block(b, name);
      const OpIndex first = b.graph().ops().end_id();
      Tensors outputs = stages_[s].functions()[f](b, StageInputs(in, arguments, name));
      for (Tensor& t : outputs) {
        require(t.valid() && b.graph().owns(t),
                "pipeline: {} must return tensors of the pipeline, got {}", name,
                t.valid() ? fmt::format("'{}' of graph {}", t.name(), t.graph().name())
                          : "an empty handle");
        // A stage that only passes values on is a block, too.
        if (b.graph().ops().end_id() == first || is_last(s)) t = computed(b.graph(), t, first);
      }
      result.insert(result.end(), outputs.begin(), outputs.end());
    }
    return result;
  }

  bool is_last(size_t s) const { return s + 1 == stages_.size(); }

  // A result must be made by an op of its stage.
  static Tensor computed(const Graph& graph, const Tensor& t, OpIndex first) {
    const OpId maker = graph.info(t).producer;
    const bool here = maker.valid() && graph.op_index(maker) >= first;
    return here ? t : ops::identity(t);
  }

  Results results(const Tensors& values, const Inputs& in) const {
    require(values.size() <= outputs_.size(),
            "The last computational stage has tensor outputs that go nowhere: it returns {}, but "
            "outputs names {}",
            values.size(), outputs_.size());
    require(values.size() == outputs_.size() && !values.empty(),
            "pipeline: the last stage must return a tensor for each of {} outputs, got {}",
            std::max<size_t>(outputs_.size(), 1), values.size());
    Results result;
    for (size_t i = 0; i < values.size(); ++i) {
      const Writing writing = writing_of(outputs_[i], values[i].spec(), in.mode());
      if (i == 0 && trains_ && in.wants_losses()) {
        require(values[0].rank() == 0 && is_float(values[0].dtype()),
                "pipeline: the last stage must return the loss first, a floating-point scalar, got "
                "{}; reduce it with ops::mean()",
                to_string(values[0].spec()));
        result.losses.push_back({.name = outputs_[0], .value = values[0]});
        result.losses[0].writing = writing;
      } else {
        result.predictions.push_back({outputs_[i], values[i], {}, writing});
      }
    }
    return result;
  }

  std::vector<PipelineStage> stages_;
  std::vector<std::string> arguments_;  ///< Names of the fields that are arguments of stage 0.
  std::vector<std::string> outputs_;
  std::vector<std::string> hidden_;  ///< Names of outputs that are not written.
  std::optional<OutputSums> sums_;
  bool trains_;
};

void check(const std::vector<PipelineStage>& stages, const PipelineOptions& options) {
  require(stages.size() >= 2, "Pipeline requires at least two computational stages, got {}",
          stages.size());
  require(options.accumulate >= 1, "pipeline: accumulate must be given and at least 1, got {}",
          options.accumulate);
  require(options.batch_serialization_iterations == 1,
          "pipeline: batch_serialization_iterations must be 1, got {}; train a network of blocks "
          "with the strategy phased() instead",
          options.batch_serialization_iterations);
  std::vector<std::string> names;
  for (const auto* list : {&options.inputs, &options.fields}) {
    for (const Field& field : *list) {
      require(std::find(names.begin(), names.end(), field.name) == names.end(),
              "pipeline: inputs and fields must have different names, got '{}' twice", field.name);
      names.push_back(field.name);
    }
  }
}

std::vector<StageDevices> mapping_of(const std::vector<PipelineStage>& stages,
                                     const PipelineOptions& options) {
  std::vector<StageDevices> mapping = options.device_mapping;
  if (mapping.empty()) {
    for (size_t s = 0; s < stages.size(); ++s) {
      require(stages[s].functions().size() == 1,
              "pipeline: device_mapping must be given if a stage has concurrent functions, as "
              "stage {} has",
              s);
      mapping.emplace_back(static_cast<int>(s));
    }
  }
  require(mapping.size() == stages.size(),
          "Each stage must be mapped to a device: {} mappings != {} stages", mapping.size(),
          stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    const size_t functions = stages[s].functions().size();
    require(functions >= 1 && mapping[s].numbers().size() == functions,
            "pipeline: stage {} must have one device for each of its functions, got {} devices for "
            "{} functions",
            s, mapping[s].numbers().size(), functions);
    for (const int device : mapping[s].numbers())
      require(device >= 0 && device < kMaxDevices,
              "pipeline: the device of stage {} must be from 0 to {}, got {}", s, kMaxDevices - 1,
              device);
  }
  return mapping;
}

void check_read(const std::vector<Field>& fields, const Training& t) {
  for (const Field& field : fields) {
    const auto named = [&](const H2dStream& s) { return s.name == field.name; };
    bool read = t.learning_rate && named(*t.learning_rate);
    for (const auto* list : {&t.inputs, &t.fields, &t.eval_fields})
      read = read || std::any_of(list->begin(), list->end(), named);
    if (t.infeed) {
      const auto fed = [&](const FeedField& f) { return f.name == field.name; };
      read = read || std::any_of(t.infeed->fields.begin(), t.infeed->fields.end(), fed);
    }
    require(read, "pipeline: each input and field must be read by a stage, but '{}' is not",
            field.name);
  }
}

}  // namespace

const Tensor& StageInputs::operator[](size_t i) const {
  require(i < arguments_.size(), "pipeline: {} must read an argument below {}, got {}", stage_,
          arguments_.size(), i);
  return arguments_[i];
}

namespace {

std::vector<Field> fields_of(const PipelineOptions& options) {
  std::vector<Field> fields = options.inputs;
  for (Field& input : fields) input.once = true;
  fields.insert(fields.end(), options.fields.begin(), options.fields.end());
  return fields;
}

/// A pipeline as a network with options.
struct PipelineNetwork {
  PipelineNetwork(const std::vector<PipelineStage>& stages, const PipelineOptions& options)
      : functions((check(stages, options), stages), options),
        network(functions, fields_of(options)) {
    const std::vector<StageDevices> mapping = mapping_of(stages, options);
    std::vector<Stage> named;
    for (size_t s = 0; s < stages.size(); ++s) {
      for (size_t f = 0; f < stages[s].functions().size(); ++f) {
        Stage stage(functions.block_name(s, f));
        stage.device(mapping[s].numbers()[f]);
        if (f > 0) stage.concurrent();
        named.push_back(std::move(stage));
      }
    }
    step = {.strategy = PipelinedExecution{std::move(named), options.schedule},
            .accumulate = options.accumulate,
            .device_iterations = options.device_iterations,
            .replicas = options.replicas,
            .infeed = options.infeed,
            .outfeed = options.outfeed,
            .locations = options.locations,
            .io_mode = options.io_mode,
            .recompute = options.recompute,
            .learning_rate = options.learning_rate,
            .accumulation_reduction = options.accumulation_reduction,
            .replica_reduction = options.replica_reduction,
            .accumulator_dtype = options.accumulator_dtype,
            .gradient_hook = options.gradient_hook,
            .max_grad_norm = options.max_grad_norm,
            .seed = options.seed,
            .session = options.session};
  }

  Functions functions;
  Network network;
  Options step;
};

/// Builds a pipeline to find its faults.
void check_built(const std::vector<PipelineStage>& stages, const PipelineOptions& options) {
  pipeline(Ir(options.replicas), stages, options);
}

}  // namespace

Training pipeline(Ir ir, const std::vector<PipelineStage>& stages, const PipelineOptions& options) {
  const PipelineNetwork p(stages, options);
  Training t = options.optimizer ? build_training(ir, p.network, *options.optimizer, p.step)
                                 : build_inference(ir, p.network, p.step);
  check_read(p.network.fields(), t);
  return t;
}

TrainingModel training_model(const std::vector<PipelineStage>& stages,
                             const PipelineOptions& options) {
  require(options.optimizer.has_value(),
          "training_model: a pipeline must have an optimizer, got none; make an inference_model()");
  check_built(stages, options);
  PipelineNetwork p(stages, options);
  p.step.output = Output::all();
  return training_model(p.network, p.step, *options.optimizer);
}

InferenceModel inference_model(const std::vector<PipelineStage>& stages,
                               const PipelineOptions& options) {
  require(!options.optimizer.has_value(),
          "inference_model: a pipeline must be without an optimizer, got one; make a "
          "training_model() and inference_model(model)");
  check_built(stages, options);
  PipelineNetwork p(stages, options);
  p.step.device_iterations *= std::exchange(p.step.accumulate, 1);
  return inference_model(p.network, p.step);
}

}  // namespace sluice::train
