#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// The row of a buffer that a phase called with row n uses.
class RowOffset {
 public:
  /// From the phase's row to the buffer's, both scalar i32 tensors of one graph.
  using Function = std::function<Tensor(const Tensor& row)>;

  /// Row n + offset.
  RowOffset(int64_t offset) : offset_(offset) {}                    // NOLINT: implicit
  RowOffset(int offset) : offset_(offset) {}                        // NOLINT: implicit
  RowOffset(Function function) : function_(std::move(function)) {}  // NOLINT: implicit
  /// Row 0, whatever n.
  static RowOffset first() { return RowOffset(Function()); }

  /// The entry of the buffer's row at step 0 in the graph of `row`, if rows have `steps` entries; no handle if it is 0
  /// whatever the row.
  Tensor first_entry(const Tensor& row, int64_t steps) const;
  /// Entries that a buffer needs if n stays below `rows`; for a function, as many as if it stayed below `rows`.
  /// Error{kUsage} if every row would be below 0.
  int64_t entries(int64_t rows, int64_t steps) const;

 private:
  std::optional<int64_t> offset_;
  Function function_;
};

/// One tensor of each of `steps` micro-batches: micro-batch s of row r is entry r·steps + s of the buffer.
struct BatchHandle {
  RemoteBuffer buffer;
  RowOffset row = 0;
  /// Replicas that have the tensor alike, of which each keeps its shard (its chunk, as ops::replica_sharded_slice cuts):
  /// sliced before a store, gathered after a load. Absent: each keeps it whole.
  std::optional<ReplicaGrouping> shard_group = {};
};

using LoadHandle = std::variant<H2dStream, BatchHandle>;

struct BatchSerialiseOptions {
  int64_t steps = 1;  ///< Micro-batches: iterations of the loop.
  /// Inputs of the graph and where each iteration finds them. Tensors of other graphs are ignored, here and below, so
  /// that one list serves a forward graph and its gradient.
  std::vector<std::pair<Tensor, LoadHandle>> loads;
  /// Outputs and inputs of the graph that go to streams, and to buffers; one tensor may go to both. Inputs that are
  /// loaded from a buffer are not stored.
  std::vector<std::pair<Tensor, D2hStream>> store_streams;
  std::vector<std::pair<Tensor, BatchHandle>> store_buffers;
  /// Of a forward tensor that batch_serialise_fwd_and_grad keeps in a buffer of its own: the BatchHandle::shard_group.
  std::vector<std::pair<Tensor, ReplicaGrouping>> shard_groups;
  /// A uint32[2] input that gets a new seed each iteration, split from the one that the new graph takes.
  Tensor seed_input;
  int64_t rows = 1;  ///< Rows that the new graph will be called with: buffers grow accordingly.
  IoMode io_mode = IoMode::kIo;
};

struct BatchSerialised {
  GraphId graph = -1;
  /// {input of the original graph, input of the new one} for what is neither loaded nor the seed.
  TensorMap inputs;
  /// Tensors of the original graph and the buffer that holds them after a call.
  std::vector<std::pair<Tensor, BatchHandle>> stored;
  IoMode io_mode = IoMode::kIo;  ///< As the loop was made.
  std::string note;              ///< Why this is not the mode that was asked for; else empty.
};

/// One phase: a graph run for one micro-batch after the other, with what it reads loaded and what it makes stored around
/// each run.
///
/// Before: `graph` is a subgraph whose outputs that are still needed are all named in the stores.
/// After: a graph "<graph>__repeat_graph_subgraph(N)" without outputs. Its inputs: `batch_serial_loop_index`, the row (i32,
/// ()); `batch_serial_random_seed`, if there is a seed input; then the inputs that are neither loaded nor the seed, as they
/// were (those by reference see all iterations). With kCompute and kIo each iteration loads, calls `graph`, and stores;
/// with kIoOverlapped iteration k loads for k + 1 and stores what k - 1 made, beside the call. The bits are the same.
/// An iteration's loads stand next to each other in the order of inputs, and so do its stores: one exchange each.
/// kIoOverlapped becomes kIo, with a note, for fewer than two steps, and where the graph itself uses a stream or buffer
/// that the loop loads from or stores to.
/// Errors (kUsage): steps or rows below 1; a loaded tensor that is no input; handles of another spec or Ir; a shard of a
/// shard; a seed input that is no uint32[2] input or that is also loaded.
BatchSerialised batch_serialise(Graph& graph, const BatchSerialiseOptions& options);

struct BatchSerialisedPair {
  BatchSerialised forward;
  /// Of the gradient graph; `inputs` also has {forward tensor, input} for those in `named`.
  BatchSerialised gradient;
  /// How the gradient phase is connected to the forward graph as it was: by those in `named` that it takes.
  GradGraphInfo info;
};

/// Both phases of a layer: what the gradient graph needs of the forward graph finds its way by itself.
///
/// A forward tensor that the gradient needs is, by the first rule that fits: an input of the gradient phase, if it is among
/// `named` (variables, say); found in the buffer that `store_buffers` gives it; found where the forward phase loads it, if
/// that is a buffer; stored by the forward phase in a new buffer of `rows` rows. Gradients must have a load handle.
/// The options hold for both graphs; the seed input is the forward graph's.
/// Errors (kUsage): as batch_serialise; a gradient without a load handle.
BatchSerialisedPair batch_serialise_fwd_and_grad(const GradGraphInfo& info, const Tensors& named,
                                                 const BatchSerialiseOptions& options);

/// A buffer for `t` of `steps` micro-batches in each of `rows` rows, of its shards if there is a group. Error{kUsage} for a
/// number below 1, and for shards of a shard.
RemoteBuffer batch_serial_buffer(const Tensor& t, int64_t steps, int64_t rows = 1,
                                 const std::optional<ReplicaGrouping>& shard_group = {});

}  // namespace sluice::transforms
