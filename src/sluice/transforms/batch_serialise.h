#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/base/provenance.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// Maps the row n that a phase is called with to a row of a buffer.
class RowOffset {
 public:
  /// Maps the phase's row to the buffer's row. Both are scalar i32 tensors of one graph.
  using Function = std::function<Tensor(const Tensor& row)>;

  /// Row n + offset.
  RowOffset(int64_t offset) : offset_(offset) {}                    // NOLINT: implicit
  RowOffset(int offset) : offset_(offset) {}                        // NOLINT: implicit
  RowOffset(Function function) : function_(std::move(function)) {}  // NOLINT: implicit
  /// Row 0 for every n.
  static RowOffset first() { return RowOffset(Function()); }

  /// Returns the entry at step 0 of the buffer's row, a tensor in the graph of `row`. A row has
  /// `steps` entries. Returns an empty handle for first().
  Tensor first_entry(const Tensor& row, int64_t steps) const;
  /// Returns the number of entries that a buffer needs for all n below `rows`. A function is
  /// assumed to return rows below `rows`. Error{kUsage} if every row would be below 0.
  int64_t entries(int64_t rows, int64_t steps) const;

 private:
  std::optional<int64_t> offset_;
  Function function_;
};

/// One tensor per micro-batch. Micro-batch s of row r is entry r·steps + s of the buffer.
struct BatchHandle {
  RemoteBuffer buffer = {};
  RowOffset row = 0;
  /// Replicas that hold equal values of the tensor. Each stores only its shard (see
  /// ops::replica_sharded_slice). The tensor is sliced before a store and gathered after a load.
  /// Absent: each stores the whole tensor.
  std::optional<ReplicaGrouping> shard_group = {};
};

using LoadHandle = std::variant<H2dStream, BatchHandle>;

/// The update of a variable that all micro-batches share.
struct BatchUpdate {
  Tensor value = {};      ///< An output of the graph.
  std::string name = {};  ///< Name of the variable's input.
  TensorSpec spec = {};   ///< Spec of the variable.
  /// Adds the ops that update the variable by the value of a micro-batch.
  std::function<void(const Tensor& variable, const Tensor& value)> apply = nullptr;
  OpRole role = OpRole::kRunningAverage;  ///< Role of these ops.
};

struct BatchSerialiseOptions {
  int64_t steps = 1;  ///< Micro-batches: iterations of the loop.
  /// Inputs of the graph and the source from which each iteration loads them. Tensors of other
  /// graphs are ignored here and in the other lists. One list can therefore serve a forward graph
  /// and its gradient.
  std::vector<std::pair<Tensor, LoadHandle>> loads = {};
  /// Outputs and inputs of the graph that are stored to streams and to buffers. A tensor may be in
  /// both lists. Inputs that are loaded from a buffer are not stored.
  std::vector<std::pair<Tensor, D2hStream>> store_streams = {};
  std::vector<std::pair<Tensor, BatchHandle>> store_buffers = {};
  /// Updates after each run of the graph, in the order of micro-batches.
  std::vector<BatchUpdate> updates = {};
  /// The BatchHandle::shard_group of tensors for which batch_serialise_fwd_and_grad makes a buffer.
  std::vector<std::pair<Tensor, ReplicaGrouping>> shard_groups = {};
  /// A uint32[2] input that gets a new seed in each iteration. The seeds are split from the seed
  /// that the new graph takes.
  Tensor seed_input = {};
  int64_t rows = 1;  ///< Rows that the new graph is called with. Buffers grow to fit them.
  IoMode io_mode = IoMode::kIo;
};

struct BatchSerialised {
  GraphId graph;
  /// {input of the original graph, input of the new one} for inputs that are neither loaded nor the
  /// seed.
  TensorMap inputs;
  /// {name, input of the new graph, by reference} of the variables that the phase updates.
  std::vector<std::pair<std::string, Tensor>> updated;
  /// Tensors of the original graph and the buffer that holds them after a call.
  std::vector<std::pair<Tensor, BatchHandle>> stored;
  IoMode io_mode = IoMode::kIo;  ///< Mode that the loop uses.
  std::string note;  ///< The reason why `io_mode` differs from the one requested; else empty.
};

/// Makes a phase: a graph that runs `graph` for one micro-batch after another. Loads and stores
/// surround each run.
///
/// Before: `graph` is a subgraph. Each output that is still needed is in one of the store lists or
/// in the updates.
/// After: a graph "<graph>__repeat_graph_subgraph(N)" without outputs. Its first input is
/// `batch_serial_loop_index`, the row (i32, ()). `batch_serial_random_seed` follows if there is a
/// seed input. Then follow the inputs that are neither loaded nor the seed, unchanged, and the
/// variables of updates. Inputs passed by reference are shared by all iterations.
///
/// With kCompute and kIo each iteration loads, calls `graph`, and stores. With kIoOverlapped
/// iteration k loads for k + 1 and stores the results of k - 1 while it calls `graph`. The bits are
/// the same. The loads of an iteration are adjacent, in the order of inputs, so that they form one
/// exchange. The stores are adjacent too. kIoOverlapped becomes kIo, with a note, for fewer than
/// two steps. The same happens if the graph itself uses a stream or buffer that the loop uses.
///
/// Error{kUsage} if steps or rows are below 1, or if a loaded tensor is not an input. Error{kUsage}
/// for handles of another spec or Ir, for a shard of a shard, and for an update by a value that is
/// not an output. Error{kUsage} if the seed input is not a uint32[2] input of the graph, or if it
/// is also loaded.
BatchSerialised batch_serialise(Graph& graph, const BatchSerialiseOptions& options);

struct BatchSerialisedPair {
  BatchSerialised forward;
  /// The gradient graph's phase. `inputs` also has {forward tensor, input} for tensors in `named`.
  BatchSerialised gradient;
  /// Connects the gradient phase with the original forward graph through the tensors of `named`
  /// that the phase reads.
  GradGraphInfo info;
};

/// Makes both phases of a layer and passes forward tensors from the forward to the gradient phase.
///
/// For each forward tensor that the gradient needs, the first rule that fits applies:
/// 1. A tensor in `named`, for example a variable, becomes an input of the gradient phase.
/// 2. A tensor in `store_buffers` is loaded from its buffer.
/// 3. A tensor that the forward phase loads from a buffer is loaded from that buffer.
/// 4. The forward phase stores any other tensor in a new buffer of `rows` rows.
///
/// Each gradient must be in `options.loads`. The options apply to both graphs, but the seed input
/// is an input of the forward graph. Error{kUsage} as for batch_serialise, and if a gradient does
/// not have a load handle.
BatchSerialisedPair batch_serialise_fwd_and_grad(const GradGraphInfo& info, const Tensors& named,
                                                 const BatchSerialiseOptions& options);

/// Makes a buffer for `t`, or for its shards if there is a group. It has `rows` rows of `steps`
/// micro-batches. Error{kUsage} if a number is below 1, and for a shard of a shard.
RemoteBuffer batch_serial_buffer(const Tensor& t, int64_t steps, int64_t rows = 1,
                                 const std::optional<ReplicaGrouping>& shard_group = {});

}  // namespace sluice::transforms
