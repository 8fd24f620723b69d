#include "sluice/train/strategies/phases.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "sluice/ir/call.h"
#include "sluice/nn/autodiff.h"
#include "sluice/nn/batch_serialise.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/phased_eval.h"
#include "sluice/train/strategies/step_variables.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice::train {
namespace {

constexpr const char* kCounter = "mean_accum_counter";

class Phases {
 public:
  Phases(Ir ir, const NetworkGraph& network, const WeightRules& weight_rules,
         nn::Optimizer& optimizer, const Options& options, Training& training)
      : ir_(std::move(ir)),
        network_(network),
        weight_rules_(weight_rules),
        optimizer_(optimizer),
        options_(options),
        training_(training),
        main_(ir_.entry_graph("train")),
        cut_(cut(network, SeedOps::kApart)),
        gradients_(differentiate(network, cut_, weight_rules, WeightGradients::kAccumulate)),
        grouping_(group_blocks(network, cut_, gradients_, weight_rules)),
        results_(written_results(network.results, training.losses, training.predictions,
                                 options.output.value_or(Output::all()))) {
    trained_weights(weight_rules, cut_, gradients_);  // Refuses weights without a gradient.
    recompute(cut_, options.recompute, gradients_);
    // The norm of all gradients and offloaded gradients require updates of their own.
    if (options.max_grad_norm) scale_ = nn::GradScale::kInput;
    if (options.max_grad_norm || options.locations.accumulators == Location::kRemote)
      updates_ = Updates::kApart;
    find_owners();
  }

  void build() {
    find_readers();
    kept_.add(main_, results_);
    if (network_.total_weight.valid())
      total_weight_ = zeros(main_, network_.total_weight.spec(), "total_weight");
    std::optional<nn::BoundGraph> seeds;
    if (cut_.seeds) seeds = serialise_seeds();
    tied_->find = [this](Graph& graph, const std::string& path) {
      return find_weight(groups_, graph, path, training_.variables);
    };
    for (const BlockGroup& group : grouping_.groups) groups_.push_back(make_group(group));
    for (PhasedGroup& group : groups_) make_variables(group);
    make_other_variables();
    const Graph::IoScope scope(main_, options_.io_mode);
    if (seeds) seeds->call(&main_, 0);
    UpdateArguments arguments = step_sizes();
    arguments.total_weight = total_weight_;
    for (const PhasedGroup& g : groups_) {
      if (g.layer.has_forward()) g.layer.forward_phases(main_);
    }
    for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) {
      if (g->layer.has_backward()) g->layer.backward_phases(main_, arguments);
    }
    if (options_.max_grad_norm)
      arguments.grad_scale = nn::clip_factor(norm(), *options_.max_grad_norm);
    for (auto g = groups_.rbegin(); g != groups_.rend(); ++g) {
      if (g->layer.updates_apart()) g->layer.update_phases(main_, arguments);
    }
    kept_.store(main_, results_);
  }

  void build_eval(const NetworkGraph& eval, const Options& inference);

 private:
  const BlockGraph& block(size_t b) const { return cut_.blocks[b]; }

  nn::BatchSerialiseOptions serial_options() const {
    nn::BatchSerialiseOptions o;
    o.steps = options_.accumulate;
    o.io_mode = options_.io_mode;
    return o;
  }

  // The first block with a backward phase updates a weight: its phase is the last phase that reads
  // the weight.
  void find_owners() {
    for (const bool with_gradient : {true, false}) {
      for (size_t b = 0; b < gradients_.size(); ++b) {
        if (with_gradient && !gradients_[b]) continue;
        for (const WeightUse& w : block(b).weights) owners_.emplace(w.key, w.use);
      }
    }
    for (size_t b = 0; b < gradients_.size(); ++b) {
      if (!gradients_[b]) continue;
      for (const size_t i : gradients_[b]->weights) {
        const WeightUse& w = block(b).weights[i];
        if (w.use != owners_.at(w.key)) lent_.insert(w.key);
      }
    }
  }
  void find_readers() {
    for (const BlockGraph& b : cut_.blocks) {
      for (const BlockValue& v : b.inputs) ++readers_[v.whole.id()];
    }
  }

  // The buffer of all values, or of all gradients, of one spec.
  enum class Content { kValue, kGradient, kField };
  const RemoteBuffer& buffer(Content content, const TensorSpec& spec) {
    for (const auto& [kind, buffer] : buffers_) {
      if (kind == content && buffer.spec == spec) return buffer;
    }
    return buffers_.emplace_back(content, ir_.remote_buffer(spec, options_.accumulate)).second;
  }
  // The row of a value for row 0 of a group; the rows of the group follow it.
  nn::BatchHandle handle(Content content, const Tensor& whole) {
    const ValuePlace& place = grouping_.places.at(whole.id());
    return {buffer(content, place.spec), place.row};
  }
  // A fixed row, for every row of a group.
  nn::BatchHandle fixed_handle(Content content, const Tensor& whole) {
    const ValuePlace& place = grouping_.places.at(whole.id());
    const RemoteBuffer& b = buffer(content, place.spec);
    ir_.grow(b, (place.row + 1) * options_.accumulate);
    if (place.row == 0) return {b, nn::RowOffset::first()};
    return {b, nn::RowOffset([row = place.row](const Tensor& t) {
              return t.graph().scalar(static_cast<double>(row), i32, "row");
            })};
  }
  nn::BatchHandle input_handle(Content content, const BlockGroup& group, size_t input) {
    const Tensor& whole = block(group.first).inputs[input].whole;
    return group.rows > 1 && group.inputs[input].kind == GroupInput::Kind::kInvariant
               ? fixed_handle(content, whole)
               : handle(content, whole);
  }

  UpdateArguments step_sizes();
  Tensor norm() const;
  nn::BoundGraph serialise_seeds();
  PhasedGroup make_group(const BlockGroup& group);
  void connect_joint(const BlockGroup& group, LayerGraphs& graphs, nn::BatchSerialiseOptions& o);
  void connect_separate(const BlockGroup& group, LayerGraphs& graphs, nn::BatchSerialiseOptions& o);
  nn::BatchHandle gradient_handle(const BlockGroup& group, const TakenGradient& taken);
  LayerGraphs joint_graphs(size_t b) const;
  LayerGraphs separate_graphs(size_t b) const;
  void load_inputs(const BlockGroup& group, const Tensors& inputs, nn::BatchSerialiseOptions& o);
  nn::NamedTensors store_results(const std::vector<BlockValue>& outputs, const std::string& prefix,
                                 nn::BatchSerialiseOptions& o) const;
  void store_gradients(const BlockGroup& group, const Tensors& outputs,
                       nn::BatchSerialiseOptions& o);
  void make_variables(PhasedGroup& group);
  void make_other_variables();
  std::string key_of(size_t b, const std::string& key, int use = 0) const;
  void add_updates(size_t b, const LayerGraphs& graphs, nn::BatchSerialiseOptions& o) const;
  std::optional<H2dStream> field_stream(const Tensor& whole) const;

  Ir ir_;
  const NetworkGraph& network_;
  const WeightRules& weight_rules_;
  nn::Optimizer& optimizer_;
  const Options& options_;
  Training& training_;
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  Grouping grouping_;
  std::vector<WrittenResult> results_;
  KeptResults kept_;
  Tensor total_weight_;  ///< Sum of NetworkGraph::total_weight, if there is one.
  Updates updates_ = Updates::kInBackward;
  nn::GradScale scale_ = nn::GradScale::kNone;
  std::vector<PhasedGroup> groups_;
  std::shared_ptr<TiedWeights> tied_ = std::make_shared<TiedWeights>();
  std::set<std::string> lent_;                  ///< Weights with a gradient in other blocks, too.
  std::map<std::string, int> owners_;           ///< The use of each weight whose block has it.
  std::map<TensorId, int> readers_;             ///< Number of blocks that read a value.
  std::map<TensorId, nn::BatchHandle> fields_;  ///< Fields that several blocks read.
  std::vector<std::pair<Content, RemoteBuffer>> buffers_;
  nn::internal::PathCounts made_{ir_};
};

UpdateArguments Phases::step_sizes() {
  StepSizes sizes(main_, optimizer_, training_);
  UpdateArguments arguments;
  for (const auto& [key, rule] : weight_rules_) {
    if (rule.group >= arguments.step_sizes.size()) arguments.step_sizes.resize(rule.group + 1);
    arguments.step_sizes[rule.group] = sizes.of(rule.group);
  }
  return arguments;
}

// The norm of all gradients, summed in alphabetical order of the weights.
Tensor Phases::norm() const {
  std::map<std::string, Tensors> squares;
  for (const PhasedGroup& g : groups_) {
    if (!g.layer.updates_apart()) continue;
    for (size_t r = 0; r < g.keys.size(); ++r) {
      const auto own = g.layer.squares(main_, static_cast<int64_t>(r));
      for (const auto& [path, key] : g.keys[r]) {
        if (own.contains(key)) squares.emplace(path, own.at(key));
      }
    }
  }
  std::vector<Tensors> all;
  for (auto& [path, chunks] : squares) all.push_back(std::move(chunks));
  return nn::norm_of_chunks(all);
}

// A row of a buffer holds the seeds of one block.
nn::BoundGraph Phases::serialise_seeds() {
  nn::BatchSerialiseOptions o = serial_options();
  o.loads.emplace_back(cut_.seeds->inputs[0].part, *training_.seed);
  for (const BlockValue& v : cut_.seeds->outputs)
    o.store_buffers.emplace_back(v.part, handle(Content::kValue, v.whole));
  const nn::NamedTensors kept = store_results(cut_.seeds->outputs, "", o);
  nn::BatchSerialResult phase = nn::batch_serialise(cut_.seeds->graph, o);
  if (training_.note.empty()) training_.note = phase.note;
  return phase.graph.bind(kept);
}

// Weights and running variables have one key in all rows: their name in the block, or else their
// key in row 0.
std::string Phases::key_of(size_t b, const std::string& key, int use) const {
  const std::string prefix = block(b).name + ".";
  const auto in_block = [&](const auto& v) { return v.key.starts_with(prefix); };
  const bool all = std::all_of(block(b).weights.begin(), block(b).weights.end(), in_block) &&
                   std::all_of(block(b).updates.begin(), block(b).updates.end(), in_block);
  const std::string own = all ? key.substr(prefix.size()) : key;
  return use == 0 ? own : fmt::format("{}_u{}", own, use);
}

std::optional<H2dStream> Phases::field_stream(const Tensor& whole) const {
  for (size_t i = 0; i < network_.fields.size(); ++i) {
    if (network_.fields[i].second == whole) return training_.fields[i];
  }
  return std::nullopt;
}

LayerGraphs Phases::separate_graphs(size_t b) const {
  LayerGraphs graphs{.tied = tied_, .rules = WeightRules()};
  nn::NamedTensors weights;
  for (size_t i = 0; i < block(b).weights.size(); ++i) {
    const WeightUse& w = block(b).weights[i];
    const std::string key = key_of(b, w.key, w.use);
    weights.merge(key, w.input);
    if (const auto rule = weight_rules_.find(w.key); rule != weight_rules_.end())
      graphs.rules->emplace(key, rule->second);
    if (w.use != owners_.at(w.key)) {
      graphs.borrowed.push_back({key, w.key});
    } else {
      graphs.weights.merge(key, network_.factories[w.key]);
      if (lent_.contains(w.key)) graphs.lent.push_back({key, w.key});
    }
  }
  for (const RunningUse& u : block(b).updates)
    graphs.weights.merge(key_of(b, u.key), network_.factories[u.key]);
  std::reverse(graphs.borrowed.begin(), graphs.borrowed.end());
  graphs.forward = nn::GraphWithNamedArgs(block(b).graph.graph(), weights);
  if (!gradients_[b]) return graphs;
  const BlockGradient& gradient = *gradients_[b];
  nn::NamedTensors args;
  const auto add = [&](const std::string& key, const Tensor& input) {
    args.merge(key, input);
    graphs.accumulators.merge(key,
                              nn::VariableFactory(input.spec(), nn::zeros(), Pass::kByReference));
  };
  if (gradient.counter.valid()) add(kCounter, gradient.counter);
  for (size_t i = 0; i < gradient.accumulators.size(); ++i) {
    const WeightUse& w = block(b).weights[gradient.weights[i]];
    add("accum." + key_of(b, w.key, w.use), gradient.accumulators[i]);
  }
  graphs.backward = nn::GraphWithNamedArgs(
      gradient.graph.graph(), args,
      std::make_shared<const transforms::GradGraphInfo>(gradient.graph.grad_graph_info()));
  return graphs;
}

// One graph that runs the block forward and backward. Its inputs are those of the block. Its
// outputs are those of the block, then the gradients that it gives.
LayerGraphs Phases::joint_graphs(size_t b) const {
  LayerGraphs graphs = separate_graphs(b);
  const nn::GraphWithNamedArgs forward = *graphs.forward;
  const nn::GraphWithNamedArgs backward = *graphs.backward;
  const BlockGraph& own = block(b);
  Graph& g = main_.ir().create_empty_graph(own.name);
  TensorMap given;
  for (const BlockValue& v : own.inputs)
    given.emplace_back(v.part, g.input(v.part.spec(), v.part.name()));
  nn::NamedTensors args;
  const auto inputs = [&](const std::string& tree, const nn::NamedTensors& like, Pass pass) {
    nn::NamedTensors made;
    like.for_each([&](const std::string& key, const Tensor& t) {
      made.merge(key, g.input(t.spec(), tree + "." + key, pass));
      args.merge(tree + "." + key, made[key]);
    });
    return made;
  };
  const nn::NamedTensors weights = inputs("fwd", forward.args(), Pass::kByValue);
  const nn::NamedTensors state = inputs("bwd", backward.args(), Pass::kByReference);
  const CallSiteInfo call = forward.bind(weights).call_with_info(&g, given);
  TensorMap gradients;
  for (const TakenGradient& t : gradients_[b]->taken)
    gradients.emplace_back(t.input, call.graph_to_parent(own.output(t.loss)));
  const Tensors made =
      backward.bind(state).call(&g, gradients, backward.grad_graph_info().inputs_dict(call));
  Tensors outputs;
  for (const BlockValue& v : own.outputs) outputs.push_back(call.graph_to_parent(v.part));
  outputs.insert(outputs.end(), made.begin(), made.end());
  g.set_outputs(outputs);
  graphs.forward.reset();
  graphs.backward = nn::GraphWithNamedArgs(g, args);
  return graphs;
}

// `inputs` are those of the graph that runs first, one for each of the block's.
void Phases::load_inputs(const BlockGroup& group, const Tensors& inputs,
                         nn::BatchSerialiseOptions& o) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& whole = block(group.first).inputs[i].whole;
    const auto stream = field_stream(whole);
    if (!stream) {
      o.loads.emplace_back(inputs[i], input_handle(Content::kValue, group, i));
      continue;
    }
    // The first block that reads a field loads it from its stream and stores it for the others.
    const auto kept = fields_.find(whole.id());
    if (kept != fields_.end()) {
      o.loads.emplace_back(inputs[i], kept->second);
      continue;
    }
    o.loads.emplace_back(inputs[i], *stream);
    if (readers_.at(whole.id()) < 2) continue;
    const RemoteBuffer own = ir_.remote_buffer(whole.spec(), options_.accumulate);
    const nn::BatchHandle place{own, nn::RowOffset::first()};
    o.store_buffers.emplace_back(inputs[i], place);
    fields_.emplace(whole.id(), place);
  }
}

// Stores the results of each micro-batch, or adds updates of the kept results. Returns the tensors
// of kept results by the names of their updates, which get the prefix.
nn::NamedTensors Phases::store_results(const std::vector<BlockValue>& outputs,
                                       const std::string& prefix,
                                       nn::BatchSerialiseOptions& o) const {
  nn::NamedTensors kept;
  const auto update = [&](const BlockValue& v, const std::string& name, const Tensor& result,
                          ResultForm form) {
    o.updates.push_back({.value = v.part,
                         .name = prefix + name,
                         .spec = result.spec(),
                         .apply = [form](const Tensor& own, const Tensor& value) {
                           KeptResults::update(own, form, value);
                         }});
    kept.merge(name, result);
  };
  for (const BlockValue& v : outputs) {
    if (total_weight_.valid() && v.whole == network_.total_weight)
      update(v, "__total_weight", total_weight_, ResultForm::kUpdateSum);
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto& [value, stream, form] = results_[i];
      if (value != v.whole) continue;
      if (form == ResultForm::kEach) {
        o.store_streams.emplace_back(v.part, stream);
        continue;
      }
      update(v, fmt::format("__result{}", i), kept_.find(stream.name), form);
    }
  }
  return kept;
}

// `outputs` are the gradients of the block's gradient graph.
void Phases::store_gradients(const BlockGroup& group, const Tensors& outputs,
                             nn::BatchSerialiseOptions& o) {
  const BlockGradient& gradient = *gradients_[group.first];
  const auto& inputs = block(group.first).inputs;
  for (size_t k = 0; k < gradient.inputs.size(); ++k) {
    const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const BlockValue& v) {
      return v.whole == gradient.inputs[k];
    });
    const auto input = static_cast<size_t>(at - inputs.begin());
    o.store_buffers.emplace_back(outputs[k], input_handle(Content::kGradient, group, input));
  }
}

// The lists for a graph that runs the block forward and backward.
void Phases::connect_joint(const BlockGroup& group, LayerGraphs& graphs,
                           nn::BatchSerialiseOptions& o) {
  const BlockGraph& own = block(group.first);
  const Tensors inputs = graphs.backward->graph().inputs();
  const Tensors outputs = graphs.backward->graph().outputs();
  const auto at = [](const Tensors& list, size_t n) {
    return list.begin() + static_cast<std::ptrdiff_t>(n);
  };
  load_inputs(group, Tensors(inputs.begin(), at(inputs, own.inputs.size())), o);
  std::vector<BlockValue> results;
  for (size_t i = 0; i < own.outputs.size(); ++i)
    results.push_back({own.outputs[i].whole, outputs[i]});
  graphs.results = store_results(results, "fwd.", o);
  store_gradients(group, Tensors(at(outputs, own.outputs.size()), outputs.end()), o);
}

// The lists for a forward graph and its gradient graph, if there is one.
void Phases::connect_separate(const BlockGroup& group, LayerGraphs& graphs,
                              nn::BatchSerialiseOptions& o) {
  const BlockGraph& own = block(group.first);
  Tensors inputs;
  for (const BlockValue& v : own.inputs) inputs.push_back(v.part);
  load_inputs(group, inputs, o);
  graphs.results = store_results(own.outputs, "", o);
  for (const BlockValue& v : own.outputs) {
    if (readers_.contains(v.whole.id()))
      o.store_buffers.emplace_back(v.part, handle(Content::kValue, v.whole));
  }
  if (!graphs.backward) return;
  store_gradients(group, graphs.backward->graph().outputs(), o);
  const std::vector<TakenGradient>& taken = gradients_[group.first]->taken;
  const Tensors gradient_inputs = graphs.backward->graph().inputs();
  for (size_t k = 0; k < taken.size(); ++k)
    o.loads.emplace_back(gradient_inputs[k], gradient_handle(group, taken[k]));
  for (const TakenGradient& t : taken) {
    if (t.loss.valid() && !readers_.contains(t.loss.id()))
      o.store_buffers.emplace_back(own.output(t.loss), handle(Content::kValue, t.loss));
  }
}

// The updates of running variables by the outputs of the graph that runs the block forward.
void Phases::add_updates(size_t b, const LayerGraphs& graphs, nn::BatchSerialiseOptions& o) const {
  const auto& outputs = block(b).outputs;
  for (const RunningUse& u : block(b).updates) {
    nn::BatchUpdate update{.value = u.value.part,
                           .name = key_of(b, u.key),
                           .spec = u.spec,
                           .apply = [rule = u.rule](const Tensor& variable, const Tensor& value) {
                             ops::scaled_add_(variable, value, rule.keep, rule.take);
                           }};
    if (!graphs.forward) {
      const auto at = std::find_if(outputs.begin(), outputs.end(),
                                   [&](const BlockValue& v) { return v.whole == u.value.whole; });
      update.value = graphs.backward->graph().outputs()[static_cast<size_t>(at - outputs.begin())];
      update.name = "fwd." + update.name;
    }
    o.updates.push_back(std::move(update));
  }
}

nn::BatchHandle Phases::gradient_handle(const BlockGroup& group, const TakenGradient& taken) {
  if (taken.loss.valid()) return handle(Content::kValue, taken.loss);
  const auto& inputs = block(group.first).inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].whole == taken.value.whole) return input_handle(Content::kGradient, group, i);
  }
  return handle(Content::kGradient, taken.value.whole);
}

PhasedGroup Phases::make_group(const BlockGroup& group) {
  const size_t b = group.first;
  const bool joint = b + 1 == cut_.blocks.size() && gradients_[b];
  LayerGraphs graphs = joint ? joint_graphs(b) : separate_graphs(b);
  nn::BatchSerialiseOptions o = serial_options();
  if (joint) {
    connect_joint(group, graphs, o);
  } else {
    connect_separate(group, graphs, o);
  }
  add_updates(b, graphs, o);
  PhasedGroup result{group,
                     {},
                     {},
                     PhasedLayer(std::move(graphs), optimizer_,
                                 {.rows = group.rows,
                                  .locations = options_.locations,
                                  .updates = gradients_[b] ? updates_ : Updates::kApart,
                                  .grad_scale = scale_})};
  result.layer.serialise(o);
  if (training_.note.empty()) training_.note = result.layer.note();
  for (int64_t r = 0; r < group.rows; ++r) {
    const BlockGraph& row = block(b + static_cast<size_t>(r));
    result.blocks.push_back(row.name);
    auto& keys = result.keys.emplace_back();
    for (size_t i = 0; i < row.weights.size(); ++i) {
      const WeightUse& w = row.weights[i];
      if (w.use == owners_.at(w.key)) {
        const WeightUse& first = block(b).weights[i];
        keys.emplace(w.key, key_of(b, first.key, first.use));
      }
    }
    for (size_t i = 0; i < row.updates.size(); ++i)
      keys.emplace(row.updates[i].key, key_of(b, block(b).updates[i].key));
  }
  return result;
}

void Phases::make_variables(PhasedGroup& group) {
  for (size_t r = 0; r < group.keys.size(); ++r) {
    std::map<std::string, std::string> paths;
    for (const auto& [path, key] : group.keys[r]) paths.emplace(key, path);
    const auto& [weights, state] = group.layer.init(
        main_, static_cast<int64_t>(r), network_.factories, paths, options_.seed, made_);
    for (const auto& [key, path] : paths) {
      training_.variables.merge(path, weights[key]);
      if (!state.contains(key)) continue;
      state.tree(key).for_each([&, p = path](const std::string& name, const Tensor& t) {
        training_.state.merge(p + "." + name, t);
      });
    }
  }
}

// Variables that training neither reads nor updates are on the device.
void Phases::make_other_variables() {
  nn::NamedVariableFactories others;
  network_.factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    if (!training_.variables.has_leaf(key)) others.merge(key, factory);
  });
  others.init(main_, {.seed = options_.seed}, made_)
      .for_each(
          [&](const std::string& key, const Tensor& t) { training_.variables.merge(key, t); });
}

void Phases::build_eval(const NetworkGraph& eval, const Options& inference) {
  Graph& main = main_.ir().entry_graph("eval");
  const Graph::IoScope scope(main, options_.io_mode);
  const std::vector<WrittenResult> results = written_results(
      eval.results, {}, training_.eval_predictions, inference.output.value_or(Output::all()));
  KeptResults kept;
  kept.add(main, results);
  const size_t first = main.ops().size();
  std::map<TensorId, Tensor> values;
  for (size_t i = 0; i < eval.fields.size(); ++i)
    values.emplace(eval.fields[i].second.id(), main.host_load(training_.eval_fields[i]));
  emit_evaluation(groups_, eval, training_.variables, main, values);
  for (const WrittenResult& r : results) {
    const Tensor& value = values.at(r.value.id());
    if (!kept.put(r.stream.name, value)) main.host_store(r.stream, value);
  }
  if (inference.device_iterations > 1)
    transforms::repeat_last_ops(main, first, inference.device_iterations);
  kept.store(main, results);
}

}  // namespace

void build_phased(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                  const WeightRules& groups, nn::Optimizer& optimizer, const Options& options,
                  const Options& inference, Training& training) {
  Phases phases(std::move(ir), network, groups, optimizer, options, training);
  phases.build();
  phases.build_eval(eval, inference);
}

}  // namespace sluice::train
