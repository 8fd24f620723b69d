#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/train/order/strategies.h"
#include "sluice/train/phases/phased_group.h"
#include "sluice/train/strategies/step_blocks.h"
#include "sluice/train/strategies/step_graph.h"

namespace sluice::train {

/// A step, as its phases need it. All references outlive the phases.
struct PhasedStep {
  const NetworkGraph& network;
  const WeightRules& rules;
  const Options& options;
  Training& training;
  const StepBlocks& blocks;
  StepVariables& variables;  ///< With the rows of variable_rows().

  /// Whether updates follow all gradients: the norm of all gradients and offloaded gradients
  /// require it.
  PhasedUpdates updates() const;
};

/// Returns the variables of each group of equal blocks. Tied weights are not rows.
std::vector<VariableRows> variable_rows(const StepBlocks& blocks);

/// Returns the groups of a step with their loops. Rows with a variable on the device are in line,
/// and so is the first row that adds to the gradient of a tied weight.
std::vector<PhasedBlocks> phased_blocks(const PhasedStep& step);

/// The phases of a step that runs one block after another, each for all micro-batches
/// (phased_order() with MicroBatchForm::kLoop). A phase is a loop over micro-batches
/// (nn/batch_serialise.h).
///
/// Neighbouring blocks with equal graphs share them, and remote buffers; each block has one row in
/// them (block_groups.h). A forward phase first loads the offloaded weights of its block. A
/// backward phase first loads the offloaded weights and state, and then stores them. Values that
/// other blocks read wait in remote buffers of the stage that makes them, and so do the gradients
/// of these values.
class Phases {
 public:
  /// Makes the graphs of all phases. `scope` has the entry graph of the step, its inputs, kept
  /// results and total weight.
  Phases(const PhasedStep& step, const StepGraph& scope);

  /// Adds the tasks of an update to the entry graph.
  void run(const std::vector<OrderItem>& items);

 private:
  // The buffer of all values, or of all gradients, of one stage and spec.
  enum class BufferRole { kValue, kGradient };

  const BlockGraph& block(BlockId b) const { return step_.blocks.cut.blocks[b]; }
  nn::BatchSerialiseOptions serial_options() const;
  void find_readers();
  bool is_tied(const std::string& key) const { return step_.blocks.cut.uses(key) > 1; }
  // Its gradients are added up; the update is one task.
  void end_tied(const std::string& key, bool updates);

  DeviceId device(BlockId b) const { return step_.blocks.stages[step_.blocks.stage_of[b]].device; }
  const RemoteBuffer& buffer(BufferRole role, const ValueRow& value_row);
  nn::BatchHandle handle(BufferRole role, const Tensor& whole);
  nn::BatchHandle fixed_handle(BufferRole role, const Tensor& whole);
  nn::BatchHandle input_handle(BufferRole role, const BlockGroup& group, size_t input);
  nn::BatchHandle taken_gradient(const BlockGroup& group, const TakenGradient& taken);
  nn::BatchHandle gradient_handle(const BlockGroup& group, const Tensor& whole, BlockId source);

  nn::BoundGraph serialise_seeds();
  PhasedGroup make_group(const BlockGroup& group);
  GroupGraphs joint_graphs(BlockId b) const;
  GroupGraphs separate_graphs(BlockId b) const;
  void connect_joint(const BlockGroup& group, GroupGraphs& graphs, nn::BatchSerialiseOptions& o);
  void connect_separate(const BlockGroup& group, GroupGraphs& graphs, nn::BatchSerialiseOptions& o);
  void load_values(const BlockGroup& group, const Tensors& inputs, nn::BatchSerialiseOptions& o);
  nn::NamedTensors store_results(const std::vector<BlockValue>& outputs,
                                 nn::BatchSerialiseOptions& o) const;
  void store_gradients(const BlockGroup& group, const Tensors& outputs,
                       nn::BatchSerialiseOptions& o);
  void add_updates(BlockId b, const GroupGraphs& graphs, nn::BatchSerialiseOptions& o) const;
  std::string name_of(BlockId b, const WeightUse& w) const;
  std::optional<size_t> once_input(const Tensor& whole) const;
  std::optional<H2dStream> field_stream(const Tensor& whole) const;

  PhasedStep step_;
  const StepGraph& scope_;
  Graph& main_;
  Ir ir_;
  std::vector<WrittenResult> results_;
  std::optional<nn::BoundGraph> seeds_;
  std::vector<PhasedGroup> groups_;
  std::map<std::string, TiedWeight> tied_;                ///< Keyed by key.
  std::map<size_t, std::vector<std::string>> read_last_;  ///< Trained tied weights by group.
  Tensors scale_;                                         ///< Factor of all gradients.
  std::map<TensorId, int> readers_;                       ///< Number of blocks that read a value.
  std::map<TensorId, nn::BatchHandle> fields_;            ///< Fields that several blocks read.
  struct StageBuffer {
    BufferRole role;
    StageId stage;
    RemoteBuffer buffer;
  };
  std::vector<StageBuffer> buffers_;
  /// Gradients that another stage reads, by value and the stage of the block that computes them.
  std::map<std::pair<TensorId, StageId>, RemoteBuffer> crossing_gradients_;
};

}  // namespace sluice::train
