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
#include "sluice/train/cut/block_groups.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/phased_eval.h"
#include "sluice/train/strategies/phased_group.h"
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
        options_(options),
        training_(training),
        main_(ir_.entry_graph("train")),
        cut_(cut(network, SeedOps::kApart)),
        gradients_(differentiate(network, cut_, weight_rules, WeightGradients::kAccumulate)),
        grouping_(group_blocks(network, cut_, gradients_, weight_rules)),
        variables_(main_, network, weight_rules, optimizer, options, training, rows()),
        results_(written_results(network.results, training.losses, training.predictions,
                                 options.output.value_or(Output::all()))) {
    trained_weights(weight_rules, cut_, gradients_);  // Refuses weights without a gradient.
    recompute(cut_, options.recompute, gradients_);
    // The norm of all gradients and offloaded gradients require updates of their own.
    keeps_ = options.max_grad_norm || options.locations.accumulators == Location::kRemote;
    find_readers();
  }

  void build() {
    inputs_ = load_inputs(main_, network_, training_, variables_.step_sizes());
    StepSizes& sizes = variables_.step_sizes();
    if (training_.learning_rate && training_.rates_of_run == 1 && !sizes.is_loaded()) sizes.load();
    kept_.add(main_, results_, kRunForms);
    const size_t first = main_.ops().size();
    kept_.add(main_, results_, {ResultForm::kUpdateSum});
    if (network_.total_weight.valid()) {
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kReduction});
      total_weight_ = zeros(main_, network_.total_weight.spec(), "total_weight");
    }
    std::optional<nn::BoundGraph> seeds;
    if (cut_.seeds) seeds = serialise_seeds();
    for (const BlockGroup& group : grouping_.groups) groups_.push_back(make_group(group));
    const Graph::IoScope scope(main_, options_.io_mode);
    if (seeds) {
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kSeed});
      seeds->call(&main_, 0);
    }
    for (const auto& [key, rule] : weight_rules_) variables_.step_sizes().of(rule.group);
    for (const PhasedGroup& g : groups_) {
      if (g.has_forward()) g.forward_phases(main_);
    }
    for (size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].has_backward()) groups_[g].backward_phases(main_, total_weight_, tied_);
      for (const std::string& key : read_last_[g]) update_tied(key);
    }
    if (keeps_) update_kept();
    kept_.store(main_, results_, {ResultForm::kUpdateSum});
    if (options_.device_iterations > 1) {
      const Graph::ProvenanceScope of(main_,
                                      {.per_iteration = {.micro_batch = options_.accumulate}});
      transforms::repeat_last_ops(main_, first, options_.device_iterations);
    }
    kept_.store(main_, results_, kRunForms);
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

  void find_readers() {
    for (const BlockGraph& b : cut_.blocks) {
      for (const BlockValue& v : b.inputs) ++readers_[v.whole.id()];
    }
    // The group whose backward phases are the last ones that read a tied weight.
    std::set<std::string> found;
    for (size_t g = 0; g < grouping_.groups.size(); ++g) {
      const size_t b = grouping_.groups[g].first;
      if (!gradients_[b]) continue;
      for (const WeightUse& w : block(b).weights) {
        if (is_tied(w.key) && weight_rules_.contains(w.key) && found.insert(w.key).second)
          read_last_[g].push_back(w.key);
      }
    }
  }
  bool is_tied(const std::string& key) const { return cut_.uses(key) > 1; }

  // The variables of each group. Tied weights are not rows.
  std::vector<VariableRows> rows() const {
    std::vector<VariableRows> result;
    const auto add = [&](const BlockGroup& group, const std::string& name, const auto& key_in) {
      VariableRows& own = result.emplace_back(VariableRows{name, {}});
      for (int64_t r = 0; r < group.rows; ++r)
        own.keys.push_back(key_in(block(group.first + static_cast<size_t>(r))));
    };
    for (const BlockGroup& group : grouping_.groups) {
      const BlockGraph& first = block(group.first);
      for (size_t i = 0; i < first.weights.size(); ++i) {
        const std::string& key = first.weights[i].key;
        if (!is_tied(key)) {
          add(group, key_of(group.first, key),
              [i](const BlockGraph& b) { return b.weights[i].key; });
        }
      }
      for (size_t i = 0; i < first.updates.size(); ++i) {
        add(group, key_of(group.first, first.updates[i].key),
            [i](const BlockGraph& b) { return b.updates[i].key; });
      }
    }
    return result;
  }

  // Its gradients are added up; the update is one task.
  void update_tied(const std::string& key) {
    const TiedWeight& weight = tied_.at(key);
    const Tensor gradient = variables_.reduced(key, weight.sum, weight.whole, variables_.divisor());
    if (!keeps_) {
      variables_.update(key, gradient, {}, weight.loaded);
      return;
    }
    nn::NamedTensors kept;
    kept.merge(key, gradient);
    variables_.keep(main_, 0, {key}, kept);
  }

  void update_kept() {
    const Tensors scale = variables_.scale_of_kept();
    for (size_t g = groups_.size(); g-- > 0;) {
      if (groups_[g].has_backward()) groups_[g].update_phases(main_, scale);
      for (const std::string& key : read_last_[g])
        variables_.update(key, variables_.kept(key), scale);
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

  nn::BoundGraph serialise_seeds();
  PhasedGroup make_group(const BlockGroup& group);
  void connect_joint(const BlockGroup& group, GroupGraphs& graphs, nn::BatchSerialiseOptions& o);
  void connect_separate(const BlockGroup& group, GroupGraphs& graphs, nn::BatchSerialiseOptions& o);
  nn::BatchHandle gradient_handle(const BlockGroup& group, const TakenGradient& taken);
  GroupGraphs joint_graphs(size_t b) const;
  GroupGraphs separate_graphs(size_t b) const;
  void load_values(const BlockGroup& group, const Tensors& inputs, nn::BatchSerialiseOptions& o);
  std::optional<size_t> once_input(const Tensor& whole) const;
  nn::NamedTensors store_results(const std::vector<BlockValue>& outputs,
                                 nn::BatchSerialiseOptions& o) const;
  void store_gradients(const BlockGroup& group, const Tensors& outputs,
                       nn::BatchSerialiseOptions& o);
  std::string key_of(size_t b, const std::string& key) const;
  std::string name_of(size_t b, const WeightUse& w) const {
    return is_tied(w.key) ? fmt::format("tied.{}_u{}", w.key, w.use) : "weight." + key_of(b, w.key);
  }
  void add_updates(size_t b, const GroupGraphs& graphs, nn::BatchSerialiseOptions& o) const;
  std::optional<H2dStream> field_stream(const Tensor& whole) const;

  Ir ir_;
  const NetworkGraph& network_;
  const WeightRules& weight_rules_;
  const Options& options_;
  Training& training_;
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  Grouping grouping_;
  StepVariables variables_;
  std::vector<WrittenResult> results_;
  KeptResults kept_;
  Tensors inputs_;       ///< Values of NetworkGraph::inputs, in the entry graph.
  Tensor total_weight_;  ///< Sum of NetworkGraph::total_weight, if there is one.
  bool keeps_ = false;   ///< Whether updates follow all gradients.
  std::vector<PhasedGroup> groups_;
  std::map<std::string, TiedWeight> tied_;                ///< By key.
  std::map<size_t, std::vector<std::string>> read_last_;  ///< Trained tied weights by group.
  std::map<TensorId, int> readers_;                       ///< Number of blocks that read a value.
  std::map<TensorId, nn::BatchHandle> fields_;            ///< Fields that several blocks read.
  std::vector<std::pair<Content, RemoteBuffer>> buffers_;
};

// A row of a buffer holds the seeds of one block.
nn::BoundGraph Phases::serialise_seeds() {
  nn::BatchSerialiseOptions o = serial_options();
  o.loads.emplace_back(cut_.seeds->inputs[0].part, *training_.seed);
  for (const BlockValue& v : cut_.seeds->outputs)
    o.store_buffers.emplace_back(v.part, handle(Content::kValue, v.whole));
  const nn::NamedTensors kept = store_results(cut_.seeds->outputs, o);
  nn::BatchSerialResult phase = nn::batch_serialise(cut_.seeds->graph, o);
  if (training_.note.empty()) training_.note = phase.note;
  return phase.graph.bind(kept);
}

// Variables that are rows have one name in all rows: their name in the block, or else their key in
// row 0.
std::string Phases::key_of(size_t b, const std::string& key) const {
  const std::string prefix = block(b).name + ".";
  const auto in_block = [&](const auto& v) { return is_tied(v.key) || v.key.starts_with(prefix); };
  const bool all = std::all_of(block(b).weights.begin(), block(b).weights.end(), in_block) &&
                   std::all_of(block(b).updates.begin(), block(b).updates.end(), in_block);
  return all ? key.substr(prefix.size()) : key;
}

// The index of an input that is given once a run.
std::optional<size_t> Phases::once_input(const Tensor& whole) const {
  for (size_t i = 0; i < network_.inputs.size(); ++i) {
    if (network_.inputs[i].second == whole) return i;
  }
  return std::nullopt;
}

std::optional<H2dStream> Phases::field_stream(const Tensor& whole) const {
  for (size_t i = 0; i < network_.fields.size(); ++i) {
    if (network_.fields[i].second == whole) return training_.fields[i];
  }
  return std::nullopt;
}

GroupGraphs Phases::separate_graphs(size_t b) const {
  GroupGraphs graphs{.block = block(b).name};
  nn::NamedTensors weights;
  std::vector<GroupVariable>& all = graphs.variables;
  for (const WeightUse& w : block(b).weights) {
    all.push_back({.name = name_of(b, w),
                   .key = w.key,
                   .tied = is_tied(w.key),
                   .trained = weight_rules_.contains(w.key)});
    weights.merge(all.back().name, w.input);
  }
  const auto own =
      std::stable_partition(all.begin(), all.end(), [](const GroupVariable& v) { return v.tied; });
  std::reverse(all.begin(), own);
  std::sort(own, all.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  for (const RunningUse& u : block(b).updates)
    all.push_back({.name = "weight." + key_of(b, u.key), .key = u.key, .running = true});
  for (const BlockValue& v : block(b).inputs) {
    const auto once = once_input(v.whole);
    if (!once) continue;
    const std::string name = fmt::format("input.{}", *once);
    weights.merge(name, v.part);
    graphs.inputs.merge(name, inputs_[*once]);
  }
  graphs.forward = nn::GraphWithNamedArgs(block(b).graph.graph(), weights);
  if (!gradients_[b]) return graphs;
  const BlockGradient& gradient = *gradients_[b];
  nn::NamedTensors args;
  if (gradient.counter.valid()) args.merge(kCounter, gradient.counter);
  for (size_t i = 0; i < gradient.accumulators.size(); ++i) {
    const WeightUse& w = block(b).weights[gradient.weights[i]];
    args.merge("accum." + name_of(b, w), gradient.accumulators[i]);
  }
  graphs.backward = nn::GraphWithNamedArgs(
      gradient.graph.graph(), args,
      std::make_shared<const transforms::GradGraphInfo>(gradient.graph.grad_graph_info()));
  return graphs;
}

// One graph that runs the block forward and backward. Its inputs are those of the block. Its
// outputs are those of the block, then the gradients that it gives.
GroupGraphs Phases::joint_graphs(size_t b) const {
  GroupGraphs graphs = separate_graphs(b);
  const nn::GraphWithNamedArgs forward = *graphs.forward;
  const nn::GraphWithNamedArgs backward = *graphs.backward;
  const BlockGraph& own = block(b);
  Graph& g = main_.ir().create_empty_graph(own.name);
  TensorMap given;
  for (const BlockValue& v : own.inputs) {
    if (!once_input(v.whole)) given.emplace_back(v.part, g.input(v.part.spec(), v.part.name()));
  }
  nn::NamedTensors args;
  const auto inputs = [&](const nn::NamedTensors& like, Pass pass) {
    like.for_each([&](const std::string& key, const Tensor& t) {
      args.merge(key, g.input(t.spec(), key, pass));
    });
  };
  inputs(forward.args(), Pass::kByValue);
  inputs(backward.args(), Pass::kByReference);
  const CallSiteInfo call = forward.bind(args).call_with_info(&g, given);
  TensorMap gradients;
  for (const TakenGradient& t : gradients_[b]->taken)
    gradients.emplace_back(t.input, call.graph_to_parent(own.output(t.loss)));
  const Graph::ProvenanceScope gradient(g, {.role = OpRole::kGradient});
  const Tensors made =
      backward.bind(args).call(&g, gradients, backward.grad_graph_info().inputs_dict(call));
  Tensors outputs;
  for (const BlockValue& v : own.outputs) outputs.push_back(call.graph_to_parent(v.part));
  outputs.insert(outputs.end(), made.begin(), made.end());
  g.set_outputs(outputs);
  graphs.forward.reset();
  graphs.backward = nn::GraphWithNamedArgs(g, args);
  return graphs;
}

// `inputs` are those of the graph that runs first, one for each of the block's that a micro-batch
// has.
void Phases::load_values(const BlockGroup& group, const Tensors& inputs,
                         nn::BatchSerialiseOptions& o) {
  size_t next = 0;
  for (size_t i = 0; next < inputs.size(); ++i) {
    const Tensor& whole = block(group.first).inputs[i].whole;
    if (once_input(whole)) continue;
    const Tensor& input = inputs[next++];
    const auto stream = field_stream(whole);
    if (!stream) {
      o.loads.emplace_back(input, input_handle(Content::kValue, group, i));
      continue;
    }
    // The first block that reads a field loads it from its stream and stores it for the others.
    const auto kept = fields_.find(whole.id());
    if (kept != fields_.end()) {
      o.loads.emplace_back(input, kept->second);
      continue;
    }
    o.loads.emplace_back(input, *stream);
    if (readers_.at(whole.id()) < 2) continue;
    const RemoteBuffer own = ir_.remote_buffer(whole.spec(), options_.accumulate);
    const nn::BatchHandle place{own, nn::RowOffset::first()};
    o.store_buffers.emplace_back(input, place);
    fields_.emplace(whole.id(), place);
  }
}

// Stores the results of each micro-batch, or adds updates of the kept results. Returns the tensors
// of kept results by the names of their updates.
nn::NamedTensors Phases::store_results(const std::vector<BlockValue>& outputs,
                                       nn::BatchSerialiseOptions& o) const {
  nn::NamedTensors kept;
  const auto update = [&](const BlockValue& v, const std::string& name, const Tensor& result,
                          ResultForm form) {
    o.updates.push_back(
        {.value = v.part,
         .name = name,
         .spec = result.spec(),
         .apply = [form](const Tensor& own,
                         const Tensor& value) { KeptResults::update(own, form, value); },
         .role = OpRole::kResult});
    kept.merge(name, result);
  };
  for (const BlockValue& v : outputs) {
    if (total_weight_.valid() && v.whole == network_.total_weight)
      update(v, "total_weight", total_weight_, ResultForm::kUpdateSum);
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto& [value, stream, form] = results_[i];
      if (value != v.whole) continue;
      if (form == ResultForm::kEach) {
        o.store_streams.emplace_back(v.part, stream);
        continue;
      }
      update(v, fmt::format("result.{}", i), kept_.find(stream.name), form);
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
void Phases::connect_joint(const BlockGroup& group, GroupGraphs& graphs,
                           nn::BatchSerialiseOptions& o) {
  const BlockGraph& own = block(group.first);
  const Tensors inputs = graphs.backward->graph().inputs();
  const Tensors outputs = graphs.backward->graph().outputs();
  const auto at = [](const Tensors& list, size_t n) {
    return list.begin() + static_cast<std::ptrdiff_t>(n);
  };
  const auto values = std::count_if(own.inputs.begin(), own.inputs.end(),
                                    [&](const BlockValue& v) { return !once_input(v.whole); });
  load_values(group, Tensors(inputs.begin(), inputs.begin() + values), o);
  std::vector<BlockValue> results;
  for (size_t i = 0; i < own.outputs.size(); ++i)
    results.push_back({own.outputs[i].whole, outputs[i]});
  graphs.results = store_results(results, o);
  store_gradients(group, Tensors(at(outputs, own.outputs.size()), outputs.end()), o);
}

// The lists for a forward graph and its gradient graph, if there is one.
void Phases::connect_separate(const BlockGroup& group, GroupGraphs& graphs,
                              nn::BatchSerialiseOptions& o) {
  const BlockGraph& own = block(group.first);
  Tensors inputs;
  for (const BlockValue& v : own.inputs) {
    if (!once_input(v.whole)) inputs.push_back(v.part);
  }
  load_values(group, inputs, o);
  graphs.results = store_results(own.outputs, o);
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
void Phases::add_updates(size_t b, const GroupGraphs& graphs, nn::BatchSerialiseOptions& o) const {
  const auto& outputs = block(b).outputs;
  for (const RunningUse& u : block(b).updates) {
    nn::BatchUpdate update{.value = u.value.part,
                           .name = "weight." + key_of(b, u.key),
                           .spec = u.spec,
                           .apply = [rule = u.rule](const Tensor& variable, const Tensor& value) {
                             ops::scaled_add_(variable, value, rule.keep, rule.take);
                           }};
    if (!graphs.forward) {
      const auto at = std::find_if(outputs.begin(), outputs.end(),
                                   [&](const BlockValue& v) { return v.whole == u.value.whole; });
      update.value = graphs.backward->graph().outputs()[static_cast<size_t>(at - outputs.begin())];
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
  GroupGraphs graphs = joint ? joint_graphs(b) : separate_graphs(b);
  nn::BatchSerialiseOptions o = serial_options();
  if (joint) {
    connect_joint(group, graphs, o);
  } else {
    connect_separate(group, graphs, o);
  }
  add_updates(b, graphs, o);
  PhasedGroup result(group.rows, std::move(graphs), variables_, keeps_);
  const std::string note = result.serialise(o);
  if (training_.note.empty()) training_.note = note;
  std::vector<std::string> names;
  for (int64_t r = 0; r < group.rows; ++r) names.push_back(block(b + static_cast<size_t>(r)).name);
  ir_.name_rows(block(b).name, std::move(names));
  return result;
}

void Phases::build_eval(const NetworkGraph& eval, const Options& inference) {
  Graph& main = main_.ir().entry_graph("eval");
  const Graph::IoScope scope(main, options_.io_mode);
  const Graph::ProvenanceScope evaluates(main, {.role = OpRole::kEvaluation});
  std::map<TensorId, Tensor> values;
  for (size_t i = 0; i < eval.inputs.size(); ++i) {
    values.emplace(eval.inputs[i].second.id(),
                   main.host_load(training_.eval_fields[eval.fields.size() + i]));
  }
  const std::vector<WrittenResult> results = written_results(
      eval.results, {}, training_.eval_predictions, inference.output.value_or(Output::all()));
  KeptResults kept;
  kept.add(main, results, {ResultForm::kUpdateSum, ResultForm::kRunSum, ResultForm::kRunLast});
  const size_t first = main.ops().size();
  for (size_t i = 0; i < eval.fields.size(); ++i)
    values.emplace(eval.fields[i].second.id(), main.host_load(training_.eval_fields[i]));
  emit_evaluation(variables_, eval, options_.io_mode, main, values);
  for (const WrittenResult& r : results) {
    const Tensor& value = values.at(r.value.id());
    const Graph::ProvenanceScope of(main, {.role = OpRole::kResult});
    if (!kept.put(r.stream.name, value)) main.host_store(r.stream, value);
  }
  const Graph::ProvenanceScope of_loop(main, {.per_iteration = {.micro_batch = 1}});
  if (inference.device_iterations > 1)
    transforms::repeat_last_ops(main, first, inference.device_iterations);
  kept.store(main, results, {ResultForm::kUpdateSum, ResultForm::kRunSum, ResultForm::kRunLast});
}

}  // namespace

void build_phased(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                  const WeightRules& groups, nn::Optimizer& optimizer, const Options& options,
                  const Options& inference, Training& training) {
  // By default blocks move whole, so that equal blocks run in a loop.
  Options moved = options;
  int64_t& least = moved.locations.min_elements_off_device;
  if (least == TensorLocations().min_elements_off_device) least = 0;
  Phases phases(std::move(ir), network, groups, optimizer, moved, training);
  phases.build();
  phases.build_eval(eval, inference);
}

}  // namespace sluice::train
