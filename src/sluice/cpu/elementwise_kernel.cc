#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/vector_kernels.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/update_functors.h"

namespace sluice::cpu {
namespace {

constexpr int kMostInputs = 6;
constexpr int kMostHypers = 8;
constexpr size_t kMostFunctorBytes = 64;
constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements =
    4096;  // 16 KiB of each operand: far more work than handing it over costs.
constexpr int64_t kMostRows = 1 << 16;  // Rows whose offsets are worth keeping in a table.

// A functor type of ops/ without its type.
struct FunctorEntry {
  std::string_view type;
  std::string_view variant;
  int inputs = 0;
  void (*make)(const double* hypers, void* functor) = nullptr;
  MapFn (*kernel)(Isa isa) = nullptr;
};

template <typename F>
FunctorEntry entry_of() {
  static_assert(sizeof(F) <= kMostFunctorBytes && std::is_trivially_copyable_v<F>);
  FunctorEntry e;
  e.type = F::kType;
  if constexpr (requires { F::kVariant; }) e.variant = F::kVariant;
  e.inputs = internal::inputs_of<F, simd::F1>();
  e.make = [](const double* hypers, void* functor) {
    if constexpr (requires { F::make(hypers); }) {
      const F f = F::make(hypers);
      std::memcpy(functor, &f, sizeof f);
    } else {
      static_cast<void>(hypers);
      static_cast<void>(functor);
    }
  };
  e.kernel = map_kernel<F>;
  return e;
}

template <typename... Fs>
void append(std::vector<FunctorEntry>& table, std::type_identity<std::tuple<Fs...>>) {
  (table.push_back(entry_of<Fs>()), ...);
}

const FunctorEntry* find_functor(const OpView& op) {
  static const std::vector<FunctorEntry> table = [] {
    std::vector<FunctorEntry> t;
    append(t, std::type_identity<ops::functor::ElementwiseFunctors>{});
    append(t, std::type_identity<ops::functor::UpdateFunctors>{});
    return t;
  }();
  const std::string_view type = ops::elementwise::functor_type(op.def().type);
  std::string_view variant;
  for (const auto& [name, value] : op.attrs().items) {
    if (name == "kind" && std::holds_alternative<std::string>(value))
      variant = std::get<std::string>(value);
  }
  for (const FunctorEntry& e : table) {
    if (e.type == type && (e.variant.empty() || e.variant == variant)) return &e;
  }
  return nullptr;
}

// The output as rows of `inner` elements, so that each input is an array or one value along a row.
struct Rows {
  int64_t outer = 1;
  int64_t inner = 1;
};

bool rows_of(const OpView& op, int inputs, Rows& rows) {
  const Shape& out = op.output(0).shape;
  const auto full_from = [&](const Shape& in, int axis) {  // Equal to the output from `axis` on.
    const int lead = out.rank() - in.rank();
    for (int i = axis; i < out.rank(); ++i) {
      if (i < lead || in[i - lead] != out[i]) return false;
    }
    return true;
  };
  const auto one_from = [&](const Shape& in, int axis) {
    const int lead = out.rank() - in.rank();
    for (int i = std::max(axis, lead); i < out.rank(); ++i) {
      if (in[i - lead] != 1) return false;
    }
    return true;
  };
  int axis = 0;
  const auto fits = [&](int a) {
    for (int i = 0; i < inputs; ++i) {
      if (!full_from(op.input(i).shape, a) && !one_from(op.input(i).shape, a)) return false;
    }
    return true;
  };
  while (axis < out.rank() && !fits(axis)) ++axis;
  for (int i = 0; i < out.rank(); ++i) (i < axis ? rows.outer : rows.inner) *= out[i];
  return rows.outer <= kMostRows;
}

struct Elementwise {
  const FunctorEntry* entry = nullptr;
  MapFn kernel = nullptr;
  alignas(16) std::array<std::byte, kMostFunctorBytes> functor{};
  std::vector<ops::Hyper> hypers;
  bool hypers_in_memory = false;
  Rows rows;
  int inputs = 0;
  int outputs_at = 0;                       // Index of output 0 among the operands.
  std::array<int64_t, kMostInputs> step{};  // 1: array along a row, 0: one value.
  std::vector<std::array<int64_t, kMostInputs>>
      at;                // Offsets by row, in elements; empty if there is one row.
  int64_t per_task = 0;  // Rows, or elements of the only row.
};

int64_t per_task(const Rows& rows) {
  if (rows.outer == 1)
    return round_up(std::max(kTaskElements, ceil_div(rows.inner, kMostTasks)), 16);
  return std::max<int64_t>(
      {1, kTaskElements / std::max<int64_t>(rows.inner, 1), ceil_div(rows.outer, kMostTasks)});
}

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& e = *static_cast<const Elementwise*>(state);
  const void* functor = e.functor.data();
  alignas(16) std::byte own[kMostFunctorBytes];
  if (e.hypers_in_memory) {
    double values[kMostHypers] = {};
    for (size_t h = 0; h < e.hypers.size(); ++h) {
      const ops::Hyper& hyper = e.hypers[h];
      values[h] =
          hyper.operand < 0
              ? hyper.value
              : static_cast<double>(*reinterpret_cast<const float*>(block.operands[hyper.operand]));
    }
    e.entry->make(values, own);
    functor = own;
  }
  MapInput inputs[kMostInputs];
  auto* const out = reinterpret_cast<float*>(block.operands[e.outputs_at]);
  if (e.at.empty()) {
    const int64_t begin = task * e.per_task;
    for (int i = 0; i < e.inputs; ++i) {
      const int64_t step = e.step[static_cast<size_t>(i)];
      inputs[i] = {reinterpret_cast<const float*>(block.operands[i]) + begin * step, step};
    }
    float* outputs[] = {out + begin};
    e.kernel(functor, inputs, outputs, std::min(e.per_task, e.rows.inner - begin));
    return;
  }
  const int64_t end = std::min(e.rows.outer, (task + 1) * e.per_task);
  for (int64_t row = task * e.per_task; row < end; ++row) {
    for (int i = 0; i < e.inputs; ++i) {
      inputs[i] = {reinterpret_cast<const float*>(block.operands[i]) +
                       e.at[static_cast<size_t>(row)][static_cast<size_t>(i)],
                   e.step[static_cast<size_t>(i)]};
    }
    float* outputs[] = {out + row * e.rows.inner};
    e.kernel(functor, inputs, outputs, e.rows.inner);
  }
}

bool supports(const OpView& op) {
  const FunctorEntry* entry = find_functor(op);
  if (entry == nullptr || op.outputs() != 1 || op.output(0).elements() == 0) return false;
  int hyper_operands = 0;
  const auto hypers = ops::hypers_of(op);
  for (const ops::Hyper& h : hypers) hyper_operands += h.operand >= 0;
  if (entry->inputs != op.inputs() - hyper_operands || hypers.size() > kMostHypers) return false;
  for (int i = 0; i < op.inputs(); ++i) {
    if (op.input(i).dtype != f32) return false;
  }
  Rows rows;
  return op.output(0).dtype == f32 && rows_of(op, entry->inputs, rows);
}

KernelChoice choose(const OpView& op) {
  Rows rows;
  const int inputs = find_functor(op)->inputs;
  rows_of(op, inputs, rows);
  KernelChoice choice;
  const int64_t part = per_task(rows);
  choice.tasks = std::max<int64_t>(1, ceil_div(rows.outer == 1 ? rows.inner : rows.outer, part));
  const int64_t bytes = (rows.outer == 1 ? part : part * rows.inner) * 4;
  for (int i = 0; i < op.inputs(); ++i) {
    choice.task_stride.push_back(i < inputs && op.input(i).shape == op.output(0).shape ? bytes : 0);
  }
  choice.task_stride.push_back(bytes);
  return choice;
}

runtime::BoundKernel bind(std::shared_ptr<const OpRecord> op) {
  const OpView view = op->view();
  auto e = std::make_shared<Elementwise>();
  e->entry = find_functor(view);
  e->kernel = e->entry->kernel(current_isa());
  e->inputs = e->entry->inputs;
  e->outputs_at = view.inputs();
  e->hypers = ops::hypers_of(view);
  double values[kMostHypers] = {};
  for (size_t h = 0; h < e->hypers.size(); ++h) {
    values[h] = e->hypers[h].value;
    e->hypers_in_memory = e->hypers_in_memory || e->hypers[h].operand >= 0;
  }
  if (!e->hypers_in_memory) e->entry->make(values, e->functor.data());
  rows_of(view, e->inputs, e->rows);
  e->per_task = per_task(e->rows);
  std::vector<ops::BroadcastIndex> index;
  for (int i = 0; i < e->inputs; ++i) {
    index.emplace_back(view.input(i).shape, view.output(0).shape);
    e->step[static_cast<size_t>(i)] =
        e->rows.inner > 1 && index.back()(1) != index.back()(0) ? 1 : 0;
  }
  if (e->rows.outer > 1) {
    e->at.resize(static_cast<size_t>(e->rows.outer));
    for (int64_t row = 0; row < e->rows.outer; ++row) {
      for (size_t i = 0; i < index.size(); ++i)
        e->at[static_cast<size_t>(row)][i] = index[i](row * e->rows.inner);
    }
  }
  return {run, e, flops_of(view)};
}

}  // namespace

CpuKernel elementwise_kernel() { return {"cpu.elementwise", supports, choose, bind}; }

}  // namespace sluice::cpu
