#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "sluice/base/ids/ids.h"
#include "sluice/cpu/fused/dropout_op.h"
#include "sluice/cpu/fused/functor.h"
#include "sluice/cpu/fused/loop.h"
#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/target/fused_op.h"

namespace sluice::cpu {

/// Returns a view of a stage's op, whose operands have the specs `inputs`. The view refers to both
/// arguments.
OpView view_of(const OpStage& stage, const std::vector<TensorSpec>& inputs);

/// Runs the elementwise stages and the stages on rows of a fused op, block by block. A block stays
/// in the L1 cache, or consists of whole rows if a stage works on rows.
///
/// All results have one shape, viewed as rows × columns. An operand has that shape, one value for
/// each column, one value for each row, or a single value. It may also have one value for each
/// channel: the rows are then the channels of one sample after the other. After matrix products, an
/// operand may also have matrices, rows or values that several matrices share. A stage on rows may
/// compute one value for each row, such as a loss. The total of such losses is computed after all
/// blocks. Dropout is an elementwise stage that also depends on the index of each element, so the
/// results are then row-major.
///
/// Stages compute in f32. An operand of another dtype is widened block by block, and a result of
/// another dtype is rounded to it before the next stage reads it, as if it had been stored. Such
/// operands are row-major.
class Chain {
 public:
  /// A part of the results. If stage 0 is a matrix product, `head` points to this part of its
  /// result, whose rows are `head_step` floats apart.
  struct Block {
    int64_t row = 0, rows = 1;
    int64_t col = 0, cols = 0;
    float* head = nullptr;
    int64_t head_step = 0;
  };
  /// How an operand is cut if the results are cut into blocks of whole columns or of whole rows:
  /// KernelChoice::task_stride and KernelChoice::task_pitch, in bytes.
  struct Cut {
    int64_t stride = 0;
    int64_t pitch = 0;
  };

  /// A function that reads the result of a stage block by block, even if the result is not stored.
  /// It is called after the stages of each block.
  struct Reader {
    void (*run)(void* state, const Block& block, const float* data, int64_t step) = nullptr;
    void* state = nullptr;
    int32_t stage = 0;
  };

  static constexpr size_t kMaxStages = 16;
  static constexpr size_t kMaxLoops = kMaxStages / 2;
  /// Floats of a block. The blocks of a few operands fit easily into the L1 cache.
  static constexpr int64_t kBlock = 1024;
  static constexpr int64_t kMaxRows = 128;
  /// Floats of a block if one loop computes all stages: intermediate results need no cache.
  static constexpr int64_t kLoopBlock = 16384;

  /// Rows of a block with `cols` columns.
  static constexpr int64_t rows_at_once(int64_t cols) {
    return std::clamp<int64_t>(kBlock / std::min(cols, kBlock), 1, kMaxRows);
  }

  /// Returns whether stages [first, end) of `op` form a chain. The caller runs the stages before
  /// and after them.
  static bool exists(const FusedOp& op, size_t first, size_t end);

  Chain() = default;
  Chain(const FusedOp& op, size_t first, size_t end);
  /// Views the results of a chain without values for each column or row as `rows` × `cols`. Their
  /// number must not change; with values for each channel, nor may the rows.
  void view_as(int64_t rows, int64_t cols);

  /// The results are viewed as rows() × cols(), padding included. They are one row if the chain is
  /// flat: no operand has one value for each column or for each row.
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool flat() const { return flat_; }
  /// Whether an operand has one value for each column or row of the results' last axis.
  bool has_last_axis() const { return last_axis_; }
  bool row_major() const { return row_major_; }
  /// Whether an operand has matrices, rows or values that some matrices of the results share.
  bool has_matrices() const { return !shared_.empty(); }
  /// Axis of the results along which operands have one value for each channel; -1: none. It
  /// determines rows() and cols(), and view_as() must keep both.
  int channel_axis() const { return channel_axis_; }
  bool has_stages() const { return first_ < stages_.size(); }
  /// Whether a stage works on rows. Blocks must then consist of whole rows.
  bool has_rows() const { return !row_ops_.empty(); }
  /// Whether finish() computes a total. One task must then run all blocks and call finish() after
  /// the last one.
  bool has_total() const { return !totals_.empty(); }
  /// Finds the stages that one loop computes (loop.h). Without it, all stages run one by one.
  void find_loops();
  /// Number of such loops.
  int loops() const { return static_cast<int>(loops_.size()); }
  /// Whether some results are written by streaming stores.
  bool streams() const { return streams_; }
  int64_t scratch_bytes() const;
  /// Whether every block reads or writes its own elements of an operand, which has the results'
  /// shape.
  bool is_full(int32_t operand) const {
    return operands_[OperandId(operand)].kind == SourceKind::kFull;
  }
  /// Bytes of an element of an operand that blocks read or write.
  int64_t element_bytes(int32_t operand) const {
    return operands_[OperandId(operand)].element.size;
  }
  Cut cut_columns(int32_t operand, int64_t cols) const;
  Cut cut_rows(int32_t operand, int64_t rows) const;
  /// (input, output) pairs of operands that may be the same bytes.
  const std::vector<std::pair<int, int>>& may_coincide() const { return may_coincide_; }

  /// The parameters of all functors, computed from the values that the operands hold now.
  class Parameters {
   public:
    Parameters(const Chain& chain, std::byte* const* operands);

   private:
    friend class Chain;
    Functor::Storage own_[kMaxStages];
    // A stage on rows or a total has its labels here, if any, and dropout its seed.
    const void* functors_[kMaxStages];
    struct alignas(16) LoopStorage {
      std::byte bytes[LoopType::kMaxBytes];
    };
    LoopStorage loops_[kMaxLoops];
  };

  /// The kernels that compute the parts of blocks (chain_calls.h). Made once for all blocks of a
  /// task.
  class Calls;

  /// Runs all stages on a block, part by part: rows ascending, then columns ascending. A part that
  /// the reader gets has whole rows if they have at most kBlock columns, otherwise at most kBlock
  /// columns of one row.
  void run(const Block& block, Calls& calls, const Reader* reader = nullptr) const;
  /// Computes the totals. Must be called after the last block.
  void finish(const Parameters& parameters, std::byte* const* operands, float* scratch) const;

 private:
  using OperandId = Id<struct OperandTag>;
  using RowOpId = Id<struct RowOpTag>;
  using TotalId = Id<struct TotalTag>;
  enum class SourceKind : uint8_t {
    kFull,
    kColumn,
    kRow,
    kChannel,
    kShared,
    kScalar,
    kStage,
    kLabels
  };
  struct Source {
    SourceKind kind = SourceKind::kFull;
    int32_t index = 0;  // Index of the operand or stage.
    int32_t slot = -1;  // Scratch slot of the widened operand; -1: the operand is f32 or a stage.
  };
  using SharedId = Id<struct SharedTag>;
  struct Operand {
    SourceKind kind = SourceKind::kScalar;
    Element element;
    SharedId shared;  // Valid if the kind is kShared.
  };
  // How an operand is broadcast to the matrices of the results. The steps are in elements.
  struct Shared {
    std::vector<int64_t> offsets;  // Offset of the operand's matrix, for each matrix.
    int64_t row_step = 0, col_step = 0;
    int64_t matrix_rows = 1;  // Rows of a matrix of the results.
    int64_t index(const Block& block) const {
      return offsets.data()[block.row / matrix_rows] + block.row % matrix_rows * row_step +
             block.col * col_step;
    }
  };
  struct Stage {
    Functor functor;
    RowOpId row_op;  // Valid if the stage works on rows.
    TotalId total;   // Valid if the stage is a total.
    std::optional<DropoutOp> dropout;
    int32_t seed = -1;  // Operand with the seed of dropout.
    Source inputs[Functor::kMaxInputs];
    int input_count = 0;
    Element element;       // How the result is stored.
    int32_t output = -1;   // Operand that stores the result; -1: not stored.
    int32_t slot = -1;     // Scratch slot of a result that is not computed in its operand.
    bool samples = false;  // The result has one value for each row.
    bool streams = false;  // The result is written by streaming stores.
    size_t last_read = 0;  // The last stage, or reduction, that reads the result; 0: none.
    bool is_copy = false;  // The values are those of the operand, before they are rounded.
    // The dtype of the result represents all values that the stage computes.
    bool is_exact = false;
    bool is_read() const { return last_read > 0; }
  };
  // Stages from `first` on that one loop can compute.
  struct LoopStages {
    size_t first = 0;
    const LoopType* type = nullptr;
    size_t stages[LoopType::kMaxStages] = {};  // In the loop's order.
    Source operands[kMaxMapInputs];
  };
  // Cause of a change of an address from block to block: none, or the block's position in the
  // results, its column, its row, its head or its matrix.
  enum class Motion : uint8_t { kNone, kFull, kColumn, kRow, kHead, kShared };
  // The elements of an operand or result that a block reads or writes, or the first of them if
  // there is one value for all columns or rows. The steps are in elements.
  struct Elements {
    std::byte* data = nullptr;
    int64_t step = 1;
    int64_t row_step = 0;
    int64_t size = 0;  // Bytes of an element.
    Motion motion = Motion::kNone;
    const Shared* shared = nullptr;  // Set if the motion is kShared.
    float* floats() const { return reinterpret_cast<float*>(data); }
  };

  static bool classify(const FusedOp& op, const Shape& space, int32_t operand, SourceKind& kind);
  static bool has_operands_of(const RowOp& row_op, const FusedOp& op, const OpStage& stage,
                              const Shape& space);
  void set_layout(const Layout& layout);
  void share(const FusedOp& op, int32_t operand);
  void take_inputs(const FusedOp& op, const OpStage& stage, Stage& own);
  int32_t widened_slot(const Source& source);
  Elements elements_of(int32_t operand, SourceKind kind, const Block& block,
                       std::byte* const* operands) const;
  // Index of a block's first element in an operand of full shape, or with values for each row.
  int64_t full_index(const Block& block) const;
  int64_t row_index(const Block& block) const {
    return channels_ > 0 ? block.row % channels_ : block.row;
  }
  Elements in_slot(int32_t slot, const Block& block, float* scratch) const;
  Elements result_of(int32_t stage, const Block& block, std::byte* const* operands,
                     float* scratch) const;
  Elements values_of(const Source& source, const Block& block, std::byte* const* operands,
                     float* scratch) const;
  bool match(LoopStages& loop) const;
  void find_coinciding(const FusedOp& op);
  void find_streamed(const FusedOp& op);
  bool is_in_place(int32_t output, std::byte* const* operands) const;

  size_t first_ = 0;
  int64_t rows_ = 1;
  int64_t cols_ = 0;
  int64_t panel_ = 0;        // Panel width of operands of full shape; 0: row-major.
  int64_t matrix_rows_ = 0;  // Rows of a matrix in panels.
  bool row_major_ = true;
  bool flat_ = true;
  bool last_axis_ = false;
  int channel_axis_ = -1;  // Axis of the results with values for each channel; -1: none.
  int64_t channels_ = 0;   // Rows that the values for each channel repeat after; 0: none.
  int64_t unit_rows_ = 0;  // Parts of blocks end at multiples of these rows; 0: anywhere.
  bool streams_ = false;
  std::vector<int32_t> streamed_;  // Large inputs: prefetched while results are streamed.
  std::vector<Source> widened_;    // The operands that are not f32, once for each way to read.
  int32_t narrow_slot_ = -1;       // Slot for rounded results before they are streamed; -1: none.
  int32_t slots_ = 0;
  int32_t sample_slots_ = 0;  // Slots that hold one value for each row.
  int64_t slot_floats_ = 0;
  Ids<OperandId, Operand> operands_;
  std::vector<Stage> stages_;
  std::vector<LoopStages> loops_;
  bool one_loop_ = false;  // One loop computes all stages, without a slot.
  Ids<SharedId, Shared> shared_;
  Ids<RowOpId, RowOp> row_ops_;
  Ids<TotalId, LossTotal> totals_;
  std::vector<std::pair<int, int>> may_coincide_;
};

}  // namespace sluice::cpu
