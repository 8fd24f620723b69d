#include "sluice/cpu/fused/chain.h"

#include <algorithm>
#include <new>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/cpu/simd/streaming.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/op.h"
#include "sluice/ops/strided_matrices.h"

namespace sluice::cpu {

OpView view_of(const OpStage& stage, const std::vector<TensorSpec>& inputs) {
  return OpView(*stage.op, stage.attrs, inputs, {&stage.spec, 1});
}

namespace {

/// Returns the axis of `space` along which an operand has one value for each element, if it has a
/// single value along the others. Returns -1 if there is none.
int axis_of_channels(const Shape& shape, const Shape& space) {
  const int lead = space.rank() - shape.rank();
  int axis = -1;
  for (int i = 0; lead >= 0 && i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    if (axis >= 0 || shape[i] != space[lead + i]) return -1;
    axis = lead + i;
  }
  return axis;
}

Shape samples_of(const Shape& space) {
  return Shape(std::vector<int64_t>(space.begin(), space.end() - 1));
}

// Returns whether the first stage of a chain's op computes matrix products.
bool is_matmul(const OpStage& stage) {
  return stage.op == &ops::matmul_def() || ops::is_strided_matmul(*stage.op);
}

}  // namespace

bool Chain::classify(const FusedOp& op, const Shape& space, int32_t operand, SourceKind& kind) {
  const Shape& shape = op.spec_of(operand).shape;
  if (shape == space) {
    kind = SourceKind::kFull;
    return true;
  }
  if (shape.elements() == 1) {
    kind = SourceKind::kScalar;
    return true;
  }
  const int rank = shape.rank();
  if (rank == 0 || space.rank() == 0) return false;
  const int64_t cols = space[space.rank() - 1];
  if (shape[rank - 1] == cols && shape.elements() == cols) {
    kind = SourceKind::kColumn;
    return true;
  }
  bool rows = rank == space.rank() && shape[rank - 1] == 1;
  for (int a = 0; rows && a + 1 < rank; ++a) rows = shape[a] == space[a];
  kind = SourceKind::kRow;
  if (rows) return true;
  if (is_matmul(op.stages.front())) {
    kind = SourceKind::kShared;
    return rank <= space.rank() && space.rank() > 2;
  }
  if (shape[rank - 1] != 1) return false;
  kind = SourceKind::kChannel;
  return axis_of_channels(shape, space) >= 0;
}

// Returns whether the operands and the result of a stage on rows have the shapes that `space`
// requires. `space` is the shape of the chain's results and has at least one axis.
bool Chain::has_operands_of(const RowOp& row_op, const FusedOp& op, const OpStage& stage,
                            const Shape& space) {
  const Shape samples = samples_of(space);
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    const int32_t from = stage.inputs[i];
    const TensorSpec& spec = op.spec_of(from);
    switch (row_op.inputs()[i]) {
      case RowOp::Operand::kRows:
        if (spec.shape != space) return false;
        break;
      case RowOp::Operand::kSamples:
        if (spec.shape != samples) return false;
        break;
      case RowOp::Operand::kShared:
        if (from < 0 || spec.dtype != f32) return false;
        break;
      case RowOp::Operand::kLabels:
        if (from < 0) return false;
        break;
    }
  }
  if (row_op.reduces_rows()) return stage.spec.shape == samples && stage.spec.dtype == f32;
  return stage.spec.shape == space;
}

bool Chain::exists(const FusedOp& op, size_t first, size_t end) {
  if (end > kMaxStages || first > end) return false;
  if (first == end) return true;
  const Shape& space = op.stages.front().spec.shape;
  if (space.elements() == 0) return false;
  std::optional<Layout> layout;
  bool flat = true, last_axis = false, row_major = false;
  bool shares = false;
  int channels = -1;  // The axis of values for each channel.
  const auto has_layout = [&](int32_t operand) {
    const Layout& own = op.layout_of(operand);
    if (!layout) layout = own;
    return *layout == own;
  };
  for (size_t s = 0; s < end; ++s) {
    const OpStage& stage = op.stages[s];
    if (stage.spec.shape == space && stage.output >= 0 && !has_layout(stage.output)) return false;
    row_major = row_major || stage.spec.dtype != f32;
    if (s < first && stage.spec.dtype != f32) return false;
    if (s < first) continue;
    const auto specs = op.input_specs(stage);
    const OpView view = view_of(stage, specs);
    if (const auto row_op = RowOp::of(view)) {
      if (space.rank() == 0 || !has_operands_of(*row_op, op, stage, space)) return false;
      flat = false;
      last_axis = true;
      for (size_t i = 0; i < stage.inputs.size(); ++i) {
        const bool rows = row_op->inputs()[i] == RowOp::Operand::kRows;
        if (rows && stage.inputs[i] >= 0 && !has_layout(stage.inputs[i])) return false;
        row_major = row_major || (rows && specs[i].dtype != f32);
      }
      continue;
    }
    if (LossTotal::of(view)) {
      // The losses must be the result of a stage, stored or not. The labels and the total must be
      // operands.
      if (stage.inputs[0] >= 0 || stage.inputs[1] < 0 || stage.output < 0 || space.rank() == 0 ||
          specs[0].shape != samples_of(space))
        return false;
      last_axis = true;
      continue;
    }
    const bool drops = DropoutOp::of(view).has_value();
    if (stage.spec.shape != space ||
        (drops ? !computes_in_f32(stage.spec.dtype) : !Functor::exists(view)))
      return false;
    // The index of an element is its position in a row-major array.
    row_major = row_major || drops;
    const int inputs = drops ? 1 : Functor(view).inputs();
    for (size_t i = 0; i < stage.inputs.size(); ++i) {
      const int32_t from = stage.inputs[i];
      if (std::cmp_greater_equal(
              i,
              inputs)) {  // A hyperparameter or seed must be an operand, read before all blocks.
        if (from < 0) return false;
        continue;
      }
      if (from < 0) {
        if (specs[i].shape != space) return false;
        continue;
      }
      row_major = row_major || specs[i].dtype != f32;
      SourceKind kind;
      if (!classify(op, space, from, kind)) return false;
      if (kind == SourceKind::kFull && !has_layout(from)) return false;
      last_axis = last_axis || kind == SourceKind::kColumn || kind == SourceKind::kRow;
      if (kind == SourceKind::kChannel) {
        const int axis = axis_of_channels(op.spec_of(from).shape, space);
        if (channels >= 0 && axis != channels) return false;
        channels = axis;
      }
      shares = shares || kind == SourceKind::kShared;
      flat = flat && !last_axis && !shares && channels < 0;
    }
  }
  if (channels >= 0 && last_axis) return false;
  if (!layout || layout->is_row_major()) return true;
  return flat && !row_major && may_have(f32_spec(space), *layout);
}

Chain::Chain(const FusedOp& op, size_t first, size_t end)
    : first_(first), operands_(op.operands.size()) {
  const bool headed = first > 0;
  const Shape& space = op.stages.front().spec.shape;
  std::vector<size_t> last_read(op.stages.size(), 0);
  for (size_t s = first; s < op.stages.size(); ++s) {
    for (const int32_t from : op.stages[s].inputs) {
      if (from < 0) at(last_read, ~from) = s;
    }
  }
  std::vector<int32_t> free;
  Ids<OperandId, bool> known(op.operands.size(), false);
  stages_.resize(end);
  for (size_t s = 0; s < end; ++s) {
    const OpStage& stage = op.stages[s];
    Stage& own = stages_[s];
    own.output = stage.output;
    own.last_read = last_read[s];
    if (s >= first) take_inputs(op, stage, own);
    for (int i = 0; i < own.input_count; ++i) {
      const Source& source = own.inputs[i];
      if (source.kind == SourceKind::kStage) continue;
      const OperandId operand(source.index);
      // An operand that is read in two ways is not cut: every task may read all of it.
      Operand& read = operands_[operand];
      const bool whole = known[operand] && read.kind != source.kind;
      read.kind = whole ? SourceKind::kScalar : source.kind;
      known[operand] = true;
    }
    if (stage.output >= 0 && !own.total.valid()) {
      operands_[OperandId(stage.output)] = {own.samples ? SourceKind::kRow : SourceKind::kFull,
                                            element_of(stage.spec.dtype)};
      if (!own.samples) set_layout(op.layout_of(stage.output));
    }
    if (s < first) continue;
    // A result that is not an output uses a slot that no later stage reads. It may use the slot of
    // an input of this stage.
    for (size_t t = first; t < s; ++t) {
      const Stage& other = stages_[t];
      if (other.slot >= 0 && !other.samples && last_read[t] == s) free.push_back(other.slot);
    }
    // f32 represents both values of bool, so only a stored result is converted.
    if (own.output >= 0 || stage.spec.dtype != boolean) own.element = element_of(stage.spec.dtype);
    if (own.output >= 0 && own.element.is_f32()) continue;
    if (own.samples) {
      own.slot = sample_slots_++;
    } else if (free.empty()) {
      own.slot = slots_++;
    } else {
      own.slot = free.back();
      free.pop_back();
    }
  }
  flat_ = flat_ && !headed;
  cols_ = space.rank() == 0 ? 1 : space[space.rank() - 1];
  if (channel_axis_ >= 0) {
    channels_ = unit_rows_ = space[channel_axis_];
    cols_ = 1;
    for (int a = channel_axis_ + 1; a < space.rank(); ++a) cols_ *= space[a];
  }
  rows_ = space.elements() / cols_;
  matrix_rows_ = rows_;
  slot_floats_ = std::min(kBlock, rows_ * round_up(cols_, 32));
  if (has_rows()) slot_floats_ = std::max(slot_floats_, round_up(cols_, 16));
  if (flat_) {
    cols_ = panel_ == 0 ? space.elements() : rows_ * round_up(cols_, panel_);
    rows_ = 1;
  }
  find_coinciding(op);
  if (!headed && !has_rows()) find_streamed(op);
}

void Chain::find_loops() {
  for (size_t s = first_; s < stages_.size(); ++s) {
    for (const LoopType& type : loop_types()) {
      LoopStages loop;
      loop.first = s;
      loop.type = &type;
      if (!match(loop)) continue;
      loops_.push_back(loop);
      s += type.stages.size() - 1;
      break;
    }
  }
  one_loop_ = loops_.size() == 1 && loops_[0].type->stages.size() == stages_.size() &&
              widened_.empty() && !streams_;
}

// Returns whether a loop can compute the stages from `loop.first` on, in whatever order they are;
// then sets the stages and operands of the loop.
bool Chain::match(LoopStages& loop) const {
  const size_t end = loop.first + loop.type->stages.size();
  if (end > stages_.size()) return false;
  bool known[kMaxMapInputs] = {};
  const auto is_stage = [&](size_t s, const LoopType::Stage& wanted) {
    const Stage& stage = stages_[s];
    if (!stage.functor.is(wanted.type, wanted.variant) || !stage.element.is_f32()) return false;
    if (wanted.stored != (stage.output >= 0) || (!wanted.stored && stage.last_read >= end))
      return false;
    for (int i = 0; i < stage.input_count; ++i) {
      const Source& source = stage.inputs[i];
      const int from = at(wanted.inputs, i);
      const bool is_result =
          source.kind == SourceKind::kStage && std::cmp_greater_equal(source.index, loop.first);
      if (from < 0 ? !is_result || std::cmp_not_equal(source.index, loop.stages[~from])
                   : is_result || (known[from] && (loop.operands[from].kind != source.kind ||
                                                   loop.operands[from].index != source.index)))
        return false;
    }
    return true;
  };
  for (size_t k = 0; k < loop.type->stages.size(); ++k) {
    const LoopType::Stage& wanted = loop.type->stages[k];
    size_t s = loop.first;
    const auto is_used = [&] {
      return std::find(loop.stages, loop.stages + k, s) != loop.stages + k;
    };
    while (s < end && (is_used() || !is_stage(s, wanted))) ++s;
    if (s == end) return false;
    loop.stages[k] = s;
    for (int i = 0; i < stages_[s].input_count; ++i) {
      if (const int from = at(wanted.inputs, i); from >= 0) {
        loop.operands[from] = stages_[s].inputs[i];
        known[from] = true;
      }
    }
  }
  return true;
}

void Chain::take_inputs(const FusedOp& op, const OpStage& stage, Stage& own) {
  const auto specs = op.input_specs(stage);
  const OpView view = view_of(stage, specs);
  const Shape& space = op.stages.front().spec.shape;
  const auto total = LossTotal::of(view);
  const auto row_op = RowOp::of(view);
  if (total || row_op) {
    if (total) {
      own.total = totals_.push_back(*total);
    } else {
      own.row_op = row_ops_.push_back(*row_op);
      own.samples = row_op->reduces_rows();
    }
    flat_ = false;
    last_axis_ = true;
    own.input_count = static_cast<int>(stage.inputs.size());
  } else if ((own.dropout = DropoutOp::of(view))) {
    own.seed = stage.inputs[1];
    own.input_count = 1;
  } else {
    own.functor = Functor(view);
    own.functor.move_operands(stage.inputs);
    own.input_count = own.functor.inputs();
    own.is_copy = own.functor.is_copy();
    own.is_exact = stage.spec.dtype == boolean || own.functor.is_exact();
    for (int i = 0; i < own.input_count && stage.spec.dtype != boolean; ++i) {
      const DType dtype = specs[static_cast<size_t>(i)].dtype;
      // A stored bf16 may be a signaling NaN, which rounding makes quiet.
      const bool same = dtype == stage.spec.dtype && (dtype != bf16 || at(stage.inputs, i) < 0);
      own.is_exact = own.is_exact && (same || dtype == boolean || dtype == u8);
    }
  }
  for (int i = 0; i < own.input_count; ++i) {
    const int32_t from = at(stage.inputs, i);
    Source& source = own.inputs[i];
    if (from < 0) {
      source = {SourceKind::kStage, ~from};
      continue;
    }
    source.index = from;
    if (total) {
      source.kind = SourceKind::kLabels;
    } else if (row_op) {
      static constexpr SourceKind kKinds[] = {SourceKind::kFull, SourceKind::kRow,
                                              SourceKind::kScalar, SourceKind::kLabels};
      source.kind = kKinds[static_cast<int>(at(row_op->inputs(), i))];
    } else {
      classify(op, space, from, source.kind);
    }
    if (source.kind != SourceKind::kLabels && specs[static_cast<size_t>(i)].dtype != f32) {
      operands_[OperandId(from)].element = element_of(specs[static_cast<size_t>(i)].dtype);
      source.slot = widened_slot(source);
    }
    if (source.kind == SourceKind::kFull) set_layout(op.layout_of(from));
    if (source.kind == SourceKind::kShared) share(op, from);
    last_axis_ =
        last_axis_ || source.kind == SourceKind::kColumn || source.kind == SourceKind::kRow;
    if (source.kind == SourceKind::kChannel)
      channel_axis_ = axis_of_channels(op.spec_of(from).shape, space);
    flat_ = flat_ && !last_axis_ && channel_axis_ < 0 && shared_.empty();
  }
}

// Describes how an operand is broadcast to the matrices of the results.
void Chain::share(const FusedOp& op, int32_t operand) {
  Operand& own = operands_[OperandId(operand)];
  if (own.shared.valid()) return;
  const Shape& space = op.stages.front().spec.shape;
  std::vector<int64_t> dims(static_cast<size_t>(space.rank()), 1);
  const Shape& shape = op.spec_of(operand).shape;
  std::copy(shape.begin(), shape.end(), dims.end() - shape.rank());
  const auto matrices = [](auto begin, auto end) {
    return Shape(std::vector<int64_t>(begin, end - 2));
  };
  const int64_t rows = dims[dims.size() - 2], cols = dims.back();
  Shared shared;
  shared.matrix_rows = unit_rows_ = space.dim(-2);
  shared.row_step = rows > 1 ? cols : 0;
  shared.col_step = cols > 1 ? 1 : 0;
  const Shape batch = matrices(space.begin(), space.end());
  const ops::BroadcastIndex index(matrices(dims.begin(), dims.end()), batch);
  for (int64_t m = 0; m < batch.elements(); ++m) shared.offsets.push_back(index(m) * rows * cols);
  own.shared = shared_.push_back(std::move(shared));
}

// Returns the slot of a widened operand. All stages that read it in the same way share the slot.
int32_t Chain::widened_slot(const Source& source) {
  for (const Source& known : widened_) {
    if (known.index == source.index && known.kind == source.kind) return known.slot;
  }
  widened_.push_back(source);
  return widened_.back().slot = slots_++;
}

void Chain::set_layout(const Layout& layout) {
  panel_ = panel_width(layout);
  row_major_ = layout.is_row_major();
}

void Chain::view_as(int64_t rows, int64_t cols) {
  rows_ = rows;
  cols_ = cols;
  slot_floats_ = std::max(slot_floats_, std::min(kBlock, rows * round_up(cols, 32)));
  flat_ = false;
}

void Chain::find_coinciding(const FusedOp& op) {
  for (int in = 0; in < op.inputs; ++in) {
    if (!is_full(in)) continue;
    int last = -1;
    bool by_head = false;
    for (size_t s = 0; s < op.stages.size(); ++s) {
      for (const int32_t from : op.stages[s].inputs) {
        if (from != in) continue;
        last = static_cast<int>(s);
        by_head = by_head || s < first_;
      }
    }
    for (size_t s = first_; s < stages_.size() && !by_head; ++s) {
      const int32_t output = op.stages[s].output;
      if (output >= 0 && is_full(output) && element_bytes(output) == element_bytes(in) &&
          last <= static_cast<int>(s))
        may_coincide_.emplace_back(in, op.stages[s].output - op.inputs);
    }
  }
}

// Chooses the results that are written with streaming stores. A result that a later stage or a
// reduction reads is stored normally.
void Chain::find_streamed(const FusedOp& op) {
  double flops = 0;
  for (const OpStage& stage : op.stages) flops += stage.op->flops_per_element;
  const auto is_large = [&](int32_t operand) {
    return is_full(operand) && is_streamed(op.spec_of(operand).bytes(), flops);
  };
  for (size_t s = first_; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    if (stage.output < 0 || stage.is_read() || !is_large(stage.output)) continue;
    if (stage.slot < 0) stage.slot = slots_++;
    if (!stage.element.is_f32() && narrow_slot_ < 0) narrow_slot_ = slots_++;
    stage.streams = streams_ = true;
  }
  for (int32_t i = 0; streams_ && i < op.inputs; ++i) {
    if (is_large(i)) streamed_.push_back(i);
  }
}

int64_t Chain::scratch_bytes() const {
  return (slots_ * slot_floats_ + sample_slots_ * rows_) * static_cast<int64_t>(sizeof(float));
}

Chain::Cut Chain::cut_columns(int32_t operand, int64_t cols) const {
  const auto& [kind, element, shared] = operands_[OperandId(operand)];
  const int64_t bytes = cols * element.size;
  if (kind == SourceKind::kColumn) return {bytes, 0};
  if (kind != SourceKind::kFull) return {};
  if (flat_) return {bytes, 0};
  if (panel_ > 0) return {bytes * matrix_rows_, 0};
  return {bytes, cols_ * element.size};
}

Chain::Cut Chain::cut_rows(int32_t operand, int64_t rows) const {
  const auto& [kind, element, shared] = operands_[OperandId(operand)];
  const int64_t bytes = rows * element.size;
  if (kind == SourceKind::kRow) return {bytes, 0};
  if (kind != SourceKind::kFull) return {};
  return {bytes * (panel_ > 0 ? panel_ : cols_), 0};
}

}  // namespace sluice::cpu
