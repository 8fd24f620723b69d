#include <algorithm>
#include <new>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/chain_calls.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {

int64_t Chain::full_index(const Block& block) const {
  if (flat_) return block.col;
  if (panel_ == 0) return block.row * cols_ + block.col;
  return block.col / panel_ * matrix_rows_ * panel_ + block.row * panel_ + block.col % panel_;
}

Chain::Elements Chain::elements_of(int32_t operand, SourceKind kind, const Block& block,
                                   std::byte* const* operands) const {
  std::byte* const base = operands[operand];
  const int64_t size = element_bytes(operand);
  switch (kind) {
    case SourceKind::kFull: {
      const int64_t row_step = flat_ ? block.cols : panel_ == 0 ? cols_ : panel_;
      return {base + full_index(block) * size, 1, row_step, size, Motion::kFull};
    }
    case SourceKind::kColumn:
      return {base + block.col * size, 1, 0, size, Motion::kColumn};
    case SourceKind::kRow:
    case SourceKind::kChannel:
      return {base + row_index(block) * size, 0, 1, size, Motion::kRow};
    case SourceKind::kShared: {
      const Shared& shared = shared_[operands_[OperandId(operand)].shared];
      return {base + shared.index(block) * size,
              shared.col_step,
              shared.row_step,
              size,
              Motion::kShared,
              &shared};
    }
    default:
      return {base, 0, 0, size, Motion::kNone};
  }
}

// Slots of small parts lie close together: at multiples of 4 KiB they would share a few sets of the
// L1 cache.
Chain::Elements Chain::in_slot(int32_t slot, const Block& block, float* scratch) const {
  static constexpr int64_t kLine = 16;
  const int64_t floats = std::min(slot_floats_, round_up(block.rows * block.cols, kLine) + kLine);
  return {reinterpret_cast<std::byte*>(scratch + slot * floats), 1, block.cols, sizeof(float),
          Motion::kNone};
}

// Returns where the f32 values of a stage's result are.
Chain::Elements Chain::result_of(int32_t stage, const Block& block, std::byte* const* operands,
                                 float* scratch) const {
  static constexpr int64_t kSize = sizeof(float);
  const Stage& s = at(stages_, stage);
  if (std::cmp_less(stage, first_))
    return {reinterpret_cast<std::byte*>(block.head), 1, block.head_step, kSize, Motion::kHead};
  if (s.samples) {
    float* const samples = s.output >= 0 ? reinterpret_cast<float*>(operands[s.output])
                                         : scratch + slots_ * slot_floats_ + s.slot * rows_;
    return {reinterpret_cast<std::byte*>(samples + block.row), 0, 1, kSize, Motion::kRow};
  }
  if (s.slot < 0) return elements_of(s.output, SourceKind::kFull, block, operands);
  return in_slot(s.slot, block, scratch);
}

// Returns where the f32 values that a stage reads are.
Chain::Elements Chain::values_of(const Source& source, const Block& block,
                                 std::byte* const* operands, float* scratch) const {
  if (source.kind == SourceKind::kStage) return result_of(source.index, block, operands, scratch);
  if (source.kind == SourceKind::kLabels) return {};
  Elements values = elements_of(source.index, source.kind, block, operands);
  if (source.slot < 0) return values;
  const Elements widened = in_slot(source.slot, block, scratch);
  values.data = widened.data;
  values.motion = Motion::kNone;
  if (values.step > 0 && values.row_step > 0) values.row_step = widened.row_step;
  return values;
}

Chain::Parameters::Parameters(const Chain& chain, std::byte* const* operands) {
  static_assert(sizeof(ops::Labels) <= Functor::kMaxBytes);
  for (size_t s = chain.first_; s < chain.stages_.size(); ++s) {
    const Stage& stage = chain.stages_[s];
    functors_[s] = nullptr;
    const auto labels = [&](const auto& of) {
      functors_[s] = new (own_[s].bytes) ops::Labels(of.labels(operands[stage.inputs[1].index]));
    };
    if (stage.total.valid()) {
      labels(chain.totals_[stage.total]);
    } else if (stage.dropout) {
      functors_[s] = new (own_[s].bytes) Seed(read_seed(operands[stage.seed]));
    } else if (!stage.row_op.valid()) {
      functors_[s] = stage.functor.parameters(operands, own_[s]);
    } else if (const RowOp& op = chain.row_ops_[stage.row_op]; op.labels_input() >= 0) {
      labels(op);
    }
  }
  for (size_t l = 0; l < chain.loops_.size(); ++l) {
    const LoopStages& loop = chain.loops_[l];
    const void* functors[LoopType::kMaxStages];
    for (size_t k = 0; k < loop.type->stages.size(); ++k) functors[k] = functors_[loop.stages[k]];
    loop.type->make(functors, loops_[l].bytes);
  }
}

// Returns whether the output overwrites an input. The cache then holds the lines of the output, so
// a streaming store would only write them back sooner.
bool Chain::is_in_place(int32_t output, std::byte* const* operands) const {
  return std::any_of(streamed_.begin(), streamed_.end(),
                     [&](int32_t i) { return operands[i] == operands[output]; });
}

void Chain::run(const Block& block, Calls& calls, const Reader* reader) const {
  const auto run_part = [&](const Block& part) {
    calls.run(part);
    if (reader == nullptr) return;
    const Elements read = calls.result_of(reader->stage);
    reader->run(reader->state, part, read.floats(), read.row_step);
  };
  const int64_t max = has_rows()                       ? block.cols
                      : one_loop_ && reader == nullptr ? kLoopBlock
                      : streams_ && reader == nullptr  ? kStreamedBlock
                                                       : kBlock;
  const int64_t cols_at_once = std::min(block.cols, max);
  if (block.rows <= 0 || block.cols <= 0) return;
  const int64_t max_rows = streams_ && reader == nullptr ? 1 : rows_at_once(cols_at_once);
  // Parts of equal size have the same calls.
  const int64_t rows_each = ceil_div(block.rows, ceil_div(block.rows, max_rows));
  Block part = block;
  for (int64_t row = 0; row < block.rows; row += part.rows) {
    part.row = block.row + row;
    part.rows = std::min(rows_each, block.rows - row);
    if (unit_rows_ > 0) part.rows = std::min(part.rows, unit_rows_ - part.row % unit_rows_);
    for (int64_t col = 0; col < block.cols; col += cols_at_once) {
      part.col = block.col + col;
      part.cols = std::min(cols_at_once, block.cols - col);
      if (block.head != nullptr) part.head = block.head + row * block.head_step + col;
      run_part(part);
    }
  }
}

void Chain::finish(const Parameters& parameters, std::byte* const* operands, float* scratch) const {
  for (size_t s = first_; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    if (!stage.total.valid()) continue;
    const Elements losses = result_of(stage.inputs[0].index, {}, operands, scratch);
    const auto& labels = *static_cast<const ops::Labels*>(parameters.functors_[s]);
    *reinterpret_cast<float*>(operands[stage.output]) =
        totals_[stage.total].run(labels, losses.floats());
  }
}

}  // namespace sluice::cpu
