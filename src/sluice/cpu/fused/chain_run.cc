#include <algorithm>
#include <new>
#include <utility>

#include "sluice/cpu/fused/chain.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {

[[gnu::always_inline]] inline Chain::BlockOperand Chain::place(int32_t operand, SourceKind kind,
                                                               const Block& block,
                                                               std::byte* const* operands) const {
  std::byte* const base = operands[operand];
  const int64_t size = element_bytes(operand);
  switch (kind) {
    case SourceKind::kFull:
      if (flat_) return {base + block.col * size, 1, block.cols};
      if (panel_ == 0) return {base + (block.row * cols_ + block.col) * size, 1, cols_};
      return {base + (block.col / panel_ * matrix_rows_ * panel_ + block.row * panel_ +
                      block.col % panel_) *
                         size,
              1, panel_};
    case SourceKind::kColumn:
      return {base + block.col * size, 1, 0};
    case SourceKind::kRow:
      return {base + block.row * size, 0, 1};
    case SourceKind::kChannel:
      return {base + block.row % channels_ * size, 0, 1};
    default:
      return {base, 0, 0};
  }
}

Chain::StridedData Chain::full(int32_t operand, const Block& block,
                               std::byte* const* operands) const {
  const BlockOperand p = place(operand, SourceKind::kFull, block, operands);
  return {reinterpret_cast<float*>(p.data), p.row_step};
}

// Returns where the f32 values of a stage's result are.
Chain::StridedData Chain::data_of(int32_t stage, const Block& block, std::byte* const* operands,
                                  float* scratch) const {
  const Stage& s = at(stages_, stage);
  if (std::cmp_less(stage, first_)) return {block.head, block.head_step};
  if (s.samples) {
    float* const samples = s.output >= 0 ? reinterpret_cast<float*>(operands[s.output])
                                         : scratch + slots_ * slot_floats_ + s.slot * rows_;
    return {samples + block.row, 1};
  }
  if (s.slot < 0) return full(s.output, block, operands);
  return {scratch + s.slot * slot_floats_, block.cols};
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
}

void Chain::run(const Block& block, const Parameters& parameters, std::byte* const* operands,
                float* scratch, const Reader* reader) const {
  const void* const* functors = parameters.functors_;
  Block part = block;
  const int64_t max = has_rows()                      ? block.cols
                      : streams_ && reader == nullptr ? kStreamedBlock
                                                      : kBlock;
  if (block.rows == 1) {
    for (int64_t done = 0; done < block.cols; done += max) {
      part.col = block.col + done;
      part.cols = std::min(max, block.cols - done);
      if (block.head != nullptr) part.head = block.head + done;
      run_part(part, functors, operands, scratch, reader);
    }
    return;
  }
  const int64_t cols_at_once = std::min(block.cols, max);
  const int64_t max_rows = streams_ && reader == nullptr ? 1 : rows_at_once(cols_at_once);
  for (int64_t row = 0; row < block.rows; row += part.rows) {
    part.row = block.row + row;
    part.rows = std::min(max_rows, block.rows - row);
    if (channels_ > 0) part.rows = std::min(part.rows, channels_ - part.row % channels_);
    for (int64_t col = 0; col < block.cols; col += cols_at_once) {
      part.col = block.col + col;
      part.cols = std::min(cols_at_once, block.cols - col);
      if (block.head != nullptr) part.head = block.head + row * block.head_step + col;
      run_part(part, functors, operands, scratch, reader);
    }
  }
}

// Returns whether the output overwrites an input. The cache then holds the lines of the output, so
// a streaming store would only write them back sooner.
bool Chain::is_in_place(int32_t output, std::byte* const* operands) const {
  return std::any_of(streamed_.begin(), streamed_.end(),
                     [&](int32_t i) { return operands[i] == operands[output]; });
}

// Force inlining: this function is called for each stage of each block.
[[gnu::always_inline]] inline void Chain::run_functor(const Stage& stage, const void* functor,
                                                      const Block& block,
                                                      std::byte* const* operands, float* scratch,
                                                      const StridedData& to) const {
  MapInput inputs[Functor::kMaxInputs];
  bool together = to.step == block.cols;  // The rows follow each other without gaps.
  for (int i = 0; i < stage.input_count; ++i) {
    const Source& source = stage.inputs[i];
    MapInput& in = inputs[i];
    if (source.kind == SourceKind::kStage) {
      const StridedData strided = data_of(source.index, block, operands, scratch);
      in = {strided.data, 1, strided.step};
    } else {
      const BlockOperand p = place(source.index, source.kind, block, operands);
      in = {reinterpret_cast<const float*>(p.data), p.col_step, p.row_step};
      if (source.slot >= 0) {
        in.data = scratch + source.slot * slot_floats_;
        if (source.kind == SourceKind::kFull) in.row_step = block.cols;
      }
    }
    together = together && in.row_step == (in.step == 1 ? block.cols : 0);
  }
  const MapOutput output{to.data, to.step};
  if (together) {
    stage.functor.kernel()(functor, inputs, &output, 1, block.rows * block.cols);
  } else {
    stage.functor.kernel()(functor, inputs, &output, block.rows, block.cols);
  }
}

// Widens the part of an operand that a block reads.
void Chain::widen(const Source& source, const Block& block, std::byte* const* operands,
                  float* scratch) const {
  const Element& element = operands_[OperandId(source.index)].element;
  const BlockOperand from = place(source.index, source.kind, block, operands);
  float* const to = scratch + source.slot * slot_floats_;
  if (source.kind != SourceKind::kFull) {
    const int64_t values = from.col_step > 0 ? block.cols : from.row_step > 0 ? block.rows : 1;
    return element.widen(from.data, to, values);
  }
  if (from.row_step == block.cols) return element.widen(from.data, to, block.rows * block.cols);
  for (int64_t row = 0; row < block.rows; ++row)
    element.widen(from.data + row * from.row_step * element.size, to + row * block.cols,
                  block.cols);
}

// Rounds a result that is in a slot to its dtype, for later stages too, and stores it.
void Chain::store(const Stage& stage, bool streams, const Block& block, std::byte* const* operands,
                  float* scratch) const {
  const Element& element = stage.element;
  float* const values = scratch + stage.slot * slot_floats_;
  auto* const narrowed = reinterpret_cast<std::byte*>(scratch + narrow_slot_ * slot_floats_);
  BlockOperand to{narrowed, 1, block.cols};
  if (stage.output >= 0) to = place(stage.output, SourceKind::kFull, block, operands);
  const int64_t rows = to.row_step == block.cols ? 1 : block.rows;
  const int64_t cols = block.rows * block.cols / rows;
  for (int64_t row = 0; row < rows; ++row) {
    float* const from = values + row * cols;
    std::byte* const result = to.data + row * to.row_step * element.size;
    std::byte* rounded = reinterpret_cast<std::byte*>(from);
    if (!element.is_f32()) {
      rounded = streams ? narrowed : result;
      element.narrow(from, rounded, cols);
      if (stage.is_read) element.widen(rounded, from, cols);
    }
    if (streams) stream(rounded, result, cols * element.size);
  }
}

void Chain::run_part(const Block& block, const void* const* functors, std::byte* const* operands,
                     float* scratch, const Reader* reader) const {
  for (const int32_t i : streamed_) {
    prefetch_ahead(place(i, SourceKind::kFull, block, operands).data,
                   block.rows * block.cols * element_bytes(i));
  }
  for (const Source& source : widened_) widen(source, block, operands, scratch);
  for (size_t s = first_; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    if (stage.total.valid()) continue;
    const bool streams = stage.streams && !is_in_place(stage.output, operands);
    const bool stores = stage.slot >= 0 && !stage.samples && (streams || !stage.element.is_f32());
    const StridedData to = stage.streams && !stores
                               ? full(stage.output, block, operands)
                               : data_of(static_cast<int32_t>(s), block, operands, scratch);
    if (stage.row_op.valid()) {
      run_row_op(stage, functors[s], block, operands, scratch, to);
    } else if (stage.dropout) {
      run_dropout(stage, functors[s], block, operands, scratch, to);
    } else {
      run_functor(stage, functors[s], block, operands, scratch, to);
    }
    if (stores) store(stage, streams, block, operands, scratch);
  }
  if (reader == nullptr) return;
  const StridedData read = data_of(reader->stage, block, operands, scratch);
  reader->run(reader->state, block, read.data, read.step);
}

// Returns the rows, or the values for each row, that a stage reads.
Chain::StridedData Chain::rows_of(const Source& source, const Block& block,
                                  std::byte* const* operands, float* scratch) const {
  if (source.kind == SourceKind::kStage) return data_of(source.index, block, operands, scratch);
  if (source.kind == SourceKind::kLabels) return {};
  const BlockOperand p = place(source.index, source.kind, block, operands);
  if (source.slot < 0) return {reinterpret_cast<float*>(p.data), p.row_step};
  float* const widened = scratch + source.slot * slot_floats_;
  return {widened, source.kind == SourceKind::kFull ? block.cols : p.row_step};
}

void Chain::run_dropout(const Stage& stage, const void* seed, const Block& block,
                        std::byte* const* operands, float* scratch, const StridedData& to) const {
  const StridedData from = rows_of(stage.inputs[0], block, operands, scratch);
  for (int64_t row = 0; row < block.rows; ++row) {
    stage.dropout->run(*static_cast<const Seed*>(seed), (block.row + row) * cols_ + block.col,
                       from.data + row * from.step, to.data + row * to.step, block.cols);
  }
}

void Chain::run_row_op(const Stage& stage, const void* labels, const Block& block,
                       std::byte* const* operands, float* scratch, const StridedData& to) const {
  RowOp::Rows inputs[RowOp::kMaxInputs];
  for (int i = 0; i < stage.input_count; ++i) {
    const StridedData rows = rows_of(stage.inputs[i], block, operands, scratch);
    inputs[i] = {rows.data, rows.step};
  }
  const RowOp& op = row_ops_[stage.row_op];
  op.run({static_cast<const ops::Labels*>(labels),
          inputs,
          {to.data, to.step},
          block.row,
          block.rows,
          block.cols});
}

void Chain::finish(const Parameters& parameters, std::byte* const* operands, float* scratch) const {
  for (size_t s = first_; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    if (!stage.total.valid()) continue;
    const StridedData losses = data_of(stage.inputs[0].index, {}, operands, scratch);
    const auto& labels = *static_cast<const ops::Labels*>(parameters.functors_[s]);
    *reinterpret_cast<float*>(operands[stage.output]) =
        totals_[stage.total].run(labels, losses.data);
  }
}

}  // namespace sluice::cpu
