#include "sluice/train/phases/phases.h"

#include <algorithm>
#include <set>

#include "sluice/ir/call.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/nn/autodiff.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"

namespace sluice::train {
namespace {

constexpr const char* kCounter = "mean_accum_counter";

// Variables that are rows have one name in all rows: their name in the block, or else their key in
// row 0.
std::string name_in_row(const Cut& cut, const BlockGraph& block, const std::string& key) {
  const std::string prefix = block.name + ".";
  const auto in_block = [&](const auto& v) {
    return cut.uses(v.key) > 1 || v.key.starts_with(prefix);
  };
  const bool all = std::all_of(block.weights.begin(), block.weights.end(), in_block) &&
                   std::all_of(block.updates.begin(), block.updates.end(), in_block);
  return all ? key.substr(prefix.size()) : key;
}

/// Tasks of a group's rows, one row after another.
struct RowTasks {
  TaskKind kind;         ///< Kind of the block's task; kUpdate for updates alone.
  int64_t block = 0;     ///< Block of the first row that runs.
  bool updates = false;  ///< Whether each row ends with its update.
  BlockRows rows = {};
};

// The task of a loop over micro-batches, or null.
const Task* loop_task(const OrderItem& item) {
  const OrderLoop* const loop = item.loop();
  const Task* const task =
      loop != nullptr && loop->body.size() == 1 ? loop->body[0].task() : nullptr;
  return task != nullptr && task->has_micro_batch() ? task : nullptr;
}

// Reads the run of one row, the update of one row, or both. `next` is advanced.
RowTasks read_row(const std::vector<OrderItem>& items, size_t& next) {
  const Task* const looped_task = loop_task(items[next]);
  const Task& first = looped_task != nullptr ? *looped_task : *items[next].task();
  ++next;
  RowTasks tasks{.kind = first.kind, .block = first.block ? first.block->constant : 0};
  const Task* const update = next < items.size() ? items[next].task() : nullptr;
  tasks.updates = !first.has_micro_batch() || (update != nullptr && update->block == first.block);
  if (first.has_micro_batch() && tasks.updates) ++next;
  return tasks;
}

RowTasks read_rows(const std::vector<OrderItem>& items, size_t& next) {
  const OrderLoop* const loop = items[next].loop();
  if (loop == nullptr || loop_task(items[next]) != nullptr) {
    RowTasks tasks = read_row(items, next);
    tasks.rows.in_line = 1;
    return tasks;
  }
  ++next;
  size_t inside = 0;
  RowTasks tasks = read_row(loop->body, inside);
  tasks.rows.looped = loop->trips;
  return tasks;
}

}  // namespace

PhasedUpdates PhasedStep::updates() const {
  return options.max_grad_norm || options.locations.accumulators == Location::kRemote
             ? PhasedUpdates::kApart
             : PhasedUpdates::kInBackward;
}

std::vector<VariableRows> variable_rows(const StepBlocks& blocks) {
  const Cut& cut = blocks.cut;
  std::vector<VariableRows> result;
  const auto add = [&](const BlockGroup& group, const std::string& key, const auto& key_in) {
    const BlockGraph& first = cut.blocks[group.first];
    VariableRows& own = result.emplace_back(VariableRows{name_in_row(cut, first, key), {}});
    for (int64_t r = 0; r < group.rows; ++r) own.keys.push_back(key_in(cut.blocks[group.block(r)]));
  };
  for (const BlockGroup& group : blocks.grouping.groups) {
    const BlockGraph& first = cut.blocks[group.first];
    for (size_t i = 0; i < first.weights.size(); ++i) {
      const std::string& key = first.weights[i].key;
      if (cut.uses(key) > 1) continue;
      add(group, key, [i](const BlockGraph& b) { return b.weights[i].key; });
    }
    for (size_t i = 0; i < first.updates.size(); ++i)
      add(group, first.updates[i].key, [i](const BlockGraph& b) { return b.updates[i].key; });
  }
  return result;
}

std::vector<PhasedBlocks> phased_blocks(const PhasedStep& step) {
  const auto is_remote = [&](const std::string& key, VariablePart part) {
    std::vector<RowTensor> unused;
    return step.variables.add_rows(key, part, false, unused);
  };
  std::set<std::string> begun;  // Tied weights with a sum of gradients.
  std::vector<PhasedBlocks> result;
  for (size_t g = step.blocks.grouping.groups.size(); g-- > 0;) {
    const BlockGroup& group = step.blocks.grouping.groups[g];
    const BlockGraph& block = step.blocks.cut.blocks[group.first];
    const bool has_gradient = step.blocks.gradients[group.first].has_value();
    bool weights = true, running = true, updated = true, state = true, kept = true;
    bool begins = false;
    for (const WeightUse& w : block.weights) {
      const bool trained = has_gradient && step.rules.contains(w.key);
      if (step.blocks.cut.uses(w.key) > 1) {
        begins = (trained && begun.insert(w.key).second) || begins;
        continue;
      }
      const bool value = is_remote(w.key, VariablePart::kValue);
      weights = weights && value;
      if (!trained) continue;
      updated = updated && value;
      state = is_remote(w.key, VariablePart::kState) && state;
      kept = step.updates() == PhasedUpdates::kApart && is_remote(w.key, VariablePart::kGradient) &&
             kept;
    }
    for (const RunningUse& u : block.updates)
      running = is_remote(u.key, VariablePart::kValue) && running;
    PhasedBlocks& blocks =
        result.emplace_back(PhasedBlocks{.first = group.first,
                                         .rows = group.rows,
                                         .stage = step.blocks.stage_of[group.first],
                                         .has_gradient = has_gradient});
    if (group.rows == 1) continue;
    const bool apart = step.updates() == PhasedUpdates::kApart;
    if (weights && running) blocks.forward_loop = group.rows;
    if (weights && (apart ? kept : state)) blocks.backward_loop = group.rows - (begins ? 1 : 0);
    if (updated && state && kept) blocks.update_loop = group.rows;
  }
  std::reverse(result.begin(), result.end());
  return result;
}

Phases::Phases(const PhasedStep& step, const StepGraph& scope)
    : step_(step),
      scope_(scope),
      main_(scope.graph),
      ir_(main_.ir()),
      results_(written_results(step.network, step.training, step.training.predictions,
                               step.options.output.value_or(Output::all()))) {
  find_readers();
  if (step_.blocks.cut.seeds) seeds_ = serialise_seeds();
  for (const BlockGroup& group : step_.blocks.grouping.groups) groups_.push_back(make_group(group));
}

void Phases::run(const std::vector<OrderItem>& items) {
  const Graph::IoScope scope(main_, step_.options.io_mode);
  const auto group_of = [&](const RowTasks& t) {
    size_t g = groups_.size() - 1;
    while (static_cast<int64_t>(step_.blocks.grouping.groups[g].first) > t.block) --g;
    return g;
  };
  for (size_t next = 0; next < items.size();) {
    RowTasks tasks = read_rows(items, next);
    if (tasks.kind == TaskKind::kSeeds) {
      const DeviceScope on(main_, device(BlockId(0)));
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kSeed});
      seeds_->call(&main_, 0);
      continue;
    }
    if (tasks.kind == TaskKind::kNorm) {
      scale_ = step_.variables.scale_of_kept();
      continue;
    }
    const size_t g = group_of(tasks);
    // Rows in line, and the loop after them, share what they load.
    while (next < items.size() && tasks.rows.looped == 0) {
      size_t after = next;
      const RowTasks more = read_rows(items, after);
      if (more.kind != tasks.kind || group_of(more) != g) break;
      tasks.rows.in_line += more.rows.in_line;
      tasks.rows.looped = more.rows.looped;
      next = after;
    }
    const DeviceId own = device(step_.blocks.grouping.groups[g].first);
    const nn::NamedTensors& weights = scope_.weights.at(own);
    const DeviceScope on(main_, own);
    switch (tasks.kind) {
      case TaskKind::kForward:
        groups_[g].forward_phases(main_, tasks.rows, weights);
        break;
      case TaskKind::kUpdate:
        groups_[g].update_phases(main_, tasks.rows, scale_);
        for (const std::string& key : read_last_[g])
          step_.variables.update(key, step_.variables.kept(key), scale_);
        break;
      default:
        groups_[g].backward_phases(main_, tasks.rows, tasks.updates, weights, scope_.total_weight,
                                   tied_);
        for (const std::string& key : read_last_[g]) end_tied(key, tasks.updates);
    }
  }
}

void Phases::find_readers() {
  for (const BlockGraph& b : step_.blocks.cut.blocks) {
    for (const BlockValue& v : b.inputs) ++readers_[v.whole.id()];
  }
  // The group whose backward phases are the last ones that read a tied weight.
  std::set<std::string> found;
  for (size_t g = 0; g < step_.blocks.grouping.groups.size(); ++g) {
    const BlockId b = step_.blocks.grouping.groups[g].first;
    if (!step_.blocks.gradients[b]) continue;
    for (const WeightUse& w : block(b).weights) {
      if (is_tied(w.key) && step_.rules.contains(w.key) && found.insert(w.key).second)
        read_last_[g].push_back(w.key);
    }
  }
}

nn::BatchSerialiseOptions Phases::serial_options() const {
  nn::BatchSerialiseOptions o;
  o.steps = step_.options.accumulate;
  o.io_mode = step_.options.io_mode;
  return o;
}

void Phases::end_tied(const std::string& key, bool updates) {
  const TiedWeight& weight = tied_.at(key);
  StepVariables& variables = step_.variables;
  const Tensor gradient = variables.reduced(key, weight.sum, weight.whole, variables.divisor());
  if (updates) return variables.update(key, gradient, {}, weight.loaded);
  nn::NamedTensors kept;
  kept.merge(key, gradient);
  variables.keep(main_, 0, {key}, kept);
}

const RemoteBuffer& Phases::buffer(BufferRole role, const ValueRow& value_row) {
  for (const StageBuffer& b : buffers_) {
    if (b.role == role && b.stage == value_row.stage && b.buffer.spec == value_row.spec)
      return b.buffer;
  }
  const RemoteBuffer made = ir_.remote_buffer(value_row.spec, step_.options.accumulate);
  return buffers_.emplace_back(StageBuffer{role, value_row.stage, made}).buffer;
}

// The row of a value for row 0 of a group; the rows of the group follow it.
nn::BatchHandle Phases::handle(BufferRole role, const Tensor& whole) {
  const ValueRow& value_row = step_.blocks.grouping.value_rows.at(whole.id());
  return {buffer(role, value_row), value_row.row};
}

// A fixed row, for every row of a group.
nn::BatchHandle Phases::fixed_handle(BufferRole role, const Tensor& whole) {
  const ValueRow& value_row = step_.blocks.grouping.value_rows.at(whole.id());
  const RemoteBuffer& b = buffer(role, value_row);
  ir_.grow(b, (value_row.row + 1) * step_.options.accumulate);
  if (value_row.row == 0) return {b, nn::RowOffset::first()};
  return {b, nn::RowOffset([row = value_row.row](const Tensor& t) {
            return t.graph().scalar(static_cast<double>(row), i32, "row");
          })};
}

nn::BatchHandle Phases::input_handle(BufferRole role, const BlockGroup& group, size_t input) {
  const Tensor& whole = block(group.first).inputs[input].whole;
  return group.rows > 1 && group.inputs[input].kind == GroupInput::Source::kInvariant
             ? fixed_handle(role, whole)
             : handle(role, whole);
}

// A row of a buffer holds the seeds of one block.
nn::BoundGraph Phases::serialise_seeds() {
  nn::BatchSerialiseOptions o = serial_options();
  o.loads.emplace_back(step_.blocks.cut.seeds->inputs[0].part, *step_.training.seed);
  for (const BlockValue& v : step_.blocks.cut.seeds->outputs)
    o.store_buffers.emplace_back(v.part, handle(BufferRole::kValue, v.whole));
  const nn::NamedTensors kept = store_results(step_.blocks.cut.seeds->outputs, o);
  nn::BatchSerialResult phase = nn::batch_serialise(step_.blocks.cut.seeds->graph, o);
  if (step_.training.note.empty()) step_.training.note = phase.note;
  return phase.graph.bind(kept);
}

std::string Phases::name_of(BlockId b, const WeightUse& w) const {
  return is_tied(w.key) ? fmt::format("tied.{}_u{}", w.key, w.use)
                        : "weight." + name_in_row(step_.blocks.cut, block(b), w.key);
}

// The index of an input that is given once a run.
std::optional<size_t> Phases::once_input(const Tensor& whole) const {
  for (size_t i = 0; i < step_.network.inputs.size(); ++i) {
    if (step_.network.inputs[i].second == whole) return i;
  }
  return std::nullopt;
}

std::optional<H2dStream> Phases::field_stream(const Tensor& whole) const {
  for (size_t i = 0; i < step_.network.fields.size(); ++i) {
    if (step_.network.fields[i].second == whole) return step_.training.fields[i];
  }
  return std::nullopt;
}

GroupGraphs Phases::separate_graphs(BlockId b) const {
  GroupGraphs graphs{.block = block(b).name};
  nn::NamedTensors weights;
  std::vector<GroupVariable>& all = graphs.variables;
  for (const WeightUse& w : block(b).weights) {
    all.push_back({.name = name_of(b, w),
                   .key = w.key,
                   .tied = is_tied(w.key),
                   .trained = step_.rules.contains(w.key)});
    weights.merge(all.back().name, w.input);
  }
  const auto own =
      std::stable_partition(all.begin(), all.end(), [](const GroupVariable& v) { return v.tied; });
  std::reverse(all.begin(), own);
  std::sort(own, all.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  for (const RunningUse& u : block(b).updates)
    all.push_back({.name = "weight." + name_in_row(step_.blocks.cut, block(b), u.key),
                   .key = u.key,
                   .running = true});
  for (const BlockValue& v : block(b).inputs) {
    const auto once = once_input(v.whole);
    if (!once) continue;
    const std::string name = fmt::format("input.{}", *once);
    weights.merge(name, v.part);
    graphs.inputs.merge(name, scope_.inputs.at(device(b)).at(MicroBatch::value(v.whole)));
  }
  graphs.forward = nn::GraphWithNamedArgs(block(b).graph.graph(), weights);
  if (!step_.blocks.gradients[b]) return graphs;
  const BlockGradient& gradient = *step_.blocks.gradients[b];
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

// One graph that runs the block forward and backward. Its inputs are the block's inputs. Its
// outputs are the block's outputs, then the gradients that the block computes.
GroupGraphs Phases::joint_graphs(BlockId b) const {
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
  for (const TakenGradient& t : step_.blocks.gradients[b]->taken)
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

// `inputs` are inputs of the graph that runs first: one for each input of the block, without those
// that are given once a run.
void Phases::load_values(const BlockGroup& group, const Tensors& inputs,
                         nn::BatchSerialiseOptions& o) {
  size_t next = 0;
  for (size_t i = 0; next < inputs.size(); ++i) {
    const Tensor& whole = block(group.first).inputs[i].whole;
    if (once_input(whole)) continue;
    const Tensor& input = inputs[next++];
    const auto stream = field_stream(whole);
    if (!stream) {
      o.loads.emplace_back(input, input_handle(BufferRole::kValue, group, i));
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
    const RemoteBuffer own = ir_.remote_buffer(whole.spec(), step_.options.accumulate);
    const nn::BatchHandle handle_of_field{own, nn::RowOffset::first()};
    o.store_buffers.emplace_back(input, handle_of_field);
    fields_.emplace(whole.id(), handle_of_field);
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
    if (scope_.total_weight.valid() && v.whole == step_.network.total_weight)
      update(v, "total_weight", scope_.total_weight, ResultForm::kUpdateSum);
    for (size_t i = 0; i < results_.size(); ++i) {
      const auto& [value, stream, form] = results_[i];
      if (value != v.whole) continue;
      if (form == ResultForm::kEach) {
        o.store_streams.emplace_back(v.part, stream);
        continue;
      }
      update(v, fmt::format("result.{}", i), scope_.kept.find(stream.name), form);
    }
  }
  return kept;
}

// `outputs` are the gradients of the block's gradient graph.
void Phases::store_gradients(const BlockGroup& group, const Tensors& outputs,
                             nn::BatchSerialiseOptions& o) {
  const BlockGradient& gradient = *step_.blocks.gradients[group.first];
  for (size_t k = 0; k < gradient.inputs.size(); ++k)
    o.store_buffers.emplace_back(outputs[k],
                                 gradient_handle(group, gradient.inputs[k], group.first));
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

// The options of a forward graph and of its gradient graph, if there is one.
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
      o.store_buffers.emplace_back(v.part, handle(BufferRole::kValue, v.whole));
  }
  if (!graphs.backward) return;
  store_gradients(group, graphs.backward->graph().outputs(), o);
  const std::vector<TakenGradient>& taken = step_.blocks.gradients[group.first]->taken;
  const Tensors gradient_inputs = graphs.backward->graph().inputs();
  for (size_t k = 0; k < taken.size(); ++k)
    o.loads.emplace_back(gradient_inputs[k], taken_gradient(group, taken[k]));
  for (const TakenGradient& t : taken) {
    if (t.loss.valid() && !readers_.contains(t.loss.id()))
      o.store_buffers.emplace_back(own.output(t.loss), handle(BufferRole::kValue, t.loss));
  }
}

// The updates of running variables by the outputs of the graph that runs the block forward.
void Phases::add_updates(BlockId b, const GroupGraphs& graphs, nn::BatchSerialiseOptions& o) const {
  const auto& outputs = block(b).outputs;
  for (const RunningUse& u : block(b).updates) {
    nn::BatchUpdate update{.value = u.value.part,
                           .name = "weight." + name_in_row(step_.blocks.cut, block(b), u.key),
                           .spec = u.spec,
                           .apply = [rule = u.rule](const Tensor& variable, const Tensor& value) {
                             ops::scaled_add_(variable, value, rule.keep, rule.take);
                           }};
    if (!graphs.forward) {
      const Tensors made = graphs.backward->graph().outputs();
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i].whole == u.value.whole) update.value = made[i];
      }
    }
    o.updates.push_back(std::move(update));
  }
}

// The gradient of a value that block `source` computes, in a buffer of the stage of `source`.
nn::BatchHandle Phases::gradient_handle(const BlockGroup& group, const Tensor& whole,
                                        BlockId source) {
  const ValueRow& value_row = step_.blocks.grouping.value_rows.at(whole.id());
  const StageId stage = step_.blocks.stage_of[source];
  if (value_row.stage != stage) {
    const auto [found, added] = crossing_gradients_.try_emplace({whole.id(), stage});
    if (added) found->second = ir_.remote_buffer(value_row.spec, step_.options.accumulate);
    return {found->second, nn::RowOffset::first()};
  }
  const auto& inputs = block(group.first).inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].whole == whole) return input_handle(BufferRole::kGradient, group, i);
  }
  return handle(BufferRole::kGradient, whole);
}

nn::BatchHandle Phases::taken_gradient(const BlockGroup& group, const TakenGradient& taken) {
  if (taken.loss.valid()) return handle(BufferRole::kValue, taken.loss);
  // The next block that computes a gradient of the value.
  for (const BlockId b : IdRange(group.block(1), step_.blocks.gradients.end_id())) {
    const auto& gradient = step_.blocks.gradients[b];
    if (!gradient) continue;
    const Tensors& given = gradient->inputs;
    if (std::find(given.begin(), given.end(), taken.value.whole) != given.end())
      return gradient_handle(group, taken.value.whole, b);
  }
  fail(ErrorKind::kInternal, "phases: no block computes the gradient of '{}'",
       taken.value.whole.name());
}

PhasedGroup Phases::make_group(const BlockGroup& group) {
  const BlockId b = group.first;
  const bool joint =
      group.block(1) == step_.blocks.cut.blocks.end_id() && step_.blocks.gradients[b];
  GroupGraphs graphs = joint ? joint_graphs(b) : separate_graphs(b);
  nn::BatchSerialiseOptions o = serial_options();
  if (joint) {
    connect_joint(group, graphs, o);
  } else {
    connect_separate(group, graphs, o);
  }
  add_updates(b, graphs, o);
  PhasedGroup result(group.rows, std::move(graphs), step_.variables);
  const std::string note = result.serialise(o);
  if (step_.training.note.empty()) step_.training.note = note;
  std::vector<std::string> names;
  for (int64_t r = 0; r < group.rows; ++r) names.push_back(block(group.block(r)).name);
  ir_.name_rows(block(b).name, std::move(names));
  return result;
}

}  // namespace sluice::train
