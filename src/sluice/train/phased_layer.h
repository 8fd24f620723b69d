#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/optimizers.h"
#include "sluice/nn/rts.h"

namespace sluice::train {

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
///     layer.forward_phase(main, 0);
///     layer.backward_phase(main, 0, step_size);
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

  /// The variables of a row on the device, ready for one of its phases.
  struct Local {
    nn::NamedTensors weights;  ///< Whole.
    nn::NamedTensors state;  ///< For the backward phase; of a shard, if the weight's update is one.
    nn::NamedTensors loaded;  ///< What came from remote memory, as it was there.
  };
  Local load_forward(Graph& main, int64_t row) const;
  Local load_backward(Graph& main, int64_t row) const;
  /// Weights alone, for another entry graph of the program.
  nn::NamedTensors load_weights(Graph& entry, int64_t row) const;

  void run_forward(Graph& main, int64_t row, const Local& local) const;
  /// Runs the gradient, updates weights and state with the mean gradients, stores what was loaded. `step_size`: minus the
  /// learning rate, a f32 scalar.
  void run_backward(Graph& main, int64_t row, const Local& local, const Tensor& step_size) const;

  /// Load and run.
  void forward_phase(Graph& main, int64_t row) const {
    run_forward(main, row, load_forward(main, row));
  }
  void backward_phase(Graph& main, int64_t row, const Tensor& step_size) const {
    run_backward(main, row, load_backward(main, row), step_size);
  }

 private:
  explicit PhasedLayer(const PhasedLayerOptions& options) : options_(options) {}
  void make_updates(const Ir& ir, const nn::NamedTensors& weights, nn::Optimizer& optimizer);
  void update(Graph& main, const Local& local, const nn::NamedTensors& accumulated,
              const Tensor& step_size) const;

  PhasedLayerOptions options_;
  nn::NamedVariableFactories weight_facts_;
  nn::NamedVariableFactories state_facts_;
  nn::NamedVariableFactories grad_facts_;  ///< Counter and accumulators.
  std::optional<nn::GraphWithNamedArgs> forward_;
  std::optional<nn::GraphWithNamedArgs> backward_;
  std::vector<std::pair<std::string, nn::GraphWithNamedArgs>> updates_;  ///< By weight.
  nn::NamedRemoteBuffers buffers_;  ///< Trees "fwd" and "optim", as far as they are offloaded.
  std::optional<nn::BatchSerialResult> forward_phase_;
  std::optional<nn::BatchSerialResult> backward_phase_;
  std::vector<std::optional<Variables>> variables_;  ///< By row.
  std::string note_;
};

}  // namespace sluice::train
