#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/move/strided_copy.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/indexing.h"

namespace sluice::cpu {
namespace {

// Copies parts into an array of which each row consists of a row of each part, or out of it. A task
// has some rows; if there is one row, some bytes of it.
struct Concat {
  explicit Concat(const OpView& op) : joins(&op.def() != &ops::split_def()) {
    const Shape& shape = joins ? op.output(0).shape : op.input(0).shape;
    const int64_t width = size_of(op.input(0).dtype);
    const int64_t axis =
        joins ? op.options<ops::ConcatOptions>().axis : op.options<ops::SplitOptions>().axis;
    const int at = normalize_axis(axis, shape.rank(), op.def().name);
    const ops::AxisSplit split(shape, at);
    rows = split.outer;
    row_bytes = split.extent * split.inner * width;
    int64_t offset = 0;
    for (int i = 0; i < (joins ? op.inputs() : op.outputs()); ++i) {
      const TensorSpec& part = joins ? op.input(i) : op.output(i);
      const int64_t bytes = part.shape[at] * split.inner * width;
      const CopyAxis along{rows, joins ? bytes : row_bytes, joins ? row_bytes : bytes};
      parts.push_back({offset, bytes, StridedCopy({along, {bytes, 1, 1}}, 1)});
      offset += bytes;
    }
    if (rows == 1) {
      per_task = round_up(std::max(kTaskBytes, ceil_div(row_bytes, kMaxTasks)), kLine);
      tasks = std::max<int64_t>(1, ceil_div(row_bytes, per_task));
      // Every task must have a part of each result.
      while (!joins && tasks > 1 && !are_cut_into(tasks)) --tasks;
    } else {
      per_task = std::max<int64_t>(
          {1, ceil_div(kTaskBytes, std::max<int64_t>(1, row_bytes)), ceil_div(rows, kMaxTasks)});
      tasks = std::max<int64_t>(1, ceil_div(rows, per_task));
    }
  }

  static constexpr int64_t kLine = 64;
  struct Piece {
    int64_t offset;  // Offset in a row of the whole.
    int64_t bytes;   // Bytes of a row of the piece.
    StridedCopy copy;
  };

  // Bytes of the piece, in row-major order, that a task copies.
  std::pair<int64_t, int64_t> range(const Piece& piece, int64_t task) const {
    int64_t begin, end;
    if (rows > 1) {
      begin = task * per_task * piece.bytes;
      end = begin + per_task * piece.bytes;
    } else if (joins) {
      begin = task * per_task - piece.offset;
      end = begin + per_task;
    } else {
      begin = task * stride(piece);
      end = begin + stride(piece);
    }
    return {std::max<int64_t>(0, begin), std::min(rows * piece.bytes, end)};
  }
  // Bytes of the piece for each task; 0 if a task may access all of it.
  int64_t stride(const Piece& piece) const {
    if (rows > 1) return per_task * piece.bytes;
    return joins ? 0 : round_up(ceil_div(piece.bytes, tasks), kLine);
  }
  bool are_cut_into(int64_t count) const {
    return std::all_of(parts.begin(), parts.end(), [&](const Piece& piece) {
      return piece.bytes == 0 ||
             round_up(ceil_div(piece.bytes, count), kLine) * (count - 1) < piece.bytes;
    });
  }
  int64_t whole_stride() const { return rows > 1 ? per_task * row_bytes : joins ? per_task : 0; }

  bool joins;
  int64_t rows = 1;
  int64_t row_bytes = 0;
  std::vector<Piece> parts;
  int64_t per_task = 0;
  int64_t tasks = 1;
};

void run_concat(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& c = *static_cast<const Concat*>(state);
  std::byte* const whole = block.operands[c.joins ? c.parts.size() : 0];
  for (size_t i = 0; i < c.parts.size(); ++i) {
    const Concat::Piece& piece = c.parts[i];
    std::byte* const part = block.operands[c.joins ? i : i + 1];
    std::byte* const in_whole = whole + piece.offset;
    const auto [begin, end] = c.range(piece, task);
    piece.copy.run(c.joins ? part : in_whole, c.joins ? in_whole : part, begin, end);
  }
}

KernelChoice choose_concat(const OpView& op) {
  const Concat c(op);
  KernelChoice choice{.tasks = c.tasks};
  if (c.tasks == 1) return choice;
  for (const Concat::Piece& piece : c.parts) choice.task_stride.push_back(c.stride(piece));
  auto& strides = choice.task_stride;
  strides.insert(c.joins ? strides.end() : strides.begin(), c.whole_stride());
  return choice;
}

}  // namespace

CpuKernel concat_kernel() {
  return {"cpu.concat",
          [](const OpView& op) {
            return &op.def() == &ops::concat_def() || &op.def() == &ops::split_def() ||
                   &op.def() == &ops::concat_in_place_def();
          },
          choose_concat,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_concat, std::make_shared<Concat>(op->view())};
          }};
}

}  // namespace sluice::cpu
