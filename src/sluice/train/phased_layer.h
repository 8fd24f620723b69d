#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/optimizers.h"
#include "sluice/nn/rts.h"

namespace sluice::train {

struct RowLoop;

/// What lives in remote memory beside the activations between phases.
struct Offload {
  bool optimizer = false;
  bool weights = false;
  bool operator==(const Offload&) const = default;
};

/// Whether activations inside a layer are kept from its forward to its backward phase, or made again.
enum class Activations { kKeep, kRecompute };

/// Whether a layer gives the gradient of its input; the first of a model need not.
enum class InputGradient { kNo, kYes };

struct PhasedLayerOptions {
  int64_t rows = 1;  ///< Layers of this kind, which share graphs and buffers.
  InputGradient input_gradient = InputGradient::kYes;
  Activations activations = Activations::kKeep;
  Offload offload = {.optimizer = true, .weights = true};
  /// Elements from which on a variable and its state are updated in shards, of which each replica has one; offloaded ones
  /// are stored so (nn/rts.h).
  int64_t shard_threshold = nn::kNeverShard;
};

/// Everything that `rows` identical layers need to visit the device one phase at a time: forward, gradient and update graphs,
/// factories of their variables, and remote buffers with an entry a row.
///
///     PhasedLayer layer(factories, forward, optimizer, {.rows = 12});
///     layer.serialise({.steps = 4, .loads = …, .store_buffers = …});
///     for (int64_t r = 0; r < 12; ++r) layer.init(main, r, {.prefix = fmt::format("layer{}", r)});
///     …
///     layer.forward_phases(main);
///     layer.backward_phases(main, step_size);
class PhasedLayer {
 public:
  /// A layer with this forward graph. Its gradient graph accumulates gradients of all named arguments. `optimizer` is used here
  /// alone.
  PhasedLayer(nn::NamedVariableFactories factories, nn::GraphWithNamedArgs forward,
              nn::Optimizer& optimizer, const PhasedLayerOptions& options = {});
  /// A layer whose one graph runs forward and backward, the last of a model: factories and named arguments are trees "fwd"
  /// (variables) and "bwd" (counter and accumulators). It has a backward phase only.
  static PhasedLayer joint(const nn::NamedVariableFactories& factories,
                           nn::GraphWithNamedArgs graph, nn::Optimizer& optimizer,
                           const PhasedLayerOptions& options = {});

  int64_t rows() const { return options_.rows; }
  bool has_forward() const { return forward_.has_value(); }
  /// The graphs of one micro-batch, to say what they load and store. Error{kUsage} without a forward phase.
  const nn::GraphWithNamedArgs& forward() const;
  const nn::GraphWithNamedArgs& backward() const { return *backward_; }
  /// Makes the phases of all micro-batches; `options.rows` is the layer's. Once, before they run.
  void serialise(nn::BatchSerialiseOptions options);
  /// Why the phases' io mode is not the one asked for; else empty.
  const std::string& note() const { return note_; }

  /// Weights and optimizer state of the layer in row `row`, by key: "<weight>", "<weight>.<state>".
  struct Variables {
    nn::NamedTensors weights;
    nn::NamedTensors state;
  };
  /// Makes the variables of a row, in remote memory as far as they are offloaded.
  const Variables& init(Graph& main, int64_t row, const nn::InitOptions& options);
  const Variables& init(Graph& main, int64_t row, const nn::InitOptions& options,
                        nn::internal::PathCounts& made);
  const Variables& variables(int64_t row) const;

  /// One visit of the device: loads what is offloaded and runs the row's phase. A backward phase also updates weights and state
  /// with the mean gradients and stores what was loaded. `step_size`: minus the learning rate, a f32 scalar.
  void forward_phase(Graph& main, int64_t row) const;
  void backward_phase(Graph& main, int64_t row, const Tensor& step_size) const;
  /// All rows, ascending; backward descending. Rows of which all variables are offloaded run in a loop (train/row_loop.h).
  void forward_phases(Graph& main) const;
  void backward_phases(Graph& main, const Tensor& step_size) const;
  /// The same for another forward graph with the layer's weights, in another entry graph of the program: from the input of
  /// the first row to the output of the last.
  Tensor apply(Graph& entry, const nn::GraphWithNamedArgs& graph, const Tensor& x) const;

 private:
  explicit PhasedLayer(const PhasedLayerOptions& options) : options_(options) {}
  void make_updates(const Ir& ir, const nn::NamedTensors& weights, nn::Optimizer& optimizer);
  RowLoop forward_loop() const;
  RowLoop backward_loop() const;
  /// Whether all that the rows have of these kinds ("fwd", "optim") is in remote memory, where a loop finds it.
  bool is_remote(std::initializer_list<const char*> kinds) const;
  nn::NamedTensors load(Graph& graph, const RemoteEntry& row,
                        std::initializer_list<const char*> kinds) const;
  /// Weights as phases take them: whole, and variables of the entry graph unless they are loaded.
  nn::NamedTensors whole_weights(Graph& graph, const RemoteEntry& row,
                                 const nn::NamedTensors& loaded) const;
  void learn(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
             const Tensor& step_size) const;
  void update(Graph& graph, const nn::NamedTensors& whole, const nn::NamedTensors& loaded,
              const nn::NamedTensors& state, const nn::NamedTensors& accumulated,
              const Tensor& step_size) const;

  PhasedLayerOptions options_;
  nn::NamedVariableFactories weight_factories_;
  nn::NamedVariableFactories state_factories_;
  nn::NamedVariableFactories grad_factories_;  ///< Counter and accumulators.
  std::optional<nn::GraphWithNamedArgs> forward_;
  std::optional<nn::GraphWithNamedArgs> backward_;
  std::vector<std::pair<std::string, nn::GraphWithNamedArgs>> updates_;  ///< By weight.
  nn::NamedRemoteBuffers buffers_;  ///< Trees "fwd" and "optim", as far as they are offloaded.
  IoMode io_mode_ = IoMode::kIo;
  std::optional<nn::BatchSerialResult> forward_phase_;
  std::optional<nn::BatchSerialResult> backward_phase_;
  std::vector<std::optional<Variables>> variables_;  ///< By row.
  std::string note_;
};

}  // namespace sluice::train
