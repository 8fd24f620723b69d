#include "sluice/train/emitter.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>

#include "sluice/ir/call.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/order/dependences.h"
#include "sluice/train/phases/forward_rows.h"
#include "sluice/train/phases/phases.h"
#include "sluice/train/strategies/flowing_values.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/pipeline_layout.h"
#include "sluice/train/strategies/step_blocks.h"
#include "sluice/train/strategies/step_dependences.h"
#include "sluice/train/strategies/step_devices.h"
#include "sluice/train/strategies/step_graph.h"
#include "sluice/train/strategies/step_variables.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice::train {
namespace {

using ByUse = MicroBatch::ByUse;

// The values that wait in remote memory; null if they stay on the device.
std::unique_ptr<RemoteActivations> remote_activations(const StepBlocks& blocks,
                                                      const Options& options,
                                                      const Strategy& strategy) {
  if (blocks.has_phases || options.locations.activations != Location::kRemote) return nullptr;
  using Stores = RemoteActivations::Stores;
  return std::make_unique<RemoteActivations>(
      blocks.cut, blocks.gradients, options.locations.min_elements_off_device,
      std::holds_alternative<OrderedExecution>(strategy) ? Stores::kAtOnce : Stores::kAtLastUse);
}

/// Consecutive tasks of one block.
struct BlockRun {
  Task task;  ///< The first one.
  MicroBatch::Weights weights;
  std::vector<MicroBatch> runs = {};

  bool has(const Task& other) const { return is_same(task, other); }
};

/// A training program whose weights another program evaluates; null variables: none.
struct Trained {
  const StepVariables* variables = nullptr;
  BlockDevices block_devices = {};
  bool has_rows = false;  ///< Whether variables of equal blocks are rows of one variable.
};

class Emitter {
 public:
  Emitter(Ir ir, const NetworkGraph& network, nn::RunMode mode, const WeightRules& rules,
          nn::Optimizer& optimizer, const Options& options, const Strategy& strategy,
          Training& training, const Trained& trained = {})
      : network_(network),
        options_(options),
        output_(options.output.value_or(Output::all())),
        training_(training),
        trains_(mode == nn::RunMode::kTrain),
        shares_weights_(trained.variables != nullptr),
        main_(ir.entry_graph(trains_ ? "train" : "eval")),
        blocks_(trains_ ? StepBlocks(network, rules, options, strategy)
                        : StepBlocks(network, trained.block_devices, trained.has_rows)),
        cut_(blocks_.cut),
        gradients_(blocks_.gradients),
        activations_(remote_activations(blocks_, options, strategy)),
        variables_(shares_weights_ ? StepVariables(main_, *trained.variables)
                                   : StepVariables(main_, network, rules, optimizer, options,
                                                   training, variable_rows(blocks_))),
        phased_{network, rules, options, training, blocks_, variables_},
        layout_(lay_out(mode, strategy)),
        stages_(layout_.stages),
        devices_(cut_, gradients_, stages_),
        tasks_(blocks_.has_phases ? std::vector<MicroBatchTask>()
                                  : tasks_of_micro_batch(layout_.order)),
        values_(cut_, gradients_, stages_, flows(), options),
        accumulators_(main_, rules, options) {
    if (!trains_) evaluates_.emplace(main_, Graph::ProvenanceFields{.role = OpRole::kEvaluation});
    if (activations_) {
      const Ids<StageId, int64_t> in_flight = max_in_flight(layout_.order, stages_.size());
      activation_entries_ = *std::max_element(in_flight.begin(), in_flight.end());
      // Tasks of blocks may run micro-batches in any order.
      if (tasks_.front().task.block) activation_entries_ = options.accumulate;
      activations_->set_entries(activation_entries_);
    }
    check_order(layout_.order,
                step_dependences(network, cut_, gradients_, blocks_.uses, stages_, options, mode));
    if (shares_weights_) devices_.set_devices(variables_.devices());
    variables_.set_devices(devices_.variables());
    if (layout_.plan && !shares_weights_)
      training.pipeline = std::make_shared<PipelinePlan>(*layout_.plan);
    for (const AssignedStage& stage : stages_)
      training.devices = std::max(training.devices, stage.device + 1);
  }

  void build() {
    StepGraph scope{.graph = main_, .inputs = load_inputs()};
    make_kept(scope, ResultForm::kRunSum);
    make_kept(scope, ResultForm::kRunLast);
    const OpIndex first = main_.ops().end_id();
    scope.weights = weights_on_devices();
    std::vector<Task> of_stages;  // The others have their accumulators when they begin.
    for (const auto& [task, loops, outer] : tasks_) {
      if (!task.block) of_stages.push_back(task);
    }
    make_accumulators(scope, of_stages);
    make_kept(scope, ResultForm::kUpdateSum);
    if (trains_ && network_.total_weight.valid()) {
      const DeviceScope on(main_, devices_.device(network_.total_weight));
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kReduction});
      scope.total_weight = zeros(main_, network_.total_weight.spec(), "total_weight");
    }
    const UpdateLoop updates = update_loop(layout_.order);
    if (blocks_.has_phases) {
      Phases(phased_, scope).run(updates.body);
    } else {
      for (const OrderItem& item : updates.body) {
        std::vector<Task> tasks;
        for_each_written_task({item}, [&](const Task& t, size_t) { tasks.push_back(t); });
        make_accumulators(scope, tasks);
        run(scope, item);
      }
    }
    end_forward(scope);
    if (updates.trips > 1) {
      const Graph::ProvenanceScope of_loop(main_,
                                           {.per_iteration = {.micro_batch = options_.accumulate}});
      transforms::repeat_last_ops(main_, first, updates.trips);
    }
    store_kept(scope, ResultForm::kRunSum);
    store_kept(scope, ResultForm::kRunLast);
  }

  /// Returns what the evaluation of the same module reads.
  Trained trained() const {
    Trained own{.variables = &variables_, .has_rows = blocks_.has_phases};
    if (stages_.size() == 1) return own;
    for (const AssignedStage& stage : stages_) {
      for (const BlockId b : stage.blocks)
        own.block_devices.emplace(block(b).name, std::pair(stage.device, stage.step));
    }
    return own;
  }

 private:
  const BlockGraph& block(BlockId b) const { return cut_.blocks[b]; }

  PipelineLayout lay_out(nn::RunMode mode, const Strategy& strategy) {
    if (shares_weights_) {
      return lay_out_evaluation(blocks_.stages, strategy, options_,
                                evaluated_blocks(network_, blocks_, variables_));
    }
    if (blocks_.has_phases) {
      return lay_out_phases(blocks_.stages, phased_blocks(phased_), phased_.updates(),
                            cut_.seeds.has_value(), counts_of(options_, mode));
    }
    return train::lay_out(strategy, network_, cut_, gradients_, blocks_.uses, activations_.get(),
                          mode, options_);
  }

  // The flows between tasks. If values pass from one loop to another, all of these wait in remote
  // memory, and no others.
  std::vector<Flow> flows() {
    const auto find = [&](const RemoteActivations* remote) {
      return find_flows(tasks_, stages_, cut_, gradients_, shared_values(network_), remote);
    };
    std::vector<Flow> all = find(nullptr);
    if (!activations_) return all;
    if (!cross_loops(all)) return find(activations_.get());
    activations_.reset();
    return all;
  }

  // The entry of a micro-batch. In the body of the loop, `m` is relative to the iteration.
  RemoteEntry entry(const StepGraph& scope, int64_t m) const {
    if (activation_entries_ == 1) return 0;
    if (scope.iterations.empty()) return m % activation_entries_;
    return ops::increment_mod(scope.iterations.back(), static_cast<double>(m),
                              static_cast<double>(activation_entries_));
  }

  // Loads the inputs of the run. Each device that reads one has a copy, sent once.
  std::map<DeviceId, std::map<MicroBatch::Value, Tensor>> load_inputs() {
    std::map<DeviceId, std::map<MicroBatch::Value, Tensor>> result;
    const auto& rate = shares_weights_ ? std::nullopt : training_.learning_rate;
    auto next = shares_weights_ ? training_.eval_fields.begin() +
                                      static_cast<std::ptrdiff_t>(network_.fields.size())
                                : training_.inputs.begin();
    for (const auto& [name, whole] : network_.inputs) {
      const bool is_rate = rate && rate->name == name;
      Tensor loaded;
      if (is_rate) loaded = variables_.step_sizes().load();
      for (const AssignedStage& stage : stages_) {
        if (std::none_of(stage.blocks.begin(), stage.blocks.end(),
                         [&](BlockId b) { return block(b).input(whole).valid(); }))
          continue;
        const DeviceScope on(main_, stage.device);
        Tensor& here = result[stage.device][MicroBatch::value(whole)];
        if (here.valid()) continue;
        here = loaded.valid() ? ops::identity(loaded, name) : main_.host_load(*next);
        if (!loaded.valid()) loaded = here;
      }
      if (!is_rate) ++next;
    }
    // Before the loop over updates. A rate with an entry for each of them is loaded in it.
    StepSizes& sizes = variables_.step_sizes();
    if (rate && options_.device_iterations > 1 && training_.rates_of_run == 1 && !sizes.is_loaded())
      sizes.load();
    return result;
  }

  // A device reads its own weights, and copies of those that another one updates.
  std::map<DeviceId, nn::NamedTensors> weights_on_devices() {
    std::map<DeviceId, nn::NamedTensors> result;
    for (const AssignedStage& stage : stages_) {
      nn::NamedTensors& here = result[stage.device];
      const DeviceScope on(main_, stage.device);
      const auto add = [&](const std::string& key) {
        if (variables_.is_remote(key) || here.has_leaf(key)) return;
        const Tensor variable = variables_.weight(main_, key);
        here.merge(key, devices_.variables().at(key) == stage.device
                            ? variable
                            : ops::identity(variable, key));
      };
      for (const BlockId b : stage.blocks) {
        for (const WeightUse& w : block(b).weights) add(w.key);
        for (const RunningUse& u : block(b).updates) add(u.key);
      }
    }
    return result;
  }

  // Adds the accumulators of the backward tasks among `tasks`, unless they were added before. With
  // running means, adds a counter for each of these tasks.
  void make_accumulators(StepGraph& scope, const std::vector<Task>& tasks) {
    if (blocks_.weight_gradients == WeightGradients::kReturn) return;
    const bool running = options_.accumulation_reduction == Accumulation::kRunningMean &&
                         !network_.total_weight.valid();
    std::map<TaskBlocks, std::vector<BlockId>> made;
    for (const Task& task : tasks) {
      if (task.runs_backward() && accumulated_.insert(key_of(task)).second)
        made.emplace(key_of(task), blocks_of(task, stages_));
    }
    if (made.empty()) return;
    std::map<std::string, DeviceId> devices;  // Indexed by use.
    for (const auto& [key, blocks] : made) {
      const DeviceScope on(main_, stages_[key.first].device);
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kAccumulation});
      bool counts = false;
      for (const BlockId b : blocks) {
        counts = counts || (running && gradients_[b]);
        for (const WeightUse& w : block(b).weights)
          devices.emplace(w.name(), stages_[key.first].device);
      }
      if (counts) scope.counters.emplace(key, zeros(main_, {{}, f32, {}}, "mean_accum_counter"));
    }
    for (const auto& [key, uses] : blocks_.uses) {
      for (const WeightUse* use : uses) {
        const auto device = devices.find(use->name());
        if (device == devices.end()) continue;
        const DeviceScope on(main_, device->second);
        accumulators_.add(*use);
        if (!accumulators_.is_remote(use->name()))
          scope.accumulators.emplace(use->name(), accumulators_.tensor(use->name()));
      }
    }
  }

  // Runs an item of the order. In the body of a loop, micro-batches are relative to the iteration.
  void run(StepGraph& scope, const OrderItem& item) {
    if (const Task* task = item.task()) return run(scope, {task, 1});
    const size_t depth = tasks_.front().outer + depth_;
    if (!is_row_loop(*item.loop(), depth)) return loop(scope, *item.loop());
    std::vector<Task> rows;
    for_each_row({item}, depth, [&](const Task& row) { rows.push_back(row); });
    run(scope, rows);
  }

  // Runs a task, or the rows of a group forward in a loop.
  void run(StepGraph& scope, std::span<const Task> rows) {
    const Task& task = rows.front();
    if (!run_ || !run_->has(task)) end_block_run(scope);
    if (!task.has_micro_batch()) {
      end_forward(scope);
      if (task.kind == TaskKind::kNorm) {
        scale_ = norm();
      } else {
        update(task);
      }
      return;
    }
    const int64_t m = task.micro_batch.constant;
    const DeviceId device = devices_.device(task);
    const DeviceScope on(scope.graph, device);
    const Graph::ProvenanceScope of(scope.graph, {.at = {.micro_batch = m}});
    const TaskContext at{scope.graph, scope.iterations, tasks_.front().outer};
    MicroBatchValues found = values_.read(at, task);
    if (const auto inputs = scope.inputs.find(device); inputs != scope.inputs.end())
      found.forward.insert(inputs->second.begin(), inputs->second.end());
    MicroBatch batch(scope.graph, cut_, gradients_, found, activations_.get(), options_.io_mode,
                     entry(scope, m));
    if (task.block && !run_)
      run_ = BlockRun{task, variables_.load_weights(scope.graph, weights_of(scope, task)), {}};
    if (task.runs_forward()) forward(scope, rows, batch);
    if (task.runs_backward()) backward(scope, task, batch);
    values_.write(at, rows.back(), found, batch.values());
  }

  // Ends the run of a block: updates its running variables once per micro-batch.
  void end_block_run(const StepGraph& scope) {
    if (!run_) return;
    if (run_->task.runs_forward()) {
      const DeviceScope on(scope.graph, devices_.device(run_->task));
      for (const BlockId b : blocks_of(run_->task, stages_))
        variables_.update_running(scope.graph, block(b), run_->runs, weights_of(scope, run_->task));
    }
    run_.reset();
  }
  // The weights of a block as a task reads them; remote ones are loaded once per run of the block.
  MicroBatch::Weights weights(const StepGraph& scope, const Task& task) const {
    return run_ ? run_->weights : variables_.load_weights(scope.graph, weights_of(scope, task));
  }

  void forward(StepGraph& scope, std::span<const Task> rows, MicroBatch& batch) {
    Graph& g = scope.graph;
    const Task& task = rows.front();
    const auto& fields = trains_ ? training_.fields : training_.eval_fields;
    for (size_t i = 0; i < network_.fields.size(); ++i)
      load(g, task, batch, network_.fields[i].second, fields[i]);
    for (const Tensor& t : network_.seed) {
      const Graph::ProvenanceScope of(g, {.role = OpRole::kSeed});
      load(g, task, batch, t, *training_.seed);
    }
    std::vector<BlockId> blocks;
    for (const Task& row : rows) {
      for (const BlockId b : blocks_of(row, stages_)) blocks.push_back(b);
    }
    if (rows.size() > 1) {
      const auto group =
          std::find_if(blocks_.grouping.groups.begin(), blocks_.grouping.groups.end(),
                       [&](const BlockGroup& g) { return g.first == blocks.front(); });
      forward_rows(g, cut_, *group, variables_, weights(scope, task), options_.io_mode, batch);
    }
    for (const BlockId b : rows.size() > 1 ? std::vector<BlockId>() : blocks) {
      batch.forward(b, weights(scope, task));
      if (run_) {
        run_->runs.push_back(batch);
      } else {
        variables_.update_running(g, block(b), {&batch, 1}, weights_of(scope, task));
      }
    }
    const auto makes = [&](const Tensor& value) {
      const std::optional<BlockId> b = devices_.maker(value);
      return b && std::find(blocks.begin(), blocks.end(), *b) != blocks.end();
    };
    each_written([&](const WrittenResult& result) {
      const Graph::ProvenanceScope of(g, {.role = OpRole::kResult});
      if (makes(result.value) && !scope.kept.put(result.stream.name, batch[result.value]))
        g.host_store(result.stream, batch[result.value]);
    });
    const Graph::ProvenanceScope of(g, {.role = OpRole::kReduction});
    if (scope.total_weight.valid() && makes(network_.total_weight))
      ops::accumulate_(scope.total_weight, batch[network_.total_weight]);
  }

  const nn::NamedTensors& weights_of(const StepGraph& scope, const Task& task) const {
    return scope.weights.at(devices_.device(task));
  }

  // Calls use(result) for each result that is written and that a block makes.
  template <typename Use>
  void each_written(const Use& use) const {
    const auto& predictions = trains_ ? training_.predictions : training_.eval_predictions;
    for (const WrittenResult& result : written_results(network_, training_, predictions, output_)) {
      if (devices_.maker(result.value)) use(result);
    }
  }

  // Adds the tensors of results that are kept, on the devices that make these.
  void make_kept(StepGraph& scope, ResultForm form) {
    each_written([&](const WrittenResult& result) {
      if (result.form != form) return;
      const DeviceScope on(main_, devices_.device(result.value));
      scope.kept.add(main_, result.stream, form);
    });
  }

  void store_kept(const StepGraph& scope, ResultForm form) {
    each_written([&](const WrittenResult& result) {
      if (result.form != form) return;
      const DeviceScope on(main_, devices_.device(result.value));
      const Graph::ProvenanceScope of(main_, {.role = OpRole::kResult});
      main_.host_store(result.stream, scope.kept.find(result.stream.name));
    });
  }

  // A field is loaded by the task of the first block that reads it, or of the first block.
  void load(Graph& g, const Task& task, MicroBatch& batch, const Tensor& whole,
            const H2dStream& stream) {
    const BlockId b = devices_.loader(whole);
    const std::vector<BlockId> blocks = blocks_of(task, stages_);
    if (std::find(blocks.begin(), blocks.end(), b) != blocks.end())
      batch.set(whole, g.host_load(stream));
  }

  void backward(StepGraph& scope, const Task& task, MicroBatch& batch) {
    Graph& g = scope.graph;
    const auto counter = scope.counters.find(key_of(task));
    const bool counts = counter != scope.counters.end();
    for (const BlockId b : blocks_of(task, stages_)) {
      const MicroBatch::Weights block_weights = weights(scope, task);
      if (blocks_.weight_gradients == WeightGradients::kReturn) {
        for (const auto& [use, gradient] : batch.backward(b, block_weights, {}, {}))
          accumulators_.keep(block(b).use(use), gradient);
      } else {
        accumulators_.accumulate(g, batch, b, block(b), gradients_[b], block_weights,
                                 scope.accumulators, counts ? counter->second : Tensor());
      }
    }
    const Graph::ProvenanceScope of(g, {.role = OpRole::kAccumulation});
    if (counts && blocks_.weight_gradients == WeightGradients::kAccumulateShared)
      ops::add_(counter->second, ops::scalar_like(counter->second, 1));
  }

  // Emits a loop. If it runs one block, its remote weights are loaded once, before the loop.
  void loop(StepGraph& scope, const OrderLoop& loop) {
    end_block_run(scope);
    Graph& g = main_.ir().create_empty_graph("micro_batch");
    const Tensors carried = values_.enter_loop(loop, g);
    TensorMap given;
    StepGraph inside = enter(scope, g, loop, given);
    const bool runs_one_block = loop.body.size() == 1 && loop.body[0].task() != nullptr &&
                                loop.body[0].task()->block.has_value();
    std::optional<LoopVariables> loop_variables;
    if (runs_one_block) {
      const Task& task = *loop.body[0].task();
      loop_variables.emplace(task, block(blocks_of(task, stages_).front()), devices_.device(task),
                             variables_, accumulators_);
      loop_variables->load(scope, inside, given);
    }
    if (activation_entries_ > 1 || values_.has_buffers())
      inside.iterations.push_back(g.input({{}, i32, {}}, "iteration"));
    ++depth_;
    for (const OrderItem& item : loop.body) run(inside, item);
    end_block_run(inside);
    --depth_;
    g.set_outputs(values_.results_of_loop(loop));
    const Tensor iteration = inside.iterations.empty() ? Tensor() : inside.iterations.back();
    const Graph::ProvenanceScope of_loop(
        scope.graph, {.per_iteration = {.micro_batch = micro_batches_of_iteration(
                                            loop, tasks_.front().outer + depth_)}});
    values_.leave_loop(
        loop, ops::repeat(scope.graph, g, loop.trips, carried, given, {.iteration = iteration}));
    if (loop_variables) loop_variables->store(scope);
  }

  // The body `g` of a loop, with inputs for all that its micro-batches share.
  StepGraph enter(const StepGraph& scope, Graph& g, const OrderLoop& loop, TensorMap& given) const {
    const LoopBlocks blocks = blocks_of(loop, tasks_.front().outer + depth_, stages_);
    std::vector<std::string> results;
    each_written([&](const WrittenResult& r) {
      if (blocks.forward.contains(*devices_.maker(r.value))) results.push_back(r.stream.name);
    });
    StepGraph inside = make_body(scope, g, cut_, blocks, results, given);
    const Tensor& total = scope.total_weight;
    if (total.valid() && blocks.forward.contains(*devices_.maker(network_.total_weight))) {
      given.emplace_back(g.input(total.spec(), total.name(), Pass::kByReference), total);
      inside.total_weight = given.back().first;
    }
    return inside;
  }

  // Adds the ops after the last forward task of an update, unless they were added before.
  void end_forward(const StepGraph& scope) {
    if (std::exchange(forward_ended_, true)) return;
    store_kept(scope, ResultForm::kUpdateSum);
    if (!trains_ || blocks_.has_phases) return;
    variables_.average_running();
    if (!scope.total_weight.valid()) return;
    const DeviceScope on(main_, devices_.device(network_.total_weight));
    variables_.divide_by(scope.total_weight);
  }

  // The gradient of a weight, averaged over the replicas on the weight's device. A gradient in
  // remote memory is loaded and averaged for each use, so that few are on the device at a time.
  Tensor reduced(const std::string& key) {
    const auto known = reduced_.find(key);
    if (known != reduced_.end()) return known->second;
    const DeviceScope on(main_, devices_.variables().at(key));
    const Graph::ProvenanceScope of(main_, {.role = OpRole::kReduction, .variable = key});
    const Tensor gradient = variables_.reduced(
        key, sum_of_uses(blocks_.uses, key,
                         [&](const std::string& use) { return accumulators_.value(use); }));
    if (!accumulators_.any_remote()) reduced_.emplace(key, gradient);
    return gradient;
  }
  void reduce_all() {
    if (accumulators_.any_remote()) return;
    for (const auto& [key, uses] : blocks_.uses) reduced(key);
  }

  Tensors norm() {
    reduce_all();
    return variables_.scale([&](const std::string& key) { return reduced(key); });
  }

  // Updates all weights, or those whose first block with a gradient is the task's.
  void update(const Task& task) {
    if (!task.block) reduce_all();
    for (const auto& [key, uses] : blocks_.uses) {
      if (!task.block || devices_.updating_block(key) == BlockId(task.block->constant))
        variables_.update(key, reduced(key), scale_);
    }
  }

  const NetworkGraph& network_;
  const Options& options_;
  Output output_;
  Training& training_;
  bool trains_;
  bool shares_weights_;  ///< Evaluates the weights of a training program.
  Graph& main_;
  std::optional<Graph::ProvenanceScope> evaluates_;
  StepBlocks blocks_;
  const Cut& cut_;
  const BlockGradients& gradients_;
  std::unique_ptr<RemoteActivations> activations_;
  /// Entries of the activation buffers, which the micro-batches in flight use cyclically.
  int64_t activation_entries_ = 1;
  StepVariables variables_;
  PhasedStep phased_;
  PipelineLayout layout_;
  const PlacedStages& stages_;
  StepDevices devices_;
  std::vector<MicroBatchTask> tasks_;
  FlowingValues values_;
  Accumulators accumulators_;
  std::optional<BlockRun> run_;
  size_t depth_ = 0;                  ///< Loops over micro-batches around the graph of run().
  std::set<TaskBlocks> accumulated_;  ///< Backward tasks whose accumulators exist.
  bool forward_ended_ = false;
  std::map<std::string, Tensor> reduced_;  ///< Reduced gradients, by weight.
  Tensors scale_;                          ///< Factor of all gradients, from their norm.
};

// Adds the program "eval", which reads the weights of a training program. A run has
// `inference.device_iterations` micro-batches. Blocks that the training does not have run where the
// block before them runs.
void emit_evaluation(Ir ir, const NetworkGraph& eval, const Trained& trained,
                     const Strategy& strategy, const Options& inference, Training& training) {
  // The micro-batches of a run overlap in a pipeline, as in an update.
  const Options options{.accumulate = inference.device_iterations,
                        .output = inference.output,
                        .locations = {.weights = inference.locations.weights},
                        .io_mode = inference.io_mode};
  nn::Optimizer unused = nn::Optimizer::sgd();
  Emitter(ir, eval, nn::RunMode::kEvaluate, {}, unused, options, strategy, training, trained)
      .build();
}

}  // namespace

void emit_training(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                   const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                   const Strategy& strategy, const Options& inference, Training& training) {
  Options own = options;
  // By default the blocks of phases move whole, so that equal blocks run in a loop.
  int64_t& min = own.locations.min_elements_off_device;
  if (has_phases(options, strategy) && min == TensorLocations().min_elements_off_device) min = 0;
  Emitter step(ir, network, nn::RunMode::kTrain, rules, optimizer, own, strategy, training);
  step.build();
  Strategy evaluation = strategy;
  if (std::holds_alternative<PhasedExecution>(strategy) ||
      std::holds_alternative<OrderedExecution>(strategy))
    evaluation = sharded();
  Trained trained = step.trained();
  // The rows of a pipelined evaluation are not in loops.
  trained.has_rows =
      trained.has_rows &&
      !(inference.strategy && std::holds_alternative<PipelinedExecution>(*inference.strategy));
  emit_evaluation(ir, eval, trained, inference.strategy.value_or(evaluation), inference, training);
}

void emit_inference(Ir ir, const NetworkGraph& eval, const Options& options,
                    const Strategy& strategy, Training& training) {
  nn::Optimizer unused = nn::Optimizer::sgd();
  Emitter(ir, eval, nn::RunMode::kEvaluate, {}, unused, options, strategy, training).build();
}

}  // namespace sluice::train
