#include "sluice/train/strategies/pipeline.h"

#include <algorithm>
#include <memory>
#include <set>

#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/updates.h"
#include "sluice/train/pipeline/in_flight.h"
#include "sluice/train/strategies/kept_results.h"
#include "sluice/train/strategies/pipeline_layout.h"
#include "sluice/train/strategies/step_variables.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice::train {
namespace {

using ByUse = MicroBatch::ByUse;

// The values that wait in remote memory; null if they stay on the device.
std::unique_ptr<RemoteActivations> remote_activations(
    const Cut& cut, const std::vector<std::optional<BlockGradient>>& gradients,
    const Options& options) {
  if (options.locations.activations != Location::kRemote) return nullptr;
  return std::make_unique<RemoteActivations>(cut, gradients,
                                             options.locations.min_elements_off_device);
}

std::vector<std::optional<BlockGradient>> gradients_of(const NetworkGraph& network, const Cut& cut,
                                                       const WeightRules& rules,
                                                       const Options& options) {
  auto gradients = differentiate(
      network, cut, rules,
      options.accumulate == 1 ? WeightGradients::kReturn : WeightGradients::kAccumulateShared);
  recompute(cut, options.recompute, gradients);
  return gradients;
}

/// A graph that runs tasks, and its tensors that all micro-batches share.
struct Place {
  Graph& graph;
  std::map<int, nn::NamedTensors> weights;  ///< By device; running variables, too.
  std::map<int, std::map<MicroBatch::Value, Tensor>> inputs;  ///< NetworkGraph::inputs, by device.
  ByUse accumulators;
  std::map<int, Tensor> counters;  ///< By stage.
  KeptResults kept;
  Tensor iteration;          ///< Number of the trip, in the body of the loop.
  Tensor total_weight = {};  ///< Sum of NetworkGraph::total_weight, if there is one.
};

/// A training program whose weights another program evaluates. If `variables` is null, there is no
/// such program.
struct Trained {
  const StepVariables* variables = nullptr;
  BlockPlaces places = {};
};

class Pipeline {
 public:
  Pipeline(Ir ir, const NetworkGraph& network, nn::RunMode mode, const WeightRules& rules,
           nn::Optimizer& optimizer, const Options& options, const Strategy& strategy,
           Training& training, const Trained& trained = {})
      : network_(network),
        options_(options),
        output_(options.output.value_or(Output::all())),
        training_(training),
        trains_(mode == nn::RunMode::kTrain),
        beside_(trained.variables != nullptr),
        main_(ir.entry_graph(trains_ ? "train" : "eval")),
        cut_(cut(network)),
        gradients_(gradients_of(network, cut_, rules, options)),
        uses_(trained_weights(rules, cut_, gradients_)),
        activations_(remote_activations(cut_, gradients_, options)),
        layout_(beside_ ? lay_out_evaluation(trained.places, strategy, network, cut_)
                        : lay_out(strategy, network, cut_, gradients_, activations_.get(), mode,
                                  options)),
        stages_(layout_.stages),
        order_(layout_.order),
        variables_(beside_ ? StepVariables(main_, *trained.variables)
                           : StepVariables(main_, network, rules, optimizer, options, training)),
        accumulators_(main_, rules, options) {
    if (activations_) {
      const std::vector<int64_t> in_flight = max_in_flight(order_, options.accumulate);
      activation_entries_ = *std::max_element(in_flight.begin(), in_flight.end());
      activations_->set_entries(activation_entries_);
    }
    find_first_readers();
    if (layout_.plan && !beside_) training.pipeline = std::make_shared<PipelinePlan>(*layout_.plan);
    for (const PlacedStage& stage : stages_)
      training.devices = std::max(training.devices, stage.device + 1);
  }

  void build() {
    Place place{main_, {}, load_inputs(), {}, {}, {}, {}};
    make_kept(place, ResultForm::kRunSum);
    make_kept(place, ResultForm::kRunLast);
    const size_t first = main_.ops().size();
    place.weights = weights_on_devices();
    if (options_.accumulate > 1) make_accumulators(place);
    make_kept(place, ResultForm::kUpdateSum);
    if (trains_ && network_.total_weight.valid()) {
      const DeviceScope on(main_, stages_[total_weight_stage()].device);
      place.total_weight = zeros(main_, network_.total_weight.spec(), "total_weight");
    }
    const int64_t ramp = order_.ramp(), trips = options_.accumulate - ramp;
    int64_t iteration = 0;
    for (; iteration < ramp; ++iteration) run(place, iteration, options_.accumulate);
    if (options_.accumulate > 1 && trips > 0) {
      loop(place, trips);
      iteration += trips;
    }
    for (; iteration < options_.accumulate + ramp; ++iteration)
      run(place, iteration, options_.accumulate);
    store_kept(place, ResultForm::kUpdateSum);
    if (trains_) update(place);
    if (options_.device_iterations > 1)
      transforms::repeat_last_ops(main_, first, options_.device_iterations);
    store_kept(place, ResultForm::kRunSum);
    store_kept(place, ResultForm::kRunLast);
  }
  const StepVariables& variables() const { return variables_; }

  /// Returns the places of the blocks, for the evaluation of the same module.
  BlockPlaces places() const {
    BlockPlaces places;
    if (!layout_.plan) return places;
    for (const PlacedStage& stage : stages_) {
      for (const size_t b : stage.blocks)
        places.emplace(block(b).name, std::pair(stage.device, stage.step));
    }
    return places;
  }

 private:
  const BlockGraph& block(size_t b) const { return cut_.blocks[b]; }

  // A micro-batch ends before the next one begins.
  bool in_turn() const { return order_.ramp() == 0; }
  // The entry of a micro-batch. In the body of the loop, `m` is relative to the iteration.
  RemoteEntry entry(const Place& place, int64_t m) const {
    if (!activations_ || in_turn()) return 0;
    if (!place.iteration.valid()) return m % activation_entries_;
    return ops::increment_mod(place.iteration, static_cast<double>(order_.ramp() + m),
                              static_cast<double>(activation_entries_));
  }

  // The first stage that reads each field and each weight, by its forward task.
  void find_first_readers() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (const size_t b : stages_[s].blocks) {
        for (const BlockValue& v : block(b).inputs) first_reader_.emplace(v.whole.id(), s);
        for (const WeightUse& w : block(b).weights) owners_.emplace(w.key, stages_[s].device);
        for (const RunningUse& u : block(b).updates) owners_.emplace(u.key, stages_[s].device);
      }
    }
    if (beside_) {
      for (const auto& [key, device] : variables_.devices()) owners_.insert_or_assign(key, device);
    }
    variables_.place(owners_);
  }

  // Loads the inputs of the run. Each device that reads one has a copy, sent once.
  std::map<int, std::map<MicroBatch::Value, Tensor>> load_inputs() {
    std::map<int, std::map<MicroBatch::Value, Tensor>> result;
    const auto& rate = beside_ ? std::nullopt : training_.learning_rate;
    auto next = beside_ ? training_.eval_fields.begin() +
                              static_cast<std::ptrdiff_t>(network_.fields.size())
                        : training_.inputs.begin();
    for (const auto& [name, whole] : network_.inputs) {
      const bool is_rate = rate && rate->name == name;
      Tensor loaded;
      if (is_rate) loaded = variables_.step_sizes().load();
      for (const PlacedStage& stage : stages_) {
        if (std::none_of(stage.blocks.begin(), stage.blocks.end(),
                         [&](size_t b) { return block(b).input(whole).valid(); }))
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
  std::map<int, nn::NamedTensors> weights_on_devices() {
    std::map<int, nn::NamedTensors> result;
    for (const PlacedStage& stage : stages_) {
      nn::NamedTensors& here = result[stage.device];
      const DeviceScope on(main_, stage.device);
      const auto add = [&](const std::string& key) {
        if (variables_.is_remote(key) || here.has_leaf(key)) return;
        const Tensor variable = variables_.weight(main_, key);
        here.merge(key, owners_.at(key) == stage.device ? variable : ops::identity(variable, key));
      };
      for (const size_t b : stage.blocks) {
        for (const WeightUse& w : block(b).weights) add(w.key);
        for (const RunningUse& u : block(b).updates) add(u.key);
      }
    }
    return result;
  }

  // Adds the accumulators of gradients. With running means, adds a counter for each stage.
  void make_accumulators(Place& place) {
    const bool running = options_.accumulation_reduction == Accumulation::kRunningMean &&
                         !network_.total_weight.valid();
    for (size_t s = 0; running && s < stages_.size(); ++s) {
      const DeviceScope on(main_, stages_[s].device);
      bool counts = false;
      for (const size_t b : stages_[s].blocks) counts = counts || gradients_[b].has_value();
      if (counts) place.counters.emplace(s, zeros(main_, {{}, f32, {}}, "mean_accum_counter"));
    }
    std::map<std::string, int> devices;  // By use.
    for (const PlacedStage& stage : stages_) {
      for (const size_t b : stage.blocks) {
        for (const WeightUse& w : block(b).weights) devices.emplace(w.name(), stage.device);
      }
    }
    for (const auto& [key, uses] : uses_) {
      for (const WeightUse* use : uses) {
        const DeviceScope on(main_, devices.at(use->name()));
        accumulators_.add(*use);
        if (!accumulators_.is_remote(use->name()))
          place.accumulators.emplace(use->name(), accumulators_.tensor(use->name()));
      }
    }
  }

  // Runs the tasks of an iteration that have a micro-batch. In the body of the loop, every task has
  // one, and the number of the micro-batch is relative to the iteration.
  void run(Place& place, int64_t iteration, std::optional<int64_t> micro_batches) {
    for (const PipelineTask& task : order_.tasks) {
      const int64_t m = iteration - order_.iteration(task);
      if (micro_batches && (m < 0 || m >= *micro_batches)) continue;
      const auto s = static_cast<size_t>(task.stage);
      const int device = stages_[s].device;
      const DeviceScope on(place.graph, device);
      MicroBatchValues found = arrived(m, device);
      if (const auto inputs = place.inputs.find(device); inputs != place.inputs.end())
        found.forward.insert(inputs->second.begin(), inputs->second.end());
      MicroBatch batch(place.graph, cut_, gradients_, found, activations_.get(), options_.io_mode,
                       entry(place, m));
      if (task.backward) {
        backward(place, s, batch);
      } else {
        forward(place, s, batch);
      }
      send_on(m, order_.iteration(task), found, batch.values());
    }
  }

  MicroBatchValues arrived(int64_t m, int device) {
    MicroBatchValues values;
    for (const auto& [to, t] : flowing_[m]) {
      const auto& [value, where] = to;
      if (where != device) continue;
      if (value.is_gradient) {
        values.gradients.emplace(value.value.second, t);
      } else {
        values.forward.emplace(value.value, t);
      }
    }
    return values;
  }

  // Sends the values that a task has made to all devices that read them. `iteration` is that of
  // micro-batch 0.
  void send_on(int64_t m, int64_t iteration, const MicroBatchValues& found,
               const MicroBatchValues& values) {
    for (const Flow& flow : layout_.flows) {
      const Tensor made = find(values, flow.value);
      if (flow.made_by.iteration == iteration && made.valid() && made != find(found, flow.value))
        flowing_[m].insert_or_assign({flow.value, flow.device}, made);
    }
  }
  static Tensor find(const MicroBatchValues& values, const FlowingValue& value) {
    if (value.is_gradient) {
      const auto found = values.gradients.find(value.value.second);
      return found == values.gradients.end() ? Tensor() : found->second;
    }
    const auto found = values.forward.find(value.value);
    return found == values.forward.end() ? Tensor() : found->second;
  }

  void forward(Place& place, size_t s, MicroBatch& batch) {
    Graph& g = place.graph;
    const auto& fields = trains_ ? training_.fields : training_.eval_fields;
    for (size_t i = 0; i < network_.fields.size(); ++i)
      load(g, s, batch, network_.fields[i].second, fields[i]);
    for (const Tensor& t : network_.seed) load(g, s, batch, t, *training_.seed);
    const nn::NamedTensors& weights = place.weights.at(stages_[s].device);
    for (const size_t b : stages_[s].blocks) {
      batch.forward(b, variables_.visit(g, weights));
      variables_.update_running(g, block(b), {&batch, 1}, weights);
    }
    each_written([&](const WrittenResult& result, size_t stage) {
      if (stage == s && !place.kept.put(result.stream.name, batch[result.value]))
        g.host_store(result.stream, batch[result.value]);
    });
    if (place.total_weight.valid() && total_weight_stage() == s)
      ops::accumulate_(place.total_weight, batch[network_.total_weight]);
  }

  // Calls use(result, stage) for each result that is written; the stage makes it.
  template <typename Use>
  void each_written(const Use& use) const {
    const auto& predictions = trains_ ? training_.predictions : training_.eval_predictions;
    for (const WrittenResult& result :
         written_results(network_.results, training_.losses, predictions, output_)) {
      if (const auto stage = maker(result.value)) use(result, *stage);
    }
  }

  // The stage that makes a value of the network.
  std::optional<size_t> maker(const Tensor& value) const {
    const auto makes = [&](size_t b) { return block(b).output(value).valid(); };
    const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const auto& stage) {
      return std::any_of(stage.blocks.begin(), stage.blocks.end(), makes);
    });
    if (found == stages_.end()) return std::nullopt;
    return static_cast<size_t>(found - stages_.begin());
  }
  size_t total_weight_stage() const { return maker(network_.total_weight).value(); }

  // Adds the tensors of results that are kept, on the devices of the stages that make these.
  void make_kept(Place& place, ResultForm form) {
    each_written([&](const WrittenResult& result, size_t stage) {
      if (result.form != form) return;
      const DeviceScope on(main_, stages_[stage].device);
      place.kept.add(main_, result.stream, form);
    });
  }

  void store_kept(const Place& place, ResultForm form) {
    each_written([&](const WrittenResult& result, size_t stage) {
      if (result.form != form) return;
      const DeviceScope on(main_, stages_[stage].device);
      main_.host_store(result.stream, place.kept.find(result.stream.name));
    });
  }

  // A field is loaded by the first stage that reads it.
  void load(Graph& g, size_t s, MicroBatch& batch, const Tensor& whole, const H2dStream& stream) {
    const auto reader = first_reader_.find(whole.id());
    if (reader != first_reader_.end() ? reader->second == s : s == 0)
      batch.set(whole, g.host_load(stream));
  }

  void backward(Place& place, size_t s, MicroBatch& batch) {
    Graph& g = place.graph;
    const nn::NamedTensors& weights = place.weights.at(stages_[s].device);
    const auto counter = place.counters.find(static_cast<int>(s));
    const bool counts = counter != place.counters.end();
    for (auto b = stages_[s].blocks.rbegin(); b != stages_[s].blocks.rend(); ++b) {
      const MicroBatch::Weights visited = variables_.visit(g, weights);
      if (options_.accumulate == 1) {
        for (const auto& [use, gradient] : batch.backward(*b, visited, {}, {}))
          accumulators_.keep(block(*b).use(use), gradient);
      } else {
        accumulators_.accumulate(g, batch, *b, block(*b), gradients_[*b], visited,
                                 place.accumulators, counts ? counter->second : Tensor());
      }
    }
    if (counts) ops::add_(counter->second, ops::scalar_like(counter->second, 1));
  }

  // Emits the iterations that run all tasks. The body carries a tensor of each flow for each
  // iteration between its maker and its last reader. Micro-batches are numbered relative to the
  // iteration there.
  void loop(Place& place, int64_t trips) {
    struct Slot {
      std::pair<FlowingValue, int> to;
      int64_t micro_batch;  // In iteration 0.
    };
    std::vector<Slot> slots;
    for (const Flow& flow : layout_.flows) {
      for (int64_t age = 1; age <= flow.read_by.iteration - flow.made_by.iteration; ++age)
        slots.push_back({{flow.value, flow.device}, -flow.made_by.iteration - age});
    }
    Graph& g = main_.ir().create_empty_graph("micro_batch");
    const int64_t first = order_.ramp();
    const auto before = std::exchange(flowing_, {});
    Tensors carried, results;
    for (const Slot& slot : slots) {
      const Tensor& t = before.at(first + slot.micro_batch).at(slot.to);
      carried.push_back(t);
      flowing_[slot.micro_batch].emplace(slot.to, g.input(t.spec(), t.name()));
    }
    TensorMap given;
    Place inside = make_inside(g, place, given);
    if (activations_ && !in_turn()) inside.iteration = g.input({{}, i32, {}}, "iteration");
    run(inside, 0, std::nullopt);
    for (const Slot& slot : slots) results.push_back(flowing_.at(slot.micro_batch + 1).at(slot.to));
    g.set_outputs(results);
    const Tensors after =
        ops::repeat(main_, g, trips, carried, given, {.iteration = inside.iteration});
    flowing_.clear();
    for (size_t i = 0; i < slots.size(); ++i)
      flowing_[first + trips + slots[i].micro_batch].emplace(slots[i].to, after[i]);
  }

  // Adds inputs to the loop's body for all that the micro-batches share.
  Place make_inside(Graph& g, const Place& place, TensorMap& given) const {
    Place inside{g, {}, {}, {}, {}, {}, {}};
    const auto add = [&](const Tensor& t, const std::string& name, Pass pass) {
      given.emplace_back(g.input(t.spec(), name, pass), t);
      return given.back().first;
    };
    std::set<std::string> updated;
    for (const nn::internal::RunningUpdate& u : network_.updates) updated.insert(u.key);
    for (const auto& [device, weights] : place.weights) {
      nn::NamedTensors& own = inside.weights[device];
      weights.for_each([&](const std::string& key, const Tensor& t) {
        own.merge(key, add(t, key, updated.contains(key) ? Pass::kByReference : Pass::kByValue));
      });
    }
    for (const auto& [device, inputs] : place.inputs) {
      for (const auto& [value, t] : inputs)
        inside.inputs[device].emplace(value, add(t, t.name(), Pass::kByValue));
    }
    for (const auto& [s, counter] : place.counters)
      inside.counters.emplace(s, add(counter, counter.name(), Pass::kByReference));
    for (const auto& [use, mean] : place.accumulators)
      inside.accumulators.emplace(use, add(mean, mean.name(), Pass::kByReference));
    for (const auto& [name, kept] : place.kept.all()) {
      const Tensor& t = kept.tensor;
      inside.kept.set(name, add(t, t.name(), Pass::kByReference), kept.form);
    }
    if (const Tensor& total = place.total_weight; total.valid())
      inside.total_weight = add(total, total.name(), Pass::kByReference);
    return inside;
  }

  void update(const Place& place) {
    variables_.average_running();
    if (place.total_weight.valid()) {
      const DeviceScope on(main_, stages_[total_weight_stage()].device);
      variables_.divide_by(place.total_weight);
    }
    // A gradient is averaged over the replicas where its weight is.
    const auto reduced = [&](const std::string& key) {
      const DeviceScope on(main_, owners_.at(key));
      return variables_.reduced(key, sum_of_uses(uses_, key, [&](const std::string& use) {
                                  return accumulators_.value(use);
                                }));
    };
    if (accumulators_.any_remote()) {
      // A gradient is loaded and averaged for each use, so that few are on the device at a time.
      const Tensors scale = variables_.scale(reduced);
      for (const auto& [key, uses] : uses_) variables_.update(key, reduced(key), scale);
      return;
    }
    std::map<std::string, Tensor> all;
    for (const auto& [key, uses] : uses_) all.emplace(key, reduced(key));
    const Tensors scale = variables_.scale([&](const std::string& key) { return all.at(key); });
    for (const auto& [key, gradient] : all) variables_.update(key, gradient, scale);
  }

  const NetworkGraph& network_;
  const Options& options_;
  Output output_;
  Training& training_;
  bool trains_;
  bool beside_;  ///< Evaluates beside a training program, with its weights.
  Graph& main_;
  Cut cut_;
  std::vector<std::optional<BlockGradient>> gradients_;
  TrainedWeights uses_;
  std::unique_ptr<RemoteActivations> activations_;
  /// Number of entries of the buffers of activations. The micro-batches in flight use the entries
  /// in turn.
  int64_t activation_entries_ = 1;
  PipelineLayout layout_;
  const std::vector<PlacedStage>& stages_;
  const PipelineOrder& order_;
  StepVariables variables_;
  Accumulators accumulators_;
  std::map<TensorId, size_t> first_reader_;  ///< Stage by field.
  std::map<std::string, int> owners_;        ///< Device by weight and running variable.
  /// Tensors of each micro-batch in the graph of run(), by value and device of the readers.
  std::map<int64_t, std::map<std::pair<FlowingValue, int>, Tensor>> flowing_;
};

}  // namespace

void build_pipeline(Ir ir, const NetworkGraph& network, const NetworkGraph& eval,
                    const WeightRules& rules, nn::Optimizer& optimizer, const Options& options,
                    const Strategy& strategy, const Options& inference, Training& training) {
  Pipeline step(ir, network, nn::RunMode::kTrain, rules, optimizer, options, strategy, training);
  step.build();
  build_eval(ir, eval, step.variables(), step.places(), inference.strategy.value_or(strategy),
             inference, training);
}

void build_pipelined_eval(Ir ir, const NetworkGraph& eval, const Options& options,
                          const Strategy& strategy, Training& training) {
  nn::Optimizer unused = nn::Optimizer::sgd();
  Pipeline(ir, eval, nn::RunMode::kEvaluate, {}, unused, options, strategy, training).build();
}

void build_eval(Ir ir, const NetworkGraph& eval, const StepVariables& variables,
                const BlockPlaces& places, const Strategy& strategy, const Options& inference,
                Training& training) {
  // The micro-batches of a run overlap in a pipeline, as those of an update do.
  const Options options{.accumulate = inference.device_iterations,
                        .output = inference.output,
                        .locations = {.weights = inference.locations.weights},
                        .io_mode = inference.io_mode};
  nn::Optimizer unused = nn::Optimizer::sgd();
  Pipeline(ir, eval, nn::RunMode::kEvaluate, {}, unused, options, strategy, training,
           {&variables, places})
      .build();
}

}  // namespace sluice::train
