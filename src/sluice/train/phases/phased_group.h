#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/nn/batch_serialise.h"
#include "sluice/train/phases/row_loop.h"

namespace sluice::train {

/// A variable that the blocks of a group read or update.
struct GroupVariable {
  std::string name;      ///< Key among the named arguments.
  std::string key;       ///< Key in the network, of row 0.
  bool running = false;  ///< Whether the phase that runs forward updates it.
  /// Other uses read the weight, too: all rows read one weight, which is no row of a variable.
  bool tied = false;
  bool trained = false;
};

/// A tied weight on its way through the backward phases of the groups that read it, in the entry
/// graph.
struct TiedWeight {
  Tensor loaded = {};  ///< Result of StepVariables::load().
  Tensor whole = {};
  Tensor sum = {};  ///< Sum of the gradients so far; empty before the first one.
};

/// The graphs of one micro-batch of a group's blocks.
struct GroupGraphs {
  std::string block = {};  ///< Name of the first row's block.
  /// Tied weights are first, from the last use to the first.
  std::vector<GroupVariable> variables = {};
  /// Named arguments: variables and `inputs`. Absent: `backward` runs forward, too.
  std::optional<nn::GraphWithNamedArgs> forward = {};
  /// Named arguments: "mean_accum_counter" and "accum.<name>", with those of `forward` if it runs
  /// forward, too. Absent: the group has no gradient.
  std::optional<nn::GraphWithNamedArgs> backward = {};
  /// Tensors of the entry graph that all micro-batches and rows read.
  nn::NamedTensors inputs = {};
  /// Tensors of the entry graph that the phase which runs forward updates, by the names of the
  /// updates (BatchUpdate); for groups of one row.
  nn::NamedTensors results = {};
};

/// The phases of equal blocks: each runs a block for all micro-batches. The variables belong to
/// `variables`, which outlives the group.
///
/// A phase that runs forward updates the running variables, and averages them over replicas.
class PhasedGroup {
 public:
  PhasedGroup(int64_t rows, GroupGraphs graphs, StepVariables& variables);

  /// Makes the phases. `options.rows` is ignored. Returns the reason why the phases' io mode
  /// differs from the requested one; else an empty text.
  std::string serialise(nn::BatchSerialiseOptions options);
  bool has_forward() const { return forward_phase_.has_value(); }
  bool has_backward() const { return backward_phase_.has_value(); }

  /// Adds the phases of all rows to entry graph `main`, forward in ascending and backward in
  /// descending order. `weights` has the tied weights on the device of the group.
  void forward_phases(Graph& main, const BlockRows& rows, const nn::NamedTensors& weights) const;
  /// Loads tied weights and adds their gradients to the sums in `tied`, by key. `total_weight` is
  /// the sum over the replica's micro-batches, if there is one. With `updates`, weights that are
  /// not tied are updated; else their gradients are kept.
  void backward_phases(Graph& main, const BlockRows& rows, bool updates,
                       const nn::NamedTensors& weights, const Tensor& total_weight,
                       std::map<std::string, TiedWeight>& tied);
  /// Updates the weights that are not tied by their kept gradients. `scale` is the factor of them.
  void update_phases(Graph& main, const BlockRows& rows, const Tensors& scale);

 private:
  using Choice = bool (*)(const GroupVariable&);
  void add_rows(RowLoop& loop, VariablePart part, bool stored, Choice choice) const;
  RowLoop loop(const BlockRows& rows, RowLoop::Order order) const;
  nn::NamedTensors whole(Graph& graph, const RemoteEntry& row, const nn::NamedTensors& loaded,
                         const nn::NamedTensors& invariants, bool runs_forward) const;
  void average_running(const nn::NamedTensors& whole) const;
  nn::NamedTensors accumulate(Graph& graph, const RemoteEntry& row, nn::NamedTensors whole) const;
  std::vector<std::string> updated() const;

  int64_t rows_;
  GroupGraphs graphs_;
  StepVariables& variables_;
  IoMode io_mode_ = IoMode::kIo;
  std::optional<nn::BatchSerialResult> forward_phase_;
  std::optional<nn::BatchSerialResult> backward_phase_;
};

}  // namespace sluice::train
