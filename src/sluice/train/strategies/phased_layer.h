#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/rts.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/train/cut/gradient_rule.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

struct RowLoop;

/// Whether a layer computes the gradient of its input. The first layer of a model need not.
enum class InputGradient { kNo, kYes };

/// When a layer updates its variables.
enum class Updates {
  kInBackward,  ///< In its backward phase.
  kApart,       ///< In update phases behind all backward phases. The mean gradients wait: in remote
                ///< memory with TensorLocations::accumulators, else on the device.
};

/// The arguments of updates.
struct UpdateArguments {
  Tensors step_sizes = {};  ///< Minus the learning rate of each parameter group; empty if unused.
  Tensor grad_scale = {};   ///< Factor of the gradients; requires Updates::kApart.
  /// Total weight of the replica's micro-batches in the entry graph, with GradientRule::weighted.
  Tensor total_weight = {};
};

struct PhasedLayerOptions {
  int64_t rows = 1;  ///< Number of layers of this kind. They share graphs and buffers.
  InputGradient input_gradient = InputGradient::kYes;
  bool recompute = false;  ///< Whether a backward phase computes the layer again.
  /// From TensorLocations::min_elements_sharded elements on, each replica updates one shard of a
  /// variable and of its state. Variables in remote memory are also stored as shards (nn/rts.h).
  TensorLocations locations = {.optimizer = Location::kRemote, .weights = Location::kRemote};
  Updates updates = Updates::kInBackward;
  nn::GradScale grad_scale = nn::GradScale::kNone;
};

/// Weights that several layers use. The first of these layers that has a backward phase owns the
/// weight, and updates it in this phase, which is the last one of these layers.
struct TiedWeights {
  /// Adds ops that load a weight, given by its path, and returns it. It is not sharded.
  std::function<Tensor(Graph& graph, const std::string& path)> find = nullptr;
  /// Sums of the gradients that backward phases have computed so far, by path of the weight.
  std::map<std::string, Tensor> gradients = {};
};

/// The graphs of one micro-batch of a layer.
struct LayerGraphs {
  /// Factories of weights and of running variables.
  nn::NamedVariableFactories weights = {};
  /// Counter and accumulators: "mean_accum_counter" and "accum.<key of the weight>". A weight is
  /// not updated if neither this layer nor a layer that borrows the weight computes a gradient of
  /// it.
  nn::NamedVariableFactories accumulators = {};
  /// Its named arguments are the weights. Absent: `backward` runs forward, too (a joint layer).
  std::optional<nn::GraphWithNamedArgs> forward = {};
  /// Its named arguments are the counter and the accumulators. In a joint layer they are the tree
  /// "bwd", and the weights are the tree "fwd". Absent: the layer has no gradient.
  std::optional<nn::GraphWithNamedArgs> backward = {};
  struct Tied {
    std::string key;   ///< Key of the named argument.
    std::string path;  ///< Path of the weight.
  };
  /// Weights of other layers, from the last use of a weight to the first. They are not in
  /// `weights`.
  std::vector<Tied> borrowed = {};
  /// Weights that other layers borrow.
  std::vector<Tied> lent = {};
  /// Tensors of the entry graph that the phase which runs forward updates, by the names of the
  /// updates (BatchUpdate); for layers of one row.
  nn::NamedTensors results = {};
  std::shared_ptr<TiedWeights> tied = nullptr;  ///< Required with `borrowed` or `lent`.
  /// Rules by key; a weight without one is not updated. Absent: the optimizer decides by key, and
  /// gradients are averaged over replicas in the weights' dtypes.
  std::optional<WeightRules> rules = {};
};

/// Runs `rows` identical layers on the device one phase at a time. Holds forward, gradient and
/// update graphs, factories of variables, and remote buffers with one entry per row.
///
///     PhasedLayer layer(factories, forward, optimizer, {.rows = 12});
///     layer.serialise({.steps = 4, .loads = …, .store_buffers = …});
///     for (int64_t r = 0; r < 12; ++r) layer.init(main, r, {.prefix = fmt::format("layer{}", r)});
///     …
///     layer.forward_phases(main);
///     layer.backward_phases(main, step_size);
///
/// A phase that runs forward updates the running variables: those that its graph writes, and those
/// in the updates that serialise() gets, under their keys. They are never sharded. Replicas average
/// them at the end of the phase.
class PhasedLayer {
 public:
  /// Makes a layer with forward graph `forward`. Its gradient graph accumulates the gradients of
  /// all named arguments. The layer does not keep `optimizer` after construction.
  PhasedLayer(nn::NamedVariableFactories factories, nn::GraphWithNamedArgs forward,
              nn::Optimizer& optimizer, const PhasedLayerOptions& options = {});
  /// Makes a layer of graphs that exist. `options.input_gradient` has no effect.
  PhasedLayer(LayerGraphs graphs, nn::Optimizer& optimizer, const PhasedLayerOptions& options);
  /// Makes a layer with only a backward phase: one graph runs forward and backward. The last layer
  /// of a model is such a layer. Factories and named arguments form the trees "fwd" (variables) and
  /// "bwd" (counter and accumulators).
  static PhasedLayer joint(const nn::NamedVariableFactories& factories,
                           nn::GraphWithNamedArgs graph, nn::Optimizer& optimizer,
                           const PhasedLayerOptions& options = {});

  int64_t rows() const { return options_.rows; }
  bool has_forward() const { return forward_.has_value(); }
  bool has_backward() const { return backward_.has_value(); }
  /// Graphs of one micro-batch. Their inputs and outputs appear in `loads` and `store_buffers` of
  /// serialise(). forward(): Error{kUsage} for a joint layer.
  const nn::GraphWithNamedArgs& forward() const;
  const nn::GraphWithNamedArgs& backward() const { return *backward_; }
  /// Makes the phases, which run over all micro-batches. Call it once, before the phases are used.
  /// `options.rows` is ignored: the layer's number of rows is used. Error{kUsage} if it was called
  /// before.
  void serialise(nn::BatchSerialiseOptions options);
  /// The reason why the phases' io mode differs from the one requested; else empty.
  const std::string& note() const { return note_; }

  /// Weights and optimizer state of one row, with the keys "<weight>" and "<weight>.<state>".
  struct Variables {
    nn::NamedTensors weights;  ///< Running variables, too.
    nn::NamedTensors state;
  };
  /// Makes the variables of row `row`; offloaded ones are in remote memory. Error{kUsage} if `row`
  /// is outside the layer's rows.
  const Variables& init(Graph& main, int64_t row, const nn::InitOptions& options);
  const Variables& init(Graph& main, int64_t row, const nn::InitOptions& options,
                        nn::internal::PathCounts& made);
  /// Makes the variables of row `row` with given names: `paths` has the path of each weight by key,
  /// and `factories` has its factory by path.
  const Variables& init(Graph& main, int64_t row, const nn::NamedVariableFactories& factories,
                        const std::map<std::string, std::string>& paths, uint64_t seed,
                        nn::internal::PathCounts& made);
  const Variables& variables(int64_t row) const;
  /// Adds ops to `graph`, a graph of any entry, that load a weight of a row. Returns the whole
  /// weight.
  Tensor weight(Graph& graph, int64_t row, const std::string& key) const;

  /// Runs one phase of one row. It loads the offloaded variables and runs the phase. A backward
  /// phase also updates weights and state with the mean gradients, and stores the loaded variables.
  /// `step_size`: minus the learning rate, an f32 scalar. Error{kUsage} before serialise().
  void forward_phase(Graph& main, int64_t row) const;
  void backward_phase(Graph& main, int64_t row, const Tensor& step_size);
  /// Run the phases of all rows, forward in ascending and backward in descending order. They run in
  /// a loop if all tensors that a row needs are in remote memory (row_loop.h).
  void forward_phases(Graph& main) const;
  void backward_phases(Graph& main, const UpdateArguments& arguments);
  /// Runs the updates of all rows in descending order. Error{kUsage} unless Updates::kApart.
  void update_phases(Graph& main, const UpdateArguments& arguments) const;
  /// Whether the layer updates variables in update phases.
  bool updates_apart() const { return options_.updates == Updates::kApart && !updates_.empty(); }
  /// Returns the sums of squares of a row's gradients, by key of the weight (nn::norm_of_chunks),
  /// after the backward phases with GradScale::kInput.
  std::map<std::string, Tensors> squares(Graph& main, int64_t row) const;
  /// Applies `graph`, another forward graph for the layer's weights, once per row in ascending
  /// order. Works in any entry graph of the program. `graph` takes the values that the row before
  /// returned, then `invariants`. Row 0 takes `values`. Returns those of the last row.
  Tensors apply(Graph& entry, const nn::GraphWithNamedArgs& graph, const Tensors& values,
                const Tensors& invariants = {}) const;

 private:
  explicit PhasedLayer(const PhasedLayerOptions& options) : options_(options) {}
  void set_factories(const nn::NamedVariableFactories& factories);
  std::optional<WeightRule> rule_of(const std::string& key, DType dtype,
                                    const nn::Optimizer& optimizer) const;
  void make_updates(const Ir& ir, const nn::NamedTensors& weights, nn::Optimizer& optimizer);
  template <typename Make>
  const Variables& set_variables(int64_t row, const Make& make);
  RowLoop forward_loop() const;
  /// The loop's invariants: arguments_of() if it updates, then the total weight if is_weighted().
  RowLoop backward_loop();
  bool is_weighted() const;
  RowLoop update_loop() const;
  void add_stores(RowLoop& loop, std::vector<const char*> kinds) const;
  /// Whether all variables of these kinds ("fwd", "run", "optim") are in remote memory. A loop over
  /// rows requires it.
  bool is_remote(std::initializer_list<const char*> kinds) const;
  nn::NamedTensors load(Graph& graph, const RemoteEntry& row,
                        std::initializer_list<const char*> kinds) const;
  /// The weights and running variables that phases take. They are not sharded. Those that were not
  /// loaded are variables of the entry graph.
  nn::NamedTensors whole_weights(Graph& graph, const RemoteEntry& row,
                                 const nn::NamedTensors& loaded) const;
  /// Averages the running variables that a phase updated over replicas. `whole` has them by key.
  void average_running(Graph& graph, const nn::NamedTensors& whole) const;
  /// Runs the backward phase of a row. Returns the reduced gradients, by key. `arguments` are those
  /// of backward_loop().
  nn::NamedTensors gradients(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                             const Tensors& arguments);
  /// Keeps the gradients of a row for its update phase.
  void keep(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& gradients);
  /// Returns the reduced gradients of the layer's own weights by key. The gradients of tied weights
  /// go to their owner. `whole` holds the weights; `divisor` divides gradients of weighted rules.
  nn::NamedTensors own_gradients(const nn::NamedTensors& accumulated, const nn::NamedTensors& whole,
                                 const Tensor& divisor) const;
  void update(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
              const nn::NamedTensors& gradients, const Tensors& arguments) const;
  /// The step sizes that this layer needs, then the factor of the gradients if there is one.
  Tensors arguments_of(const UpdateArguments& arguments) const;

  /// The update of a weight in all rows.
  struct Update {
    std::string key;
    WeightRule rule;
    size_t argument = 0;  ///< Position of its step size in arguments_of().
    nn::GraphWithNamedArgs graph;
  };

  PhasedLayerOptions options_;
  nn::NamedVariableFactories weight_factories_;
  nn::NamedVariableFactories running_factories_;
  nn::NamedVariableFactories state_factories_;
  nn::NamedVariableFactories grad_factories_;  ///< Counter and accumulators.
  std::optional<nn::GraphWithNamedArgs> forward_;
  std::optional<nn::GraphWithNamedArgs> backward_;
  std::vector<LayerGraphs::Tied> borrowed_;
  std::vector<LayerGraphs::Tied> lent_;
  nn::NamedTensors results_;
  std::shared_ptr<TiedWeights> tied_;
  std::optional<WeightRules> rules_;
  std::vector<Update> updates_;
  std::vector<std::string> running_;     ///< Keys of the running variables that phases update.
  bool backward_takes_running_ = false;  ///< Whether the backward phase takes running variables.
  /// Trees "fwd" (weights), "run" (running variables), "optim" and "grad" (gradients that wait for
  /// their update), each if offloaded.
  nn::NamedRemoteBuffers buffers_;
  std::vector<nn::NamedTensors> kept_;       ///< Gradients that wait on the device, by row.
  std::optional<RemoteBuffer> square_rows_;  ///< A row's squares(), if gradients are offloaded.
  std::map<std::string, size_t> chunks_;     ///< Number of a weight's squares.
  std::vector<std::map<std::string, Tensors>>
      squares_;  ///< By row, if gradients are not offloaded.
  IoMode io_mode_ = IoMode::kIo;
  std::optional<nn::BatchSerialResult> forward_phase_;
  std::optional<nn::BatchSerialResult> backward_phase_;
  std::vector<std::optional<Variables>> variables_;  ///< By row.
  std::string note_;
};

}  // namespace sluice::train
