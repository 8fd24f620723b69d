#include "sluice/ops/softmax.h"

#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/reduce/reduce.h"

namespace sluice::cpu {
namespace {

using Rows1 = void (*)(const float* x, int64_t rows, int64_t n, float* y, Isa isa);
using Rows2 = void (*)(const float* grad, const float* y, int64_t rows, int64_t n, float* dx,
                       Isa isa);

template <Rows1 kRows>
void run1(const void*, const RowOp::RowBlock& p) {
  const Isa isa = current_isa();
  for (int64_t r = 0; r < p.rows; r += p.at_once)
    kRows(p.in(0, r), p.at_once, p.cols, p.out(r), isa);
}

template <Rows2 kRows>
void run2(const void*, const RowOp::RowBlock& p) {
  const Isa isa = current_isa();
  for (int64_t r = 0; r < p.rows; r += p.at_once)
    kRows(p.in(0, r), p.in(1, r), p.at_once, p.cols, p.out(r), isa);
}

bool is_along_last_axis(const OpView& op) {
  const int rank = op.input(0).shape.rank();
  if (rank == 0) return false;
  return normalize_axis(op.options<ops::AxisOptions>().axis, rank, "softmax") == rank - 1;
}

}  // namespace

std::optional<RowOp::Kernel> softmax_row_op(const OpView& op) {
  constexpr auto kRows = RowOp::Operand::kRows;
  const OpDef* const def = &op.def();
  RowOp::Kernel kernel;
  if (def == &ops::softmax_def()) {
    kernel = {.inputs = {kRows}, .run = run1<softmax_rows>};
  } else if (def == &ops::log_softmax_def()) {
    kernel = {.inputs = {kRows}, .run = run1<log_softmax_rows>};
  } else if (def == &ops::softmax_grad_def()) {
    kernel = {.inputs = {kRows, kRows}, .run = run2<softmax_grad_rows>};
  } else if (def == &ops::log_softmax_grad_def()) {
    kernel = {.inputs = {kRows, kRows}, .run = run2<log_softmax_grad_rows>};
  } else {
    return std::nullopt;
  }
  if (!is_along_last_axis(op)) return std::nullopt;
  return kernel;
}

}  // namespace sluice::cpu
