#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/remote.h"
#include "sluice/train/cut/block_gradients.h"
#include "sluice/train/strategies/gradient_watch.h"
#include "sluice/train/strategies/micro_batch.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// The learning rate of a program on its way to the updates, a stream or a constant, and the
/// coefficients of the updates. The step size of a parameter group is minus the rate times the
/// group's factor. All strategies use this class.
class StepSizes {
 public:
  StepSizes(Graph& main, const nn::Optimizer& optimizer, const Training& training)
      : main_(main), optimizer_(optimizer), training_(training) {}

  /// Loads the next entry of the rate's stream to a tensor of the entry graph.
  const Tensor& load();
  bool is_loaded() const { return rate_.valid(); }
  /// Returns the step size of a parameter group in the entry graph. Its first call in the program
  /// loads the rate, unless load() did.
  const Tensor& of(size_t group);
  /// Returns nn::Optimizer::hypers() of a parameter group in the entry graph. The first call for a
  /// group loads the next entries of its streamed coefficients.
  const Tensors& hypers(size_t group);

 private:
  Graph& main_;
  const nn::Optimizer& optimizer_;
  const Training& training_;
  std::map<size_t, Tensors> hypers_;  ///< Indexed by parameter group.
  Tensor rate_;                     ///< Invalid before it is loaded, and if the rate is a constant.
  std::map<size_t, Tensor> sizes_;  ///< Indexed by parameter group.
};

/// A variable of equal blocks. Each block is a row. In remote memory the rows share a buffer, in
/// which row r has entry r.
struct VariableRows {
  std::string name = {};  ///< Name of the tensors that are loaded for any row.
  Ids<RowId, std::string> keys;
};

/// A tensor that each row has in one remote buffer: row r has entry r.
struct RowTensor {
  std::string key;   ///< Key among the loaded tensors.
  std::string name;  ///< Name of the tensor that is loaded.
  RemoteBuffer buffer = {};
  bool stored = false;        ///< Whether a row changes it, so that it is stored after the row.
  std::string variable = {};  ///< Key of row 0's variable.
};

/// The tensors of a variable that may be in remote memory.
enum class VariablePart : uint8_t {
  kValue,     ///< The weight or running variable itself.
  kState,     ///< Optimizer state, and the average of the weight (Options::ema_decay).
  kGradient,  ///< The reduced gradient that waits for its update (StepVariables::keep()).
};

/// The weights, running variables, optimizer state, averages and kept gradients of a step, on the
/// device or in remote memory.
///
/// A function with a `row` addresses a variable by the key of row 0 (VariableRows) and a row, which
/// may be a tensor of a loop over rows. The loop loads and stores the tensors of add_rows(), under
/// keys of its own, and passes them as `loaded`.
class StepVariables {
 public:
  /// Makes the weights and running variables in entry graph `main`, and sets
  /// `training.variables`. Variables that are not in `rows` have a row of their own.
  StepVariables(Graph& main, const NetworkGraph& network, const WeightRules& rules,
                nn::Optimizer& optimizer, const Options& options, Training& training,
                const std::vector<VariableRows>& rows = {});
  /// Makes the variables of a training program usable in entry graph `main`, which only reads them.
  /// Averages are in place of their weights.
  StepVariables(Graph& main, const StepVariables& trained);

  /// Chooses the devices of weights and running variables, by key. The others stay on the device of
  /// the caller.
  void set_devices(std::map<std::string, DeviceId> keys) { devices_ = std::move(keys); }
  const std::map<std::string, DeviceId>& devices() const { return devices_; }
  StepSizes& step_sizes() { return step_sizes_; }
  bool is_remote(const std::string& key) const;
  /// Whether the keys are rows 0, 1, … of one variable.
  bool are_rows(const std::vector<std::string>& keys) const;
  /// Returns the whole weight in `graph`, which loads it if it is remote. A weight of the device is
  /// shared with the entry graph `graph`.
  Tensor weight(Graph& graph, const std::string& key) const;

  /// Returns the weights of one run of a block in `graph`. Weights in `here` are used; other
  /// weights are loaded at their first use.
  MicroBatch::Weights load_weights(Graph& graph, const nn::NamedTensors& here) const;
  /// Applies the updates of a block's running variables for some micro-batches, in their order.
  /// Remote variables are loaded before the updates and stored after them. `here` has the tensors
  /// of the other variables in `graph`.
  void update_running(Graph& graph, const BlockGraph& block, std::span<const MicroBatch> runs,
                      const nn::NamedTensors& here) const;
  /// Stores a remote weight or running variable that `graph` has loaded.
  void store(Graph& graph, const std::string& key, const Tensor& variable) const;
  /// Averages the running variables over replicas, in the entry graph.
  void average_running() const;
  /// Averages a running variable over replicas, in the graph of `whole`.
  static void average(const Tensor& whole);
  /// Divides all gradients by the total weight of the replica's micro-batches, a tensor of the
  /// entry graph, on the current device.
  void divide_by(const Tensor& total_weight) { divisor_ = total_divisor(total_weight); }
  /// Divisor of gradients in the entry graph; empty without a total weight.
  const Tensor& divisor() const { return divisor_; }
  using Gradient = std::function<Tensor(const std::string& key)>;
  /// Adds the reduction over replicas of a weight's accumulated gradient, the division by the total
  /// weight if there is one, and the hook of gradients. The result is a shard if the weight is
  /// updated in shards.
  Tensor reduced(const std::string& key, const Tensor& accumulated) const;
  /// Does the same in any graph, which has the whole weight and the divisor.
  Tensor reduced(const std::string& key, const Tensor& accumulated, const Tensor& weight,
                 const Tensor& divisor) const;
  /// Returns the factor of all gradients, if Options::max_grad_norm asks for one. `gradient`
  /// returns the reduced gradient of a weight.
  Tensors scale(const Gradient& gradient) const;
  /// Adds the update of a weight. `scale` is the result of scale(). `loaded` is the result of
  /// load(), if the caller has it.
  void update(const std::string& key, const Tensor& reduced_gradient, const Tensors& scale,
              const Tensor& loaded = {});
  /// Loads a weight in the entry graph; a shard if it is updated in shards. Empty if it is on the
  /// device.
  Tensor load(const std::string& key) const;

  /// Appends the tensors of one part that are in remote memory. Returns whether all are, as a loop
  /// over rows requires. Makes the state, if the part is kState.
  bool add_rows(const std::string& key, VariablePart part, bool stored,
                std::vector<RowTensor>& tensors);
  /// Returns the whole weight or running variable of a row.
  Tensor whole(Graph& graph, const std::string& key, const RemoteEntry& row,
               const nn::NamedTensors& loaded) const;
  /// Keeps the reduced gradients of a row, by key, for updates after all gradients.
  void keep(Graph& graph, const RemoteEntry& row, const std::vector<std::string>& keys,
            const nn::NamedTensors& gradients);
  /// Returns the gradient that keep() kept, in the graph of a row or in the entry graph.
  Tensor kept(const std::string& key, const RemoteEntry& row, const nn::NamedTensors& loaded) const;
  Tensor kept(const std::string& key) const;
  /// scale() of the gradients that keep() kept, in the entry graph.
  Tensors scale_of_kept() const;
  /// Adds the arguments of a weight's update to those of a loop.
  void add_arguments(const std::string& key, const Tensors& scale, nn::NamedTensors& arguments);
  /// Adds the update of a row. Tensors in `loaded` are changed in place; the caller stores them.
  void update(Graph& graph, const std::string& key, const RemoteEntry& row,
              const nn::NamedTensors& loaded, const Tensor& reduced_gradient,
              const nn::NamedTensors& arguments);

 private:
  /// The update of a variable in all rows.
  struct Update {
    const nn::GraphWithNamedArgs& step;
    TensorSpec gradient;
    nn::NamedRemoteBuffers there = {};       ///< Remote state by name.
    Ids<RowId, nn::NamedTensors> here = {};  ///< State on the device.
    std::optional<RemoteBuffer> kept_there = {};
    Ids<RowId, Tensor> kept_here = {};  ///< Kept gradients on the device.
    std::optional<RemoteBuffer> average_there = {};
    Ids<RowId, Tensor> average_here = {};  ///< Averages on the device.
  };
  struct Variable {
    VariableRows rows;
    std::optional<RemoteBuffer> buffer = {};
    std::optional<Update> update = {};
    const std::string& key(const RemoteEntry& row) const {
      return rows.keys[RowId(row.constant())];
    }
  };
  struct VariableRow {
    std::shared_ptr<Variable> variable;
    RowId row;
  };
  /// Sums of squares of kept gradients, stacked, with an entry for each row.
  struct StackedSquares {
    RemoteBuffer buffer;
    std::vector<std::pair<const Variable*, size_t>> counts;  ///< Number of each variable's squares.
  };
  Variable& variable(const std::string& key) const { return *variable_rows_.at(key).variable; }
  Update& update_of(const std::string& key);
  /// Makes the averages of all rows of a variable. `spec` and `info` are those of its state.
  void make_averages(const Variable& own, const TensorSpec& spec, const VariableInfo& info,
                     Update& update);
  /// Adds a weight after its update to its average.
  void update_average(const Update& update, const std::string& key, const RemoteEntry& row,
                      const nn::NamedTensors& loaded, const Tensor& weight) const;
  Tensor load(Graph& graph, const std::string& key) const;
  /// Returns the weight on the device, or the replica's shard if it is updated in shards.
  Tensor own(Graph& graph, const std::string& key) const;
  /// Calls the update of a row. Returns the tensor that it changes: loaded, or that of own().
  Tensor apply(Graph& graph, const std::string& key, const RemoteEntry& row,
               const nn::NamedTensors& loaded, const Tensor& gradient,
               const nn::NamedTensors& arguments);
  /// Writes an updated shard to a weight on the device.
  void write_back(const std::string& key, const Tensor& changed) const;
  Tensors clip(const std::map<std::string, Tensors>& squares) const;
  Tensor divisor(const std::string& key) const;
  nn::ShardRule rule() const { return {.threshold = options_.locations.min_elements_sharded}; }
  DeviceId device(const std::string& key) const {
    const auto found = devices_.find(key);
    return found == devices_.end() ? DeviceId(kInheritDevice) : found->second;
  }

  Graph& main_;
  const NetworkGraph& network_;
  const WeightRules& rules_;
  nn::Optimizer& optimizer_;
  const Options& options_;
  Training& training_;
  std::map<std::string, DeviceId> devices_;
  std::map<std::string, VariableRow> variable_rows_;  ///< Indexed by key.
  bool reads_averages_ = false;                       ///< Averages are in place of their weights.
  mutable GradientWatch watch_;
  mutable nn::GraphCache cache_;            ///< Graphs of the norm.
  std::map<std::string, Tensors> squares_;  ///< Squares of kept gradients on the device, by key.
  std::map<std::string, StackedSquares> stacked_;  ///< Keyed by the first key.
  StepSizes step_sizes_;
  Tensor divisor_;  ///< Divisor of gradients; empty without a total weight.
  mutable std::map<DeviceId, Tensor> divisors_;  ///< Copies of it, by device.
  nn::internal::PathCounts made_;                ///< Variables of the program by path.
};

/// Adds loads of the inputs that are given once a run to entry graph `main`. Returns them in the
/// order of NetworkGraph::inputs. That of the learning rate is also the rate of the updates.
Tensors load_inputs(Graph& main, const NetworkGraph& network, const Training& training,
                    StepSizes& step_sizes);

/// Adds a tensor of zeros to a graph.
Tensor zeros(Graph& graph, const TensorSpec& spec, const std::string& name);

/// Whether a tensor of this spec waits in remote memory.
bool is_off_device(Location location, const TensorSpec& spec, const TensorLocations& locations);

}  // namespace sluice::train
