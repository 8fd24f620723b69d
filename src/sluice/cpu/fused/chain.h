#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "sluice/cpu/fused/functor.h"
#include "sluice/cpu/fused/row_op.h"
#include "sluice/target/fused_op.h"

namespace sluice::cpu {

/// Elementwise stages of a fused op and stages that work on rows, run one after the other on blocks small enough to stay
/// in the first cache (or of one row, where stages work on rows). All results have one shape, seen as rows × columns; an
/// operand has that shape, or one value for each column, or for each row, or one for all. Stages on rows may also give
/// one value for each row, and of such losses the total may be taken, after all blocks.
class Chain {
 public:
  /// A part of the results. `head` is the block's part of stage 0's result, if that is not elementwise: rows lie
  /// `head_step` floats apart.
  struct Block {
    int64_t row = 0, rows = 1;
    int64_t col = 0, cols = 0;
    float* head = nullptr;
    int64_t head_step = 0;
  };
  /// How an operand is cut where the results are cut into blocks of whole columns or of whole rows.
  struct Cut {
    int64_t stride = 0;
    int64_t pitch = 0;
  };

  /// What reads a stage's result block by block, whether or not that is stored: called after each block's stages.
  struct Reader {
    void (*run)(void* state, const Block& block, const float* data, int64_t step) = nullptr;
    void* state = nullptr;
    int32_t stage = 0;
  };

  static constexpr size_t kMostStages = 16;
  static constexpr int64_t kBlock =
      1024;  ///< Floats: with a few operands, well inside the first cache.
  static constexpr int64_t kMostRows = 128;

  /// Rows of a block with so many columns.
  static constexpr int64_t rows_at_once(int64_t cols) {
    return std::clamp<int64_t>(kBlock / std::min(cols, kBlock), 1, kMostRows);
  }

  /// Whether stages [first, end) are a chain. Those before and after have their own ways.
  static bool exists(const FusedOp& op, size_t first, size_t end);

  Chain() = default;
  Chain(const FusedOp& op, size_t first, size_t end);
  /// Cuts a flat chain into rows and columns of as many results.
  void view_as(int64_t rows, int64_t cols);

  /// The results as rows × columns, padding included; one row if no operand has a value for each column or row.
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  bool flat() const { return flat_; }
  bool in_panels() const { return panel_ > 0; }
  bool has_stages() const { return first_ < stages_.size(); }
  /// Whether stages work on rows: blocks must be of whole rows.
  bool has_rows() const { return !row_ops_.empty(); }
  /// Whether a total is taken: all blocks must be of one task, and finish() be called after them.
  bool has_total() const { return !totals_.empty(); }
  /// Whether some results are written by streaming stores.
  bool streams() const { return streams_; }
  int64_t scratch_bytes() const;
  Cut cut_columns(size_t operand, int64_t cols) const;
  Cut cut_rows(size_t operand, int64_t rows) const;
  /// (input, output) pairs of operands that may be the same bytes.
  const std::vector<std::pair<int, int>>& may_coincide() const { return may_coincide_; }

  /// What the stages' functors are with what the operands hold now.
  class Parameters {
   public:
    Parameters(const Chain& chain, std::byte* const* operands);

   private:
    friend class Chain;
    Functor::Storage own_[kMostStages];
    const void* functors_[kMostStages];  // Of stages on rows and totals: their labels, if any.
  };

  /// Runs all stages on a block, rows ascending, columns of a row ascending. `scratch` has scratch_bytes(). The
  /// reader gets whole rows of up to kBlock columns, else blocks of kBlock columns of one row.
  void run(const Block& block, const Parameters& parameters, std::byte* const* operands,
           float* scratch, const Reader* reader = nullptr) const;
  /// After the last block: takes totals.
  void finish(const Parameters& parameters, std::byte* const* operands, float* scratch) const;

 private:
  enum class Kind : uint8_t { kFull, kColumn, kRow, kScalar, kStage, kLabels };
  struct Source {
    Kind kind = Kind::kFull;
    int32_t index = 0;  // Operand or stage.
  };
  struct Stage {
    Functor functor;
    int32_t row_op = -1;  // Instead of a functor, one of row_ops_,
    int32_t total = -1;   // or of totals_.
    std::array<Source, Functor::kMostInputs> inputs;
    int input_count = 0;
    int32_t output = -1;   // Operand.
    int32_t slot = -1;     // Of the scratch memory, where there is no operand or it is streamed;
    bool samples = false;  // of one value for each row, if so.
  };
  struct Place {
    float* data = nullptr;
    int64_t step = 0;
  };

  static bool classify(const FusedOp& op, const Shape& space, int32_t operand, Kind& kind);
  static bool has_operands_of(const RowOp& row_op, const FusedOp& op, const OpStage& stage,
                              const Shape& space);
  void take_inputs(const FusedOp& op, const OpStage& stage, Stage& own);
  void run_functor(const Stage& stage, const void* functor, const Block& block,
                   std::byte* const* operands, float* scratch, const Place& to) const;
  void run_row_op(const Stage& stage, const void* labels, const Block& block,
                  std::byte* const* operands, float* scratch, const Place& to) const;
  void run_part(const Block& block, const void* const* functors, std::byte* const* operands,
                float* scratch, const Reader* reader) const;
  Place full(std::byte* operand, const Block& block) const;
  Place place_of(int32_t stage, const Block& block, std::byte* const* operands,
                 float* scratch) const;
  void find_coinciding(const FusedOp& op);
  void find_streamed(const FusedOp& op);
  bool is_in_place(int32_t output, std::byte* const* operands) const;

  size_t first_ = 0;
  int64_t rows_ = 1;
  int64_t cols_ = 0;
  int64_t panel_ = 0;        // Of the operands of full shape; 0: row-major.
  int64_t matrix_rows_ = 0;  // Of a matrix in panels.
  bool flat_ = true;
  bool streams_ = false;
  std::vector<int32_t> streamed_;  // Inputs as large as what is streamed: asked for ahead.
  int32_t slots_ = 0;
  int32_t sample_slots_ = 0;  // Of a value for each row.
  int64_t slot_floats_ = 0;
  std::vector<Kind> kinds_;  // By operand.
  std::vector<Stage> stages_;
  std::vector<RowOp> row_ops_;
  std::vector<LossTotal> totals_;
  std::vector<std::pair<int, int>> may_coincide_;
};

}  // namespace sluice::cpu
