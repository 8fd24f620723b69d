#include "sluice/cpu/fused/chain_calls.h"

#include <algorithm>
#include <span>
#include <utility>

#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {

void Chain::Calls::move_to(const Block& part) {
  const int64_t last_index = std::exchange(full_index_, chain_.full_index(part));
  // Elements, by Motion.
  const int64_t distance[] = {0, full_index_ - last_index, part.col - part_.col,
                              chain_.row_index(part) - chain_.row_index(part_)};
  const auto move = [&]<typename T>(const Moving<T>& moving) {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    auto* const bytes = reinterpret_cast<Byte*>(*moving.address);
    const int64_t elements = moving.shared != nullptr
                                 ? moving.shared->index(part) - moving.shared->index(part_)
                                 : distance[static_cast<size_t>(moving.motion)];
    *moving.address = reinterpret_cast<T*>(bytes + elements * moving.size);
  };
  for (const auto& address : moving_inputs_) {
    if (address.motion == Motion::kHead)
      *address.address = part.head + (*address.address - part_.head);
    else
      move(address);
  }
  for (const auto& address : moving_outputs_) move(address);
  part_ = part;
}

void Chain::Calls::resolve() {
  resolved_ = true;
  calls_.clear();
  inputs_.clear();
  outputs_.clear();
  moving_inputs_.clear();
  moving_outputs_.clear();
  for (const int32_t i : chain_.streamed_) {
    Call& call = add(Task::kPrefetch, nullptr);
    add_input(call, chain_.elements_of(i, SourceKind::kFull, part_, operands_));
    call.cols = part_.rows * part_.cols * chain_.element_bytes(i);
  }
  for (const Source& source : chain_.widened_) add_widening(source);
  for (size_t s = chain_.first_; s < chain_.stages_.size(); ++s) {
    const auto loop = std::find_if(chain_.loops_.begin(), chain_.loops_.end(),
                                   [&](const LoopStages& l) { return l.first == s; });
    if (loop != chain_.loops_.end() && add_loop(*loop)) {
      s += loop->type->stages.size() - 1;
    } else if (!chain_.stages_[s].total.valid()) {
      add_stage(s);
    }
  }
}

// Widens the elements of an operand that the part reads.
void Chain::Calls::add_widening(const Source& source) {
  Call& call = add(Task::kWiden, nullptr);
  const Elements from = chain_.elements_of(source.index, source.kind, part_, operands_);
  add_input(call, from);
  add_output(call, chain_.in_slot(source.slot, part_, scratch_));
  call.input_bytes = from.row_step * from.size;
  call.widen = chain_.operands_[OperandId(source.index)].element.widen;
  if (from.step == 0 || from.row_step == 0) {
    call.cols = from.step > 0 ? part_.cols : from.row_step > 0 ? part_.rows : 1;
  } else if (from.row_step == part_.cols) {
    call.cols = part_.rows * part_.cols;
  } else {
    set_part(call);
  }
}

void Chain::Calls::join_rows(Call& call) const {
  bool together = true;
  for (int o = 0; o < call.output_count; ++o)
    together = together && call.outputs[o].row_step == part_.cols;
  for (int i = 0; i < call.input_count; ++i) {
    const MapInput& in = call.inputs[i];
    together = together && in.row_step == (in.step == 1 ? part_.cols : 0);
  }
  if (together) call.cols *= std::exchange(call.rows, 1);
}

// Returns whether the loop can compute the part; if not, its stages run one by one.
bool Chain::Calls::add_loop(const LoopStages& loop) {
  const std::span stages(loop.stages, loop.type->stages.size());
  for (const size_t s : stages) {
    const Stage& stage = chain_.stages_[s];
    if (stage.streams && !chain_.is_in_place(stage.output, operands_)) return false;
  }
  Call& call = add(Task::kMap, nullptr);
  call.map = loop.type->kernel;
  call.parameters = parameters_.loops_[&loop - chain_.loops_.data()].bytes;
  set_part(call);
  for (int i = 0; i < loop.type->operands; ++i)
    add_input(call, chain_.values_of(loop.operands[i], part_, operands_, scratch_));
  for (const size_t s : stages) {
    const int32_t output = chain_.stages_[s].output;
    if (output >= 0)
      add_output(call, chain_.elements_of(output, SourceKind::kFull, part_, operands_));
  }
  join_rows(call);
  return true;
}

void Chain::Calls::add_stage(size_t index) {
  const Stage& stage = chain_.stages_[index];
  const bool streams = stage.streams && !chain_.is_in_place(stage.output, operands_);
  const bool rounds =
      !stage.element.is_f32() && !stage.is_exact && (stage.output >= 0 || stage.is_read());
  const bool stores = stage.slot >= 0 && !stage.samples &&
                      (streams || rounds || (!stage.element.is_f32() && stage.output >= 0));
  if (stores && stage.is_copy) {
    // A store can read the operand.
    const Elements from = chain_.values_of(stage.inputs[0], part_, operands_, scratch_);
    if (from.step == 1 && from.row_step > 0)
      return add_store(stage, streams, from, stage.is_read());
  }

  const Elements to =
      stage.streams && !stores
          ? chain_.elements_of(stage.output, SourceKind::kFull, part_, operands_)
          : chain_.result_of(static_cast<int32_t>(index), part_, operands_, scratch_);
  Call& call = add(stage.row_op.valid() ? Task::kRows
                   : stage.dropout      ? Task::kDropout
                                        : Task::kMap,
                   &stage);
  call.parameters = parameters_.functors_[index];
  add_output(call, to);
  set_part(call);
  for (int i = 0; i < stage.input_count; ++i)
    add_input(call, chain_.values_of(stage.inputs[i], part_, operands_, scratch_));
  if (call.task == Task::kMap) {
    call.map = stage.functor.kernel();
    join_rows(call);
  }
  if (stores) add_store(stage, streams, to, stage.is_read() && rounds);
}

// Rounds values to the dtype of a stage's result and stores them, if the result is an operand.
// `writes_values`: later stages read the rounded values where result_of() says.
void Chain::Calls::add_store(const Stage& stage, bool streams, const Elements& values,
                             bool writes_values) {
  Call& call = add(Task::kStore, &stage);
  call.streams = streams;
  add_input(call, values);
  if (writes_values) add_output(call, chain_.in_slot(stage.slot, part_, scratch_));
  set_part(call);
  bool together = values.row_step == part_.cols;
  if (stage.output >= 0) {
    const Elements stored = chain_.elements_of(stage.output, SourceKind::kFull, part_, operands_);
    call.stored = stored.floats();
    set_moving(call.stored, stored);
    call.stored_bytes = stored.row_step * stored.size;
    together = together && stored.row_step == part_.cols;
  }
  if (together) call.cols *= std::exchange(call.rows, 1);
}

void Chain::Calls::run_call(const Call& call) const {
  switch (call.task) {
    case Task::kMap:
      return call.map(call.parameters, call.inputs, call.outputs, call.rows, call.cols);
    case Task::kPrefetch:
      return prefetch_ahead(call.inputs[0].data, call.cols);
    case Task::kWiden: {
      const auto* from = reinterpret_cast<const std::byte*>(call.inputs[0].data);
      for (int64_t row = 0; row < call.rows; ++row) {
        call.widen(from + row * call.input_bytes,
                   call.outputs[0].data + row * call.outputs[0].row_step, call.cols);
      }
      return;
    }
    case Task::kDropout:
      return run_dropout(call);
    case Task::kRows:
      return run_rows(call);
    case Task::kStore:
      return run_store(call);
  }
}

void Chain::Calls::run_dropout(const Call& call) const {
  const auto& [from, step, row_step] = call.inputs[0];
  for (int64_t row = 0; row < call.rows; ++row) {
    call.stage->dropout->run(*static_cast<const Seed*>(call.parameters),
                             (part_.row + row) * chain_.cols_ + part_.col, from + row * row_step,
                             call.outputs[0].data + row * call.outputs[0].row_step, call.cols);
  }
}

void Chain::Calls::run_rows(const Call& call) const {
  RowOp::Rows inputs[RowOp::kMaxInputs];
  for (int i = 0; i < call.input_count; ++i)
    inputs[i] = {const_cast<float*>(call.inputs[i].data), call.inputs[i].row_step};
  const RowOp& op = chain_.row_ops_[call.stage->row_op];
  op.run({static_cast<const ops::Labels*>(call.parameters),
          inputs,
          {call.outputs[0].data, call.outputs[0].row_step},
          part_.row,
          call.rows,
          call.cols});
}

void Chain::Calls::run_store(const Call& call) const {
  const Element& element = call.stage->element;
  for (int64_t row = 0; row < call.rows; ++row) {
    const float* const from = call.inputs[0].data + row * call.inputs[0].row_step;
    float* const values =
        call.output_count > 0 ? call.outputs[0].data + row * call.outputs[0].row_step : nullptr;
    std::byte* const to = reinterpret_cast<std::byte*>(call.stored) + row * call.stored_bytes;
    if (call.stage->output < 0) {
      element.round(from, values, call.cols);
    } else if (!call.streams) {
      element.narrow(from, to, call.cols);
      if (values != nullptr) element.widen(to, values, call.cols);
    } else if (element.is_f32()) {
      stream(reinterpret_cast<const std::byte*>(from), to, call.cols * element.size);
    } else {
      std::byte* const narrowed = chain_.in_slot(chain_.narrow_slot_, part_, scratch_).data;
      element.narrow(from, narrowed, call.cols);
      stream(narrowed, to, call.cols * element.size);
    }
  }
}

}  // namespace sluice::cpu
