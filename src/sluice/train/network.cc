#include "sluice/train/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sluice/ir/builtin.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/reductions.h"

namespace sluice::train {
namespace {

const TensorSpec kSeed{{2}, u32, {}};
const TensorSpec kScalar{{}, f32, {}};

void check_result(const Graph& graph, const std::string& name, const Tensor& t,
                  std::set<std::string>& names) {
  require(!name.empty() && names.insert(name).second,
          "network: losses and predictions must have different names, got '{}'{}", name,
          name.empty() ? "" : " twice");
  require(
      t.valid() && graph.owns(t) && graph.info(t).producer.valid(),
      "network: '{}' must be a tensor that build() computed, got {}", name,
      t.valid() ? fmt::format("'{}' of graph {}", t.name(), t.graph().name()) : "an empty handle");
}

void check_loss(const Graph& graph, const Loss& loss) {
  require(loss.value.rank() == 0 && is_float(loss.value.dtype()),
          "network: loss '{}' must be a floating-point scalar, got {}; reduce it with ops::mean()",
          loss.name, to_string(loss.value.spec()));
  for (const auto& [t, gradient] : loss.gradients) {
    const auto computed = [&](const Tensor& x) {
      return x.valid() && graph.owns(x) && graph.info(x).producer.valid();
    };
    require(computed(t) && computed(gradient),
            "network: a gradient of loss '{}', and the tensor that it belongs to, must be tensors "
            "that build() computed, got '{}' of '{}'",
            loss.name, gradient.valid() ? gradient.name() : "", t.valid() ? t.name() : "");
    require(t.spec() == gradient.spec(),
            "network: the gradient of loss '{}' by '{}' must be {}, got {}", loss.name, t.name(),
            to_string(t.spec()), to_string(gradient.spec()));
  }
}

// Finds the total weight that all losses share.
Tensor total_weight_of(const Graph& graph, const std::vector<Loss>& losses) {
  const Tensor& total = losses.front().total_weight;
  for (const Loss& loss : losses) {
    const auto text = [](const Tensor& t) { return t.valid() ? "'" + t.name() + "'" : "none"; };
    require(loss.total_weight == total,
            "network: losses must share one total_weight, got {} of '{}' and {} of '{}'; make each "
            "loss a sum with the same total_weight, or none",
            text(total), losses.front().name, text(loss.total_weight), loss.name);
  }
  if (!total.valid()) return total;
  require(graph.owns(total) && graph.info(total).producer.valid() && total.spec() == kScalar,
          "network: total_weight of loss '{}' must be a {} that build() computed, got '{}' {}; "
          "reduce it with ops::sum()",
          losses.front().name, to_string(kScalar), total.name(), to_string(total.spec()));
  return total;
}

void check_results(const Graph& graph, const Results& results, nn::RunMode mode) {
  require(mode == nn::RunMode::kEvaluate || !results.losses.empty(),
          "network: training requires at least one loss, got none");
  require(mode == nn::RunMode::kTrain || !results.predictions.empty(),
          "network: evaluation requires at least one prediction, got none");
  std::set<std::string> names;
  for (const Loss& loss : results.losses) {
    check_result(graph, loss.name, loss.value, names);
    check_loss(graph, loss);
  }
  for (const Prediction& p : results.predictions) check_result(graph, p.name, p.value, names);
}

// Checks a prediction whose labels are floating-point.
void check_targets(const Prediction& p, const Field& field, nn::RunMode mode) {
  const TensorSpec value = p.value.spec();
  const std::vector<int64_t> have = value.shape.dims(), want = field.spec.shape.dims();
  const size_t compared = mode == nn::RunMode::kTrain ? 0 : 1;
  require(is_float(value.dtype) && have.size() == want.size() && !want.empty() &&
              std::equal(want.begin() + compared, want.end(), have.begin() + compared),
          "network: prediction '{}' must be floating-point with the shape of its labels '{}' {}, "
          "got {}",
          p.name, p.labels, to_string(field.spec), to_string(value));
  require(!p.ignore_index && p.classes == 0,
          "network: prediction '{}' has the floating-point labels '{}', so it must have no classes "
          "and no ignore_index",
          p.name, p.labels);
}

// Checks that the labels of a prediction are a field with an int32 for each of its classes or rows
// of scores. In evaluation, the field may have another number of samples than the prediction.
void check_labels(const Prediction& p, const std::vector<Field>& fields, nn::RunMode mode) {
  std::vector<std::string> names;
  for (const Field& f : fields) names.push_back("'" + f.name + "'");
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& f) { return f.name == p.labels; });
  require(field != fields.end() && !field->once,
          "network: the labels of prediction '{}' must be a field of each micro-batch, one of {}, "
          "got '{}'",
          p.name, fmt::join(names, ", "), p.labels);
  require(p.writing.form == Writing::Reduction::kEach,
          "network: prediction '{}' has labels, so its value of each micro-batch must be written",
          p.name);
  if (is_float(field->spec.dtype)) return check_targets(p, *field, mode);
  const Shape& labels = field->spec.shape;
  require(field->spec.dtype == i32 && labels.rank() >= 1 && labels.elements() > 0,
          "network: the labels '{}' of prediction '{}' must be int32 or floating-point with the "
          "samples as first axis, got {}",
          p.labels, p.name, to_string(field->spec));
  const TensorSpec value = p.value.spec();
  const bool has_classes = value.dtype == i32;
  const int64_t scores = value.shape.rank() < 2 ? 0 : value.shape[value.shape.rank() - 1];
  const int64_t rows = has_classes   ? value.shape.elements()
                       : scores == 0 ? 0
                                     : value.shape.elements() / scores;
  const int64_t of_sample = labels.elements() / labels[0];
  const bool fits =
      mode == nn::RunMode::kTrain ? rows == labels.elements() : rows > 0 && rows % of_sample == 0;
  require(
      (has_classes || value.dtype == f32) && fits,
      "network: prediction '{}' must be int32 with a class, or float32 with a row of scores, for "
      "each of its labels '{}' {}, got {}",
      p.name, p.labels, to_string(field->spec), to_string(value));
}

void check_labels(const Results& results, const std::vector<Field>& fields, nn::RunMode mode) {
  for (const Prediction& p : results.predictions) {
    if (!p.labels.empty()) check_labels(p, fields, mode);
  }
}

// Finds the tensors whose gradients the losses define. A loss without gradients of its own gets its
// weight as a constant gradient, computed with the loss.
void add_loss_gradients(NetworkGraph& n) {
  Graph& graph = n.graph.graph();
  const auto& losses = n.results.losses;
  const auto add = [&](const Tensor& t, const Tensor& gradient) {
    for (auto& [known, sum] : n.loss_gradients) {
      if (known != t) continue;
      const OpId origin = graph.info(gradient).producer;
      const GraphEditor::Guise guise(graph, graph.op(origin));
      sum = ops::add(gradient, sum);
      n.added.emplace_back(graph.info(sum).producer, origin);
      return;
    }
    n.loss_gradients.emplace_back(t, gradient);
  };
  for (const Loss& loss : losses) {
    for (const auto& [t, gradient] : loss.gradients) add(t, gradient);
    if (!loss.gradients.empty()) continue;
    const Op origin = graph.op(graph.info(loss.value).producer);
    const GraphEditor::Guise guise(graph, origin);
    const builtin::InitOptions init{.dtype = loss.value.dtype(), .value = loss.weight};
    const Tensor weight =
        graph.emit(builtin::init(), {}, to_attrs(init), {.name = "loss_weight"})[0];
    n.added.emplace_back(graph.info(weight).producer, origin.id);
    add(loss.value, weight);
  }
}

// Replaces the sum that each loss with a total weight returns by the mean of its micro-batch.
void add_means(NetworkGraph& n) {
  if (!n.total_weight.valid()) return;
  Graph& graph = n.graph.graph();
  for (Loss& loss : n.results.losses) {
    const Op origin = graph.op(graph.info(loss.value).producer);
    const GraphEditor::Guise guise(graph, origin);
    const OpIndex first = graph.ops().end_id();
    loss.value = loss.value / ops::cast(divisor_of(n.total_weight), loss.value.dtype());
    for (const OpIndex i : IdRange(first, graph.ops().end_id()))
      n.added.emplace_back(graph.ops()[i].id, origin.id);
  }
}

// Returns why a value cannot be watched; empty if it can. `known` are the names of other ones.
std::string obstacle(const Graph& graph, const nn::internal::WatchedValue& v,
                     const std::set<std::string>& known) {
  const TensorInfo& info = graph.info(v.value);
  if (known.contains(v.name))
    return fmt::format("values must have different names, got '{}' twice", v.name);
  if (!info.producer.valid())
    return fmt::format("'{}' must be a tensor that build() computed, got '{}'", v.name, info.name);
  if (graph.storage(info.storage).version() != v.version)
    return fmt::format("'{}' must not be overwritten later, but '{}' is; watch a copy", v.name,
                       info.name);
  return {};
}

// Adds the values that `patterns` match to the results. Programs other than "watch" do not write
// them. A pattern with `*` leaves out results of submodules that cannot be watched.
void add_watched(NetworkGraph& n, const std::vector<nn::internal::WatchedValue>& all,
                 const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const nn::internal::WatchedValue& v : all) names.push_back(v.name);
  for (const std::string& pattern : patterns) {
    require(std::any_of(names.begin(), names.end(), nn::keys_like({pattern})),
            "watch.values: '{}' must match a value of the network, got none; values are {}",
            pattern, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  const nn::KeyMatch is_watched = nn::keys_like(patterns);
  std::set<std::string> known;
  for (const nn::internal::WatchedValue& v : all) {
    if (!is_watched(v.name)) continue;
    const std::string problem = obstacle(n.graph.graph(), v, known);
    const bool named = std::find(patterns.begin(), patterns.end(), v.name) != patterns.end();
    if (!problem.empty() && !v.declared && !named) continue;
    require(problem.empty(), "watch.values: {}", problem);
    known.insert(v.name);
    n.watched.emplace_back(v.name, v.value);
    n.results.predictions.push_back(
        {.name = v.name, .value = v.value, .writing = {.form = Writing::Reduction::kNone}});
  }
}

bool is_read(const Graph& graph, const Tensor& t) {
  const auto& outputs = graph.output_ids();
  if (std::find(outputs.begin(), outputs.end(), t.id()) != outputs.end()) return true;
  const StorageId storage = graph.info(t).storage;
  return std::any_of(graph.ops().begin(), graph.ops().end(), [&](const Op& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(),
                       [&](const Operand& o) { return graph.info(o.tensor).storage == storage; });
  });
}

// Removes ops that no result needs, and the inputs that are then not read.
void remove_unused(NetworkGraph& n, Purpose purpose) {
  Graph& graph = n.graph.graph();
  Tensors outputs;
  const auto add = [&](const Tensor& t) {
    if (std::find(outputs.begin(), outputs.end(), t) == outputs.end()) outputs.push_back(t);
  };
  if (purpose == Purpose::kEvaluate) n.results.losses.clear();
  for (const Loss& loss : n.results.losses) {
    add(loss.value);
    if (purpose == Purpose::kScore && loss.total_weight.valid()) add(loss.total_weight);
  }
  for (const auto& [t, gradient] : n.loss_gradients) {
    add(t);
    add(gradient);
  }
  for (const Tensor& sum : n.loss_sums) add(sum);
  if (n.total_weight.valid()) add(n.total_weight);
  for (const Prediction& p : n.results.predictions) add(p.value);
  for (const nn::internal::RunningUpdate& u : n.updates) add(u.value);
  graph.set_outputs(outputs);
  GraphEditor editor(graph);
  editor.remove_dead_ops();
  const auto unused = [&](const Tensor& t) { return !is_read(graph, t); };
  std::erase_if(n.seed, unused);
  Tensors inputs;
  for (auto* fields : {&n.fields, &n.inputs}) {
    std::erase_if(*fields, [&](const auto& field) { return unused(field.second); });
    for (const auto& [name, t] : *fields) inputs.push_back(t);
  }
  inputs.insert(inputs.end(), n.seed.begin(), n.seed.end());
  nn::NamedTensors args;
  n.graph.args().for_each([&](const std::string& key, const Tensor& t) {
    if (n.factories[key].role() == nn::Role::kRunning && unused(t)) return;
    args.merge(key, t);
    inputs.push_back(t);
  });
  editor.set_inputs(inputs);
  n.graph = nn::GraphWithNamedArgs(graph, std::move(args));
}

// Refuses reads of running variables that the network updates, and writes of any.
void check_running(const NetworkGraph& n) {
  const Graph& graph = n.graph.graph();
  const nn::NamedTensors running = n.factories.select(n.graph.args(), nn::Role::kRunning);
  for (const nn::internal::RunningUpdate& u : n.updates) {
    require(graph.info(u.value).producer.valid(),
            "network: the value of running variable '{}' must be a tensor that build() computed, "
            "got '{}'",
            u.key, u.value.name());
    require(graph.storage(graph.info(u.value).storage).version() == u.version,
            "network: the value of running variable '{}' must not be overwritten after "
            "update_running(), but '{}' is; update by a copy",
            u.key, u.value.name());
    require(!running.has_leaf(u.key),
            "network: running variable '{}' must be read or updated in training, got both; read it "
            "in evaluation only (Builder::mode)",
            u.key);
  }
  running.for_each([&](const std::string& key, const Tensor& t) {
    require(graph.storage(graph.info(t).storage).version() == 0,
            "network: running variable '{}' must be updated by the network's own graph, got a "
            "graph that the network calls; build the module in place",
            key);
  });
}

}  // namespace

void internal::check_fields(const std::vector<Field>& fields) {
  std::set<std::string> names;
  for (const Field& f : fields) {
    require(!f.name.empty() && names.insert(f.name).second,
            "network: fields must have different names, got '{}'{}", f.name,
            f.name.empty() ? "" : " twice");
  }
}

const Tensor& Inputs::operator[](std::string_view field) const {
  std::vector<std::string> names;
  for (const auto& [name, t] : fields_) {
    if (name == field) return t;
    names.push_back("'" + name + "'");
  }
  fail(ErrorKind::kUsage, "network: '{}' must be one of its fields, which are {}", field,
       fmt::join(names, ", "));
}

Loss cross_entropy(const Tensor& logits, const Tensor& labels, std::string name, double weight) {
  const auto [loss, gradient] = ops::cross_entropy_with_grad(logits, labels, {.loss_grad = weight});
  return {.name = std::move(name),
          .value = loss,
          .weight = weight,
          .gradients = {{logits, gradient}},
          .mean_cross_entropy = true};
}

Loss cross_entropy(const Tensor& logits, const Tensor& labels,
                   const nn::CrossEntropyOptions& options, std::string name, double weight) {
  require(options.reduction == ops::LossReduction::kMean,
          "cross_entropy: the reduction of loss '{}' must be the mean, got another; reduce the "
          "samples of nn::CrossEntropyLoss instead",
          name);
  nn::CrossEntropyLoss::Sum sum = nn::CrossEntropyLoss(options).sum(logits, labels, weight);
  const bool plain = options.class_weights.empty() && options.label_smoothing == 0;
  return {.name = std::move(name),
          .value = sum.loss,
          .weight = weight,
          .gradients = std::move(sum.gradients),
          .total_weight = sum.weight,
          .mean_cross_entropy = plain && !is_float(labels.dtype())};
}

Tensor divisor_of(const Tensor& total_weight) {
  return ops::where(ops::equal(total_weight, 0.0), 1.0, total_weight);
}

Loss mean_squared_error(const Tensor& prediction, const Tensor& target, std::string name,
                        double weight) {
  require(prediction.spec().shape == target.spec().shape,
          "mean_squared_error: the prediction must have the target's shape {}, got {}; reshape it",
          to_string(target.spec().shape), to_string(prediction.spec().shape));
  const Tensor difference = prediction - target;
  return {.name = std::move(name), .value = ops::mean(difference * difference), .weight = weight};
}

std::vector<Field> internal::classifier_fields(const TensorSpec& input,
                                               const ClassifierOptions& options) {
  require(input.shape.rank() >= 1, "classifier: the input must have a batch axis, got {}",
          to_string(input));
  return {{.name = "input", .spec = input, .eval_spec = options.eval_input},
          {.name = "labels", .spec = {{input.shape[0]}, i32, {}}}};
}

NetworkGraph Network::build(Ir ir, nn::RunMode mode, const std::vector<std::string>& watch) const {
  return build(std::move(ir), mode == nn::RunMode::kTrain ? Purpose::kTrain : Purpose::kEvaluate, 0,
               watch);
}

NetworkGraph Network::build_scored(Ir ir, int64_t samples) const {
  return build(std::move(ir), Purpose::kScore, samples);
}

NetworkGraph Network::build(Ir ir, Purpose purpose, int64_t samples,
                            const std::vector<std::string>& watch) const {
  const nn::RunMode mode =
      purpose == Purpose::kTrain ? nn::RunMode::kTrain : nn::RunMode::kEvaluate;
  nn::internal::BuildState state{
      .graph = ir.create_empty_graph(name_), .factories = {}, .args = {}, .mode = mode};
  state.updates.emplace();
  if (declarations_) nn::internal::declare(state.factories, *declarations_);
  std::vector<std::pair<std::string, Tensor>> all, fields, inputs;
  for (const Field& f : fields_) {
    const bool eval = mode == nn::RunMode::kEvaluate && f.eval_spec;
    TensorSpec spec = eval ? *f.eval_spec : f.spec;
    if (purpose == Purpose::kScore && !f.once && spec.shape.rank() > 0) {
      std::vector<int64_t> dims = spec.shape.dims();
      dims[0] = samples;
      spec.shape = Shape(std::move(dims));
    }
    all.emplace_back(f.name, state.graph.input(spec, f.name));
    (f.once ? inputs : fields).push_back(all.back());
  }
  Tensors seed;
  if (mode == nn::RunMode::kTrain) seed.push_back(state.graph.input(kSeed, "seed"));
  nn::Builder b(state);
  if (!seed.empty()) state.seed = seed[0];
  Results results = build_(b, Inputs(std::move(all), Seeds(state.seed), purpose));
  check_results(state.graph, results, mode);
  check_labels(results, fields_, mode);
  NetworkGraph n{.graph = nn::GraphWithNamedArgs(state.graph, std::move(state.args)),
                 .factories = std::move(state.factories),
                 .submodules = std::move(state.submodules),
                 .fields = std::move(fields),
                 .inputs = std::move(inputs),
                 .seed = std::move(seed),
                 .results = std::move(results),
                 .updates = std::move(*state.updates)};
  add_watched(n, state.watched, watch);
  if (mode == nn::RunMode::kTrain) n.total_weight = total_weight_of(state.graph, n.results.losses);
  if (mode == nn::RunMode::kTrain) {
    add_loss_gradients(n);
    for (const Loss& loss : n.results.losses) n.loss_sums.push_back(loss.value);
    add_means(n);
  }
  remove_unused(n, purpose);
  check_running(n);
  return n;
}

}  // namespace sluice::train
