#include "sluice/train/training_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "sluice/base/checked.h"
#include "sluice/data/feed_queues.h"
#include "sluice/train/emitter.h"
#include "sluice/train/options/option_table.h"
#include "sluice/train/pipeline/stages.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/torch_weights.h"
#include "sluice/transforms/copies/split_stores.h"

namespace sluice::train {
namespace {

// The stream of the learning rate, if there is one.
std::optional<H2dStream> rate_stream(Ir& ir, const Network& network, const Options& options) {
  const auto* rate = std::get_if<StreamedRate>(&options.learning_rate);
  if (rate == nullptr) return std::nullopt;
  const TensorSpec spec{{}, f32, {}};
  if (rate->field.empty()) return ir.h2d_stream(spec, "learning_rate");
  const auto field = std::find_if(network.fields().begin(), network.fields().end(),
                                  [&](const Field& f) { return f.name == rate->field; });
  require(field != network.fields().end() && field->once,
          "training: the learning rate must be a field that is given once a run, '{}' is not",
          rate->field);
  require(field->spec == spec, "training: the learning rate '{}' must be {}, got {}", rate->field,
          to_string(spec), to_string(field->spec));
  return ir.h2d_stream(spec, rate->field);
}

void add_coefficients(Ir& ir, const nn::Optimizer& optimizer, Training& t) {
  for (const nn::StreamedCoefficient& c : optimizer.streamed()) {
    const std::string name = fmt::format("optimizer.{}.{}", c.group, c.name);
    t.coefficients.push_back({c, ir.h2d_stream({{}, f32, {}}, name)});
  }
}

// Returns options with the number of the optimizer in place of an absent learning rate.
Options with_rate(Options options, const nn::Optimizer& optimizer) {
  if (options.learning_rate.index() == 0) options.learning_rate = optimizer.default_learning_rate();
  if (const double* rate = std::get_if<double>(&options.learning_rate))
    check_learning_rate("training: learning_rate", *rate);
  return options;
}

// Adds streams for the fields of micro-batches: those of a feed, or their own.
std::vector<H2dStream> add_fields(Ir& ir, const NetworkGraph& graph, const Options& options,
                                  Training& t) {
  std::vector<FeedField> fields;
  for (const auto& [name, input] : graph.fields) fields.push_back({name, input.spec()});
  require(options.infeed == nullptr || options.prefetch == 0,
          "training: prefetch must be 0 with an infeed, which has a depth of its own, got {}",
          options.prefetch);
  if (options.infeed || options.prefetch > 0) {
    const int depth = options.infeed ? options.infeed->depth() : options.prefetch;
    t.infeed = ir.infeed("samples", fields, {.prefetch_depth = depth});
    return t.infeed->streams;
  }
  std::vector<H2dStream> streams;
  for (const FeedField& field : fields) streams.push_back(ir.h2d_stream(field.spec, field.name));
  return streams;
}

// Whether the labels of a prediction are floating-point.
bool is_regression(const Prediction& p, const Network& network) {
  return std::any_of(network.fields().begin(), network.fields().end(),
                     [&](const Field& f) { return f.name == p.labels && is_float(f.spec.dtype); });
}

// Adds streams for the losses and predictions that are written: those of a feed, or their own.
void add_results(Ir& ir, const Network& network, const Results& results, const Options& options,
                 std::vector<D2hStream>& predictions, std::vector<Labelled>& labelled,
                 Training& t) {
  const Output output = options.output.value_or(Output::all());
  std::vector<FeedField> fields;
  std::vector<int64_t> entries;
  const auto add = [&](const auto& result) {
    if (result.writing.form == Writing::Reduction::kNone) return false;
    fields.push_back({result.name, spec_of_result(result.value.spec(), result.writing, output)});
    entries.push_back(entries_of_run(result_form(result.writing, output), options.accumulate,
                                     options.device_iterations));
    return true;
  };
  for (const Loss& loss : results.losses) {
    if (!add(loss)) continue;
    t.loss_weights.push_back(loss.weight);
    t.loss_micro_batches.push_back(micro_batches_of_entry(
        result_form(loss.writing, output), options.accumulate, options.device_iterations));
  }
  const size_t losses = fields.size();
  for (const Prediction& p : results.predictions) {
    if (!add(p) || p.labels.empty()) continue;
    const bool regression = is_regression(p, network);
    const bool scores = !regression && p.value.dtype() != i32;
    labelled.push_back({.prediction = p.name,
                        .labels = p.labels,
                        .ignore_index = p.ignore_index,
                        .classes = scores ? p.value.dim(-1) : p.classes,
                        .regression = regression});
  }
  if (options.outfeed) t.outfeed = ir.outfeed("results", fields);
  for (size_t i = 0; i < fields.size(); ++i) {
    const D2hStream stream =
        options.outfeed ? t.outfeed->streams[i] : ir.d2h_stream(fields[i].spec, fields[i].name);
    (i < losses ? t.losses : predictions).push_back(stream);
    t.entries[stream.name] = entries[i];
  }
}

// Adds a stream for each value of Options::watch.
void add_watched_values(Ir& ir, const NetworkGraph& graph, const Options& options, Training& t) {
  for (const auto& [name, value] : graph.watched) {
    t.watched_values.push_back({ir.d2h_stream(value.spec(), name), name});
    t.entries[t.watched_values.back().stream.name] =
        checked_mul(options.accumulate, options.device_iterations);
  }
}

// Error{kUsage} for a pattern of Options::watch without a trained weight.
void check_watched_gradients(const Options& options, const WeightRules& rules) {
  for (const std::string& pattern : options.watch.gradients) {
    const nn::KeyMatch matches = nn::keys_like({pattern});
    std::vector<std::string> keys;
    for (const auto& [key, rule] : rules) keys.push_back(key);
    require(std::any_of(keys.begin(), keys.end(), matches),
            "watch.gradients: '{}' must match the path of a trained weight, got none; trained "
            "weights are {}",
            pattern, fmt::join(keys, ", "));
  }
}

// Moves the stores of watched tensors from the program "train" to a copy, "watch".
void split_watch(const Ir& ir, const Training& t) {
  std::set<int32_t> streams;
  for (const GradientStream& s : t.watched_gradients) streams.insert(s.stream.id);
  for (const ValueStream& s : t.watched_values) streams.insert(s.stream.id);
  if (!streams.empty()) transforms::split_stores(ir, "train", "watch", streams);
}

// Adds the streams of Training::loss_sums, unless the losses that are returned define the means.
void add_loss_sums(Ir& ir, const NetworkGraph& graph, const Options& options, Training& t) {
  if (!options.loss_sums || options.outfeed) return;
  const Output output = options.output.value_or(Output::all());
  const bool weighted = graph.total_weight.valid();
  const bool several = options.accumulate > 1 || options.device_iterations > 1;
  bool needed = weighted && (several || ir.replication() > 1);
  for (const Loss& loss : graph.results.losses) {
    const bool written = loss.writing.form != Writing::Reduction::kNone;
    needed =
        needed || (several && written && result_form(loss.writing, output) == ResultForm::kRunLast);
  }
  if (!needed) return;
  const auto add = [&](std::string name) {
    while (t.entries.contains(name)) name += '_';
    t.loss_sums.push_back(ir.d2h_stream({{}, f32, {}}, name));
    t.entries[name] = 1;
  };
  for (size_t i = 0; i < t.losses.size(); ++i) add(t.losses[i].name + ".sum");
  if (weighted) add("total_weight.sum");
}

void add_streams(Ir& ir, const Network& network, const NetworkGraph& graph,
                 const NetworkGraph& eval, const Options& options, const Options& inference,
                 Training& t) {
  t.fields = add_fields(ir, graph, options, t);
  for (const auto& [name, input] : graph.inputs) {
    if (!t.learning_rate || t.learning_rate->name != name)
      t.inputs.push_back(ir.h2d_stream(input.spec(), name));
  }
  if (!graph.seed.empty()) t.seed = ir.h2d_stream(graph.seed[0].spec(), "seed");
  add_results(ir, network, graph.results, options, t.predictions, t.labelled, t);
  for (const auto* list : {&eval.fields, &eval.inputs}) {
    for (const auto& [name, input] : *list)
      t.eval_fields.push_back(ir.h2d_stream(input.spec(), "eval_" + name));
  }
  Results evaluated;
  for (const Prediction& p : eval.results.predictions) {
    const auto named = [&](const auto& other) { return other.name == p.name; };
    Results trained = graph.results;
    trained.predictions.resize(trained.predictions.size() - graph.watched.size());
    const bool taken = std::any_of(trained.predictions.begin(), trained.predictions.end(), named) ||
                       std::any_of(trained.losses.begin(), trained.losses.end(), named);
    evaluated.predictions.push_back({taken ? "eval_" + p.name : p.name, p.value, p.labels,
                                     p.writing, p.ignore_index, p.classes});
  }
  Options arrays = inference;
  arrays.outfeed = nullptr;
  add_results(ir, network, evaluated, arrays, t.eval_predictions, t.eval_labelled, t);
  add_loss_sums(ir, graph, options, t);
  add_watched_values(ir, graph, options, t);
}

Strategy default_strategy(const NetworkGraph& network) {
  const auto& ops = network.graph.graph().ops();
  const bool named =
      std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.device != kInheritDevice; });
  if (named) return pipelined();
  return resident();
}

// Checks the values and prerequisites of options with their strategy.
void check_options(Options options, const Ir& ir, const char* program) {
  require(options.replicas == 1 || options.replicas == ir.replication(),
          "{}: replicas must be those of the Ir, {}, or left out, got {}", program,
          ir.replication(), options.replicas);
  options.replicas = ir.replication();
  try {
    options_table().check(options);
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", program, e.what());
  }
}

// Inference has no gradients and no updates.
void check_inference(const Options& options) {
  constexpr const char* kOfUpdates[] = {"learning_rate",
                                        "max_grad_norm",
                                        "accumulation_reduction",
                                        "replica_reduction",
                                        "accumulator_dtype",
                                        "gradient_hook",
                                        "freeze",
                                        "ema_decay",
                                        "watch.gradients",
                                        "watch.values",
                                        "watch.every",
                                        "recompute",
                                        "prefetch",
                                        "locations.optimizer",
                                        "locations.activations",
                                        "locations.accumulators",
                                        "locations.min_elements_sharded"};
  const Options usual;
  for (const char* const name : kOfUpdates) {
    const Option<Options>& option = options_table().find(name);
    require(option.print(options) == option.print(usual),
            "inference: {} requires an optimizer; leave it out", name);
  }
  const auto* pipelined =
      options.strategy ? std::get_if<PipelinedExecution>(&*options.strategy) : nullptr;
  require(pipelined == nullptr || pipelined->schedule != Schedule::kAuto,
          "inference: the schedule auto requires an optimizer; leave it out");
}

void check_offload(const Options& options, const char* program) {
  require(options.offload == Offload::kGiven,
          "{}: offload must be given for programs without a session, got automatic; use a model or "
          "plan_{}(), or name the tensors in locations",
          program, program);
}

void check_output(const Options& options, const char* program) {
  if (!options.output || options.output->mode != Output::Mode::kEvery) return;
  require(
      !options.outfeed || options.output->period == 1,
      "{}: the output must be all, final or sum with an outfeed, got every {}; a program writes "
      "the results of each update",
      program, options.output->period);
  const int64_t period = options.output->period;
  require(options.device_iterations % period == 0,
          "{}: the period of the output must be a divisor of device_iterations {}, got {}", program,
          options.device_iterations, period);
}

// Evaluation of a training runs on the stages of the training.
void check_evaluation(const Options& inference, const Strategy& training) {
  if (!inference.strategy) return;
  require((given_stages(*inference.strategy) == nullptr) == (given_stages(training) == nullptr),
          "inference: the strategy must be resident with a resident training, and sharded or "
          "pipelined with stages; leave it out to use that of the training");
}

// Error{kUsage} if a variable has another spec in evaluation than in training.
void check_variables(const NetworkGraph& train, const NetworkGraph& eval) {
  const nn::NamedTensors trained = train.graph.args();
  eval.graph.args().for_each([&](const std::string& key, const Tensor& variable) {
    if (!trained.has_leaf(key)) return;
    require(trained[key].spec() == variable.spec(),
            "network: variable '{}' must be {} in evaluation as in training, got {}", key,
            to_string(trained[key].spec()), to_string(variable.spec()));
  });
}

}  // namespace

Training build_training(Ir ir, const Network& network, nn::Optimizer optimizer,
                        const Options& given, const Options& inference) {
  Options options = with_rate(given, optimizer);
  const NetworkGraph graph = network.build(ir, nn::RunMode::kTrain, options.watch.values);
  const Strategy strategy = options.strategy.value_or(default_strategy(graph));
  options.strategy = strategy;
  check_options(options, ir, "training");
  check_options(inference, ir, "inference");
  require(inference.accumulate == 1,
          "inference: accumulate must be 1, as there are no updates, got {}; device_iterations is "
          "the number of micro-batches",
          inference.accumulate);
  check_offload(options, "training");
  check_output(options, "training");
  check_output(inference, "inference");
  require(!options.recompute.all || options.recompute.blocks.empty(),
          "training: recompute must be all blocks or a list of blocks, got both");
  const WeightRules rules = weight_rules(ir, graph, optimizer, options);
  require(!rules.empty(),
          "training: No variables to optimize; the network must have a weight that the optimizer "
          "trains, got {} weights",
          graph.factories.select(graph.graph.args(), nn::Role::kWeight).keys_flat().size());
  check_watched_gradients(options, rules);
  NetworkGraph eval = network.build(ir, nn::RunMode::kEvaluate);
  for (Prediction& p : eval.results.predictions) p.writing = {};
  check_variables(graph, eval);
  Training t;
  t.learning_rate = rate_stream(ir, network, options);
  if (const auto* rate = std::get_if<StreamedRate>(&options.learning_rate)) {
    if (rate->field.empty()) t.rates_of_run = options.device_iterations;
  } else {
    t.constant_rate = std::get<double>(options.learning_rate);
  }
  add_coefficients(ir, optimizer, t);
  add_streams(ir, network, graph, eval, options, inference, t);
  check_evaluation(inference, strategy);
  emit_training(ir, graph, eval, rules, optimizer, options, strategy, inference, t);
  split_watch(ir, t);
  t.reductions = {options.accumulation_reduction, options.replica_reduction, {}};
  for (const auto& [key, rule] : rules)
    t.reductions.accumulators.emplace(key, rule.gradient.accumulator);
  t.torch_weights = torch_weights(graph.factories);
  const nn::NamedTensors weights = graph.factories.select(graph.graph.args(), nn::Role::kWeight);
  for (const std::string& key : weights.keys_flat()) {
    if (!rules.contains(key)) t.frozen.push_back(key);
  }
  t.accumulate = options.accumulate;
  t.device_iterations = options.device_iterations;
  t.eval_iterations = inference.device_iterations;
  t.replicas = ir.replication();
  return t;
}

Training build_inference(Ir ir, const Network& network, const Options& given) {
  Options options = given;
  require(!std::holds_alternative<PhasedExecution>(options.strategy.value_or(resident())),
          "inference: the strategy must be resident, sharded or pipelined, got phased");
  check_inference(options);
  check_offload(options, "inference");
  const NetworkGraph eval = network.build(ir, nn::RunMode::kEvaluate);
  const Strategy strategy = options.strategy.value_or(default_strategy(eval));
  options.strategy = strategy;
  check_options(options, ir, "inference");
  Training t;
  t.eval_fields = add_fields(ir, eval, options, t);
  for (const auto& [name, input] : eval.inputs)
    t.inputs.push_back(ir.h2d_stream(input.spec(), name));
  for (const Prediction& p : eval.results.predictions)
    require(p.writing.form != Writing::Reduction::kNone,
            "inference: the prediction '{}' must be written; leave it out instead", p.name);
  add_results(ir, network, {.predictions = eval.results.predictions}, options, t.eval_predictions,
              t.eval_labelled, t);
  emit_inference(ir, eval, options, strategy, t);
  t.torch_weights = torch_weights(eval.factories);
  t.accumulate = options.accumulate;
  t.device_iterations = options.device_iterations;
  t.replicas = ir.replication();
  return t;
}

}  // namespace sluice::train
