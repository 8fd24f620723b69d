#include <algorithm>
#include <optional>

#include "sluice/base/checked.h"
#include "sluice/base/reduce.h"
#include "sluice/cpu/conv/conv_op.h"
#include "sluice/cpu/fused/chain_calls.h"
#include "sluice/cpu/fused/reduce_view.h"
#include "sluice/cpu/gemm/gemm_op.h"
#include "sluice/cpu/gemm/panels.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/layout/layouts.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {
namespace {

// Maximum number of elements that a reduction may fuse with the chain it reads, if that leaves a
// single task.
constexpr int64_t kMaxSerial = 65536;

// Maximum floats of the result of a product that is finished before the chain reads it. They fit in
// the L2 cache.
constexpr int64_t kMaxFinished = 131072;
// Maximum floats of smaller results that the chain reads together. They fit in the L1 cache.
constexpr int64_t kMaxTogether = 4096;

enum class Head { kNone, kProduct, kConv, kWeightGrad };

// The roles of the stages of a fused op: matrix products or a convolution, then a chain, then a
// reduction. The stages of the chain are elementwise or work on rows. Each of the three roles is
// optional. The gradient of a convolution's weight is a stage of its own.
struct Roles {
  Head head = Head::kNone;
  size_t chain_end = 0;  // End of the chain's stages, which begin at chain_begin().
  std::optional<ReduceView> reduction;
  size_t chain_begin() const { return head == Head::kNone ? 0 : 1; }
};

bool is_product(const FusedOp& op);
Head conv_head(const FusedOp& op);

// Returns whether the stage that writes operand `result` updates another operand in its place.
bool updates_operand(const FusedOp& op, int32_t result) {
  return std::any_of(op.stages.begin(), op.stages.end(), [&](const OpStage& stage) {
    if (stage.output != result) return false;
    for (size_t i = 0; i < stage.inputs.size(); ++i) {
      if (stage.inputs[i] >= 0 && stage.op->input_mode(static_cast<int>(i)) == Mode::kUpdate)
        return true;
    }
    return false;
  });
}

Roles roles_of(const FusedOp& op) {
  Roles roles;
  roles.head = is_product(op) ? Head::kProduct : conv_head(op);
  roles.chain_end = op.stages.size();
  if (op.stages.size() == 1) return roles;
  const OpStage& last = op.stages.back();
  const auto inputs = op.input_specs(last);
  const bool of_a_stage = last.inputs.size() == 1 && last.inputs[0] < 0 && last.output >= 0;
  if (of_a_stage && last.spec.dtype == f32 && inputs[0].dtype == f32)
    roles.reduction = reduce_view(view_of(last, inputs));
  if (roles.reduction && (roles.reduction->runs > 1 || roles.reduction->matrices > 1))
    roles.reduction.reset();
  if (roles.reduction) --roles.chain_end;
  return roles;
}

// A fused op with its roles (see Roles), and how it is cut into tasks.
struct Fused {
  explicit Fused(const FusedOp& op) : Fused(op, roles_of(op)) {}
  Fused(const FusedOp& op, const Roles& roles)
      : head(roles.head),
        chain(op, roles.chain_begin(), roles.chain_end),
        reduction(roles.reduction) {
    if (reduction) {
      reduced = ~op.stages.back().inputs[0];
      result = op.stages.back().output;
      if (chain.flat()) view_for_reduction();
    }
    if (head == Head::kProduct) {
      describe_product(op);
    } else if (head == Head::kConv) {
      describe_conv(op);
    } else if (head == Head::kWeightGrad) {
      describe_weight_grad(op);
    } else if (reduction) {
      const int64_t results =
          std::max(ceil_div(reduction->results, kMaxTasks), kTaskElements / reduction->extent);
      if (reduction->columns) {
        cols = round_up(std::max<int64_t>(1, results), 16);
      } else {
        rows = std::max<int64_t>(1, results);
      }
      tasks = ceil_div(reduction->results, std::max(cols, rows));
    } else if (chain.flat()) {
      cols = round_up(std::max(kTaskElements, ceil_div(chain.cols(), kMaxTasks)), 16);
      tasks = ceil_div(chain.cols(), cols);
    } else {
      rows = rows_per_task(chain.rows(), chain.cols());
      tasks = ceil_div(chain.rows(), rows);
    }
    chain_bytes = round_up(chain.scratch_bytes(), 64);
  }

  void view_for_reduction() {
    if (reduction->columns) {
      chain.view_as(reduction->extent, reduction->results);
    } else {
      chain.view_as(reduction->results, reduction->extent);
    }
  }

  // Returns whether the tasks can compute the results block by block. A row stage needs whole rows
  // in each block; a total or a reduction needs all its elements in one task.
  bool can_run(const FusedOp& op) const {
    if (chain.has_total() && tasks > 1) return false;
    if (head == Head::kWeightGrad) return true;
    // The rows of the first stage's blocks must be those of the chain.
    const int axis = chain.channel_axis();
    if (head != Head::kNone && axis >= 0 && axis != 1) return false;
    // A part of the chain ends at the last channel or matrix, so it may lack elements of a column.
    if ((axis >= 0 || chain.has_matrices()) && reduction && reduction->columns) return false;
    if (head == Head::kConv) {
      // A result that is not stored is computed where the chain's last result is, which must not
      // hold an operand that the chain still reads.
      if (op.spec_of(c).dtype != f32) return false;
      if (op.stages.front().output < 0 && updates_operand(op, c)) return false;
      return !reduction && !chain.has_last_axis() && (!conv.interleaves() || op.stages.size() == 1);
    }
    const int64_t block_cols = headed() ? internal::plan_of(products.args).block_cols : cols;
    if (chain.has_rows() && block_cols > 0 && block_cols < chain.cols() && finished == 0)
      return false;
    if (!reduction) return true;
    if (op.spec_of(~reduced).shape != op.stages.front().spec.shape) return false;
    const int64_t extent = reduction->columns ? chain.rows() : chain.cols();
    const bool serial = tasks == 1 && chain.rows() * chain.cols() > kMaxSerial;
    return chain.row_major() && reduction->extent == extent && extent <= kReduceChunk && !serial &&
           (!headed() || (reduction->columns && product_cut.grid.row_blocks == 1 &&
                          product_cut.per_task == products.count));
  }

  // Returns whether a matrix product is the first stage.
  bool headed() const { return head == Head::kProduct; }

  void describe_product(const FusedOp& op) {
    const OpStage& head = op.stages.front();
    const auto& inputs = head.inputs;
    a = inputs[0];
    b = inputs[1];
    c = head.output;
    GemmArgs& args = products.args;
    if (head.op == &ops::matmul_def()) {
      const auto options = from_attrs<ops::MatmulOptions>(head.attrs);
      products = products_of(ops::matmul_shape(op.spec_of(a).shape, op.spec_of(b).shape, options));
      args.b_panel = panel_width(op.layout_of(b));
      // A row-major vector is a row or a column. Panels fix whether B is transposed.
      if (args.b_panel > 0) args.trans_b = options.rhs_transposed;
    } else {
      products = *products_of(from_attrs<ops::StridedMatmulOptions>(head.attrs));
    }
    for (const OpStage& stage : op.stages) {
      if (stage.output >= 0) args.c_panel = panel_width(op.layout_of(stage.output));
    }
    product_cut = cut_products(args, products.count);
    tasks = product_cut.tasks;
    finish_products(op);
    args.scratch_c = c < 0 && finished == 0;
    head_bytes = round_up(gemm_workspace_bytes(args), 64);
    result_offset = head_bytes;
    if (finished > 0 && destination < 0) head_bytes += round_up(finished * args.m * args.n * 4, 64);
  }

  // Decides whether the chain reads finished products. Their rows are one contiguous block, which
  // costs less than a block for each panel, and rows are whole for stages that work on rows.
  void finish_products(const FusedOp& op) {
    if (products.count == 1 || !product_cut.by_products() || !chain.has_stages() || reduction)
      return;
    destination = c >= 0 ? c : last_result(op);
    const int64_t floats = products.args.m * products.args.n;
    if (floats > (destination < 0 ? kMaxTogether : kMaxFinished)) return;
    finished = std::clamp<int64_t>(kMaxTogether / floats, 1, product_cut.per_task);
  }

  // Returns the operand of the chain's last result if products that are not stored may be computed
  // in its memory: no later stage reads them, and it is not an operand. -1: there is none.
  static int32_t last_result(const FusedOp& op) {
    for (size_t s = op.stages.size(); s-- > 1;) {
      const OpStage& stage = op.stages[s];
      if (stage.output >= 0 && stage.spec.shape == op.stages.front().spec.shape)
        return stage.spec.dtype == f32 && !updates_operand(op, stage.output) ? stage.output : -1;
      if (std::find(stage.inputs.begin(), stage.inputs.end(), ~0) != stage.inputs.end()) return -1;
    }
    return -1;
  }

  void describe_conv(const FusedOp& op) {
    const OpStage& stage = op.stages.front();
    const std::vector<TensorSpec> inputs = op.input_specs(stage);
    const ops::ConvSizes sizes = ops::conv_sizes(view_of(stage, inputs));
    const ConvWeightSteps steps = weight_steps(sizes, op.layout_of(stage.inputs[1]));
    conv =
        stage.op == &ops::conv_def() ? plan_conv(sizes, steps) : plan_conv_transpose(sizes, steps);
    a = stage.inputs[0];
    b = stage.inputs[1];
    c = stage.output;
    // The chain of a result that is not stored runs in place of its last result, which no later
    // stage follows.
    for (size_t s = op.stages.size(); c < 0 && s-- > 1;) c = op.stages[s].output;
    cut = cut_conv(conv);
    tasks = cut.tasks;
    const Correlation& correlation = conv.correlations.front();
    chain.view_as(sizes.batch * sizes.groups * correlation.rows, correlation.result_plane);
    head_bytes = round_up(conv_workspace_bytes(conv), 64);
  }

  void describe_weight_grad(const FusedOp& op) {
    const OpStage& stage = op.stages.front();
    const std::vector<TensorSpec> inputs = op.input_specs(stage);
    const ops::ConvSizes sizes = ops::conv_sizes(view_of(stage, inputs));
    a = stage.inputs[0];
    b = stage.inputs[1];
    c = stage.output;
    weight_grad = plan_conv_weight_grad(sizes, weight_steps(sizes, op.layout_of(c)));
    weight_cut = cut_weight_grad(weight_grad);
    tasks = weight_cut.tasks;
    head_bytes = correlate_weights_workspace_bytes(weight_grad, weight_cut.steps);
  }

  // Returns whether a reduced column spans several blocks, so that partial results are kept.
  bool in_parts() const {
    if (!reduction || !reduction->columns) return false;
    // The columns of several matrices are summed matrix by matrix.
    return products.count > 1 ||
           reduction->extent > Chain::rows_at_once(headed() ? internal::kPanel : partial_step());
  }
  // Returns the columns of a task that reduces columns; 1 for a reduction of rows.
  int64_t partial_step() const {
    if (!reduction->columns) return 1;
    return headed() ? product_cut.grid.cols : std::min(cols, reduction->results);
  }
  int64_t workspace_bytes() const {
    const bool partial = reduction && (!reduction->columns || in_parts());
    const int64_t partials =
        partial ? kReduceLanes * partial_step() * static_cast<int64_t>(sizeof(float)) : 0;
    return head_bytes + chain_bytes + partials;
  }

  Head head;
  Chain chain;
  std::optional<ReduceView> reduction;
  int32_t reduced = 0;  // Stage that the reduction reads.
  int32_t result = -1;  // Operand that the reduction writes.
  MatrixProducts products;
  ProductCut product_cut;
  int64_t finished = 0;       // Products that the chain reads together; 0: it runs as an epilogue.
  int32_t destination = -1;   // Operand that holds finished products; -1: the workspace does.
  int64_t result_offset = 0;  // Bytes of workspace before finished products that are not stored.
  ConvPlan conv;
  ConvCut cut;
  WeightCorrelation weight_grad;
  WeightCut weight_cut;
  int32_t a = 0, b = 0, c = -1;  // Operands of the first stage.
  int64_t head_bytes = 0;
  int64_t chain_bytes = 0;
  // Rows or columns of a task if there is no product. 0: that axis is not cut.
  int64_t rows = 0, cols = 0;
  int64_t tasks = 1;
};

// The part of a reduction that one task computes.
struct Reducer {
  const ReduceView& view;
  bool in_parts;
  float* partial;  // kReduceLanes rows of `step` floats.
  int64_t step;
  int64_t first_col;
  float* y;

  static void read(void* state, const Chain::Block& block, const float* data, int64_t row_step) {
    const auto& r = *static_cast<const Reducer*>(state);
    const ReduceView& v = r.view;
    if (v.columns && !r.in_parts) {
      reduce_columns(v.op, data, v.extent, block.cols, row_step, r.y + block.col);
    } else if (v.columns) {
      reduce_more_columns(v.op, data, block.row, block.rows, block.cols, row_step,
                          r.partial + (block.col - r.first_col), r.step);
    } else if (block.cols == v.extent) {
      reduce_rows(v.op, data, block.rows, v.extent, row_step, r.y + block.row);
    } else {
      if (block.col == 0) reduce_begin(v.op, 1, r.partial, 1);
      reduce_more_row(v.op, data, block.cols, r.partial);
      if (block.col + block.cols == v.extent)
        reduce_end(v.op, v.extent, 1, r.partial, 1, r.y + block.row);
    }
  }
};

struct Epilogue {
  const Fused* fused;
  Chain::Calls* calls;
  const Chain::Reader* reader;
  int64_t first_row = 0;  // Row of the results that is row 0 of the product.
};

void run_epilogue(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows,
                  int64_t col, int64_t cols) {
  const auto& e = *static_cast<const Epilogue*>(state);
  e.fused->chain.run({e.first_row + row, rows, col, cols, c, c_stride}, *e.calls, e.reader);
}

// Computes a task of a convolution and of the chain that reads its result.
void run_conv(const Fused& f, const runtime::KernelBlock& block, int64_t task) {
  const Chain::Parameters parameters(f.chain, block.operands);
  auto* const workspace = reinterpret_cast<float*>(block.workspace);
  Chain::Calls calls(f.chain, parameters, block.operands, workspace + f.head_bytes / 4);
  const Epilogue epilogue{&f, &calls, nullptr};
  CorrelationOperands operands{reinterpret_cast<const float*>(block.operands[f.a]),
                               reinterpret_cast<const float*>(block.operands[f.b]),
                               reinterpret_cast<float*>(block.operands[f.c])};
  if (f.chain.has_stages()) operands.epilogue = {run_epilogue, &epilogue};
  run_conv_task(f.conv, f.cut, operands, task, workspace);
}

void run_weight_grad(const Fused& f, const runtime::KernelBlock& block, int64_t task) {
  correlate_weights(f.weight_grad,
                    {reinterpret_cast<const float*>(block.operands[f.a]),
                     reinterpret_cast<const float*>(block.operands[f.b]),
                     reinterpret_cast<float*>(block.operands[f.c])},
                    part_of(f.weight_cut, f.weight_grad, task),
                    reinterpret_cast<float*>(block.workspace));
}

// Computes products [first, end), some at a time, and then the chain on their rows.
void run_finished(const Fused& f, const runtime::KernelBlock& block, int64_t first, int64_t end,
                  Chain::Calls& calls) {
  const int64_t m = f.products.args.m, n = f.products.args.n;
  const auto* const lhs = reinterpret_cast<const float*>(block.operands[f.a]);
  const auto* const rhs = reinterpret_cast<const float*>(block.operands[f.b]);
  for (int64_t p = first; p < end; p += f.finished) {
    const int64_t count = std::min(f.finished, end - p);
    float* const results =
        f.destination < 0 ? reinterpret_cast<float*>(block.workspace + f.result_offset)
                          : reinterpret_cast<float*>(block.operands[f.destination]) + p * m * n;
    for (int64_t i = 0; i < count; ++i) {
      GemmArgs args = f.products.at(p + i, lhs, rhs, nullptr);
      args.c = results + i * m * n;
      gemm(args, 0, m, 0, n, reinterpret_cast<float*>(block.workspace));
    }
    f.chain.run({p * m, count * m, 0, n, results, n}, calls);
  }
}

// Computes a task of matrix products and of the chain that reads their results.
void run_products(const Fused& f, const runtime::KernelBlock& block, int64_t task,
                  Chain::Calls& calls, const Chain::Reader* reader) {
  const ProductCut& cut = f.product_cut;
  const int64_t row = cut.row(task), row_end = std::min(f.products.args.m, row + cut.grid.rows);
  const int64_t col = cut.col(task), col_end = std::min(f.products.args.n, col + cut.grid.cols);
  const int64_t first = cut.first_product(task);
  const int64_t end = std::min(f.products.count, first + cut.per_task);
  if (f.finished > 0) return run_finished(f, block, first, end, calls);
  for (int64_t p = first; p < end; ++p) {
    GemmArgs args =
        f.products.at(p, reinterpret_cast<const float*>(block.operands[f.a]),
                      reinterpret_cast<const float*>(block.operands[f.b]),
                      f.c < 0 ? nullptr : reinterpret_cast<float*>(block.operands[f.c]));
    const Epilogue epilogue{&f, &calls, reader, p * args.m};
    if (f.chain.has_stages() || f.reduction) args.epilogue = {run_epilogue, &epilogue};
    gemm(args, row, row_end, col, col_end, reinterpret_cast<float*>(block.workspace));
  }
}

void run_fused(const void* state, const runtime::KernelBlock& block, int64_t task) {
  if (const Fused& conv = *static_cast<const Fused*>(state); conv.head == Head::kConv)
    return run_conv(conv, block, task);
  if (const Fused& grad = *static_cast<const Fused*>(state); grad.head == Head::kWeightGrad)
    return run_weight_grad(grad, block, task);
  const Fused& f = *static_cast<const Fused*>(state);
  const Chain::Parameters parameters(f.chain, block.operands);
  auto* const scratch = reinterpret_cast<float*>(block.workspace + f.head_bytes);
  Chain::Calls calls(f.chain, parameters, block.operands, scratch);
  const int64_t row = task * f.rows;
  const int64_t col = f.headed() ? f.product_cut.col(task) : task * f.cols;
  const auto part = [](int64_t size, int64_t begin, int64_t cut) {
    return cut > 0 ? std::min(cut, size - begin) : size;
  };
  const int64_t cols = part(f.chain.cols(), col, f.headed() ? f.product_cut.grid.cols : f.cols);

  const ReduceView none;
  const bool in_parts = f.in_parts();
  Reducer reducer{f.reduction ? *f.reduction : none,
                  in_parts,
                  reinterpret_cast<float*>(block.workspace + f.head_bytes + f.chain_bytes),
                  f.reduction ? f.partial_step() : 0,
                  col,
                  f.reduction ? reinterpret_cast<float*>(block.operands[f.result]) : nullptr};
  const Chain::Reader of_reduction{Reducer::read, &reducer, f.reduced};
  const Chain::Reader* const reader = f.reduction ? &of_reduction : nullptr;
  if (in_parts) reduce_begin(f.reduction->op, cols, reducer.partial, reducer.step);

  if (f.headed()) {
    run_products(f, block, task, calls, reader);
  } else {
    f.chain.run({row, part(f.chain.rows(), row, f.rows), col, cols}, calls, reader);
    if (f.chain.streams()) finish_streams();
  }
  if (f.chain.has_total()) f.chain.finish(parameters, block.operands, scratch);
  if (in_parts) {
    reduce_end(f.reduction->op, f.reduction->extent, cols, reducer.partial, reducer.step,
               reducer.y + col);
  }
}

bool is_product(const FusedOp& op) {
  const OpStage& head = op.stages.front();
  const bool strided = head.op != &ops::matmul_def() && ops::is_strided_matmul(*head.op);
  if ((head.op != &ops::matmul_def() && !strided) || head.spec.dtype != f32 ||
      head.spec.elements() == 0)
    return false;
  const TensorSpec& lhs = op.spec_of(head.inputs[0]);
  const TensorSpec& rhs = op.spec_of(head.inputs[1]);
  if (lhs.dtype != f32 || rhs.dtype != f32 || !op.layout_of(head.inputs[0]).is_row_major())
    return false;
  const bool rows = op.layout_of(head.inputs[1]).is_row_major();
  if (!strided)
    return lhs.shape.rank() >= 2 && rhs.shape.rank() >= 2 && (rows || rhs.shape.rank() == 2);
  // The rows of the chain are those of the matrices, one after the other.
  const auto options = from_attrs<ops::StridedMatmulOptions>(head.attrs);
  return rows && head.spec.shape.rank() >= 2 && head.spec.shape.dim(-1) == options.n &&
         has_rows_in_order(options) && products_of(options).has_value();
}

Head conv_head(const FusedOp& op) {
  const OpStage& stage = op.stages.front();
  const bool weight_grad = stage.op == &ops::conv_weight_grad_def();
  if (!weight_grad && stage.op != &ops::conv_def() && stage.op != &ops::conv_transpose_def())
    return Head::kNone;
  if (stage.spec.dtype != f32 || stage.spec.elements() == 0) return Head::kNone;
  if (weight_grad && op.stages.size() > 1) return Head::kNone;
  // Only a weight or its gradient may be in taps.
  const int32_t weight = weight_grad ? stage.output : stage.inputs[1];
  for (int32_t i = 0; i < static_cast<int32_t>(op.operands.size()); ++i) {
    const Layout& layout = op.layout_of(i);
    if (!layout.is_row_major() && (i != weight || layout != in_taps())) return Head::kNone;
  }
  return weight_grad ? Head::kWeightGrad : Head::kConv;
}

// Returns whether gemm() supports the layouts of the op's right operand and result.
bool has_panels(const FusedOp& op) {
  const OpStage& head = op.stages.front();
  for (const Layout& layout : op.layouts) {
    if (layout == in_taps()) return false;
  }
  const int64_t of_rhs = panel_width(op.layout_of(head.inputs[1]));
  int64_t of_result = 0;
  for (const OpStage& stage : op.stages) {
    if (stage.output >= 0) of_result = panel_width(op.layout_of(stage.output));
  }
  for (const int64_t panel : {of_rhs, of_result}) {
    if (panel != 0 && panel != 16 && panel != 32) return false;
  }
  if (of_result != 0 && head.spec.shape.rank() != 2) return false;
  // Columns of the operand are columns of the result, so their panels must be equally wide.
  return of_rhs == of_result || of_rhs == 0 || of_result == 0 ||
         from_attrs<ops::MatmulOptions>(head.attrs).rhs_transposed;
}

}  // namespace

bool fused_kernel_supports(const FusedOp& op) {
  const Roles roles = roles_of(op);
  if (roles.head == Head::kProduct && !has_panels(op)) return false;
  for (size_t s = roles.chain_begin(); s < roles.chain_end; ++s) {
    // Every task reads all of the product's operands, so no stage of the chain may read (and cut)
    // the same operand.
    for (const int32_t i : op.stages[s].inputs) {
      const auto& head = op.stages.front().inputs;
      if (roles.head != Head::kNone && std::find(head.begin(), head.end(), i) != head.end())
        return false;
    }
  }
  return Chain::exists(op, roles.chain_begin(), roles.chain_end) && Fused(op, roles).can_run(op);
}

Layout preferred_fused_layout(const FusedOp& op, int operand) {
  if (conv_head(op) == Head::kConv && operand == op.stages.front().inputs[1] &&
      operand != op.stages.front().inputs[0])
    return in_taps();
  if (!is_product(op) || operand >= op.inputs) return {};
  const auto& head = op.stages.front().inputs;
  if (head[0] == operand || head[1] != operand || op.spec_of(operand).shape.rank() != 2 ||
      op.stages.front().op != &ops::matmul_def())
    return {};
  return in_panels(Panels::width_for(op.spec_of(operand).shape[1]));
}

// Returns how the tasks of a convolution cut operand i. Every task reads the weight as a whole.
Chain::Cut cut_of_conv(const Fused& f, size_t i) {
  if (static_cast<int32_t>(i) == f.b) return {};
  if (static_cast<int32_t>(i) == f.a) return {f.cut.source_stride, 0};
  if (!f.chain.is_full(i)) return {};
  const int64_t bytes = f.chain.element_bytes(i);
  return {f.cut.stride / 4 * bytes, f.cut.pitch / 4 * bytes};
}

KernelChoice choose_fused_kernel(const FusedOp& op) {
  const Fused f(op);
  KernelChoice choice;
  choice.key = "cpu.fused";
  choice.tasks = f.tasks;
  choice.workspace_bytes = f.workspace_bytes();
  choice.may_coincide = f.chain.may_coincide();
  // The first stage's result overwrites the memory of a later one, which must not be an operand.
  const int32_t shared = f.head == Head::kConv ? f.c : f.finished > 0 ? f.destination : -1;
  if (shared >= 0 && op.stages.front().output < 0) {
    std::erase_if(choice.may_coincide, [&](const std::pair<int, int>& pair) {
      return pair.second == shared - op.inputs;
    });
  }
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Chain::Cut cut;
    const bool of_product =
        f.headed() && (static_cast<int32_t>(i) == f.a || static_cast<int32_t>(i) == f.b);
    if (f.tasks == 1) {
      // Nothing is cut.
    } else if (f.head == Head::kConv) {
      cut = cut_of_conv(f, i);
    } else if (f.head == Head::kWeightGrad) {
      if (static_cast<int32_t>(i) == f.c) cut = {f.weight_cut.stride, f.weight_cut.pitch};
    } else if (static_cast<int32_t>(i) == f.result) {
      cut.stride = 4 * (f.headed() ? f.product_cut.grid.cols : std::max(f.rows, f.cols));
    } else if (!of_product && f.headed()) {
      const ProductCut& of_products = f.product_cut;
      cut = of_products.grid.col_blocks > 1 ? f.chain.cut_columns(i, of_products.grid.cols)
            : of_products.by_products()
                ? f.chain.cut_rows(i, of_products.per_task * f.products.args.m)
                : f.chain.cut_rows(i, of_products.grid.rows);
    } else if (!of_product) {
      cut = f.cols > 0 ? f.chain.cut_columns(i, f.cols) : f.chain.cut_rows(i, f.rows);
    }
    choice.task_stride.push_back(cut.stride);
    choice.task_pitch.push_back(cut.pitch);
  }
  return choice;
}

runtime::BoundKernel bind_fused_kernel(const FusedOp& op) {
  auto fused = std::make_shared<Fused>(op);
  fused->chain.find_loops();
  return {run_fused, fused};
}

}  // namespace sluice::cpu
