#include "sluice/cpu/fused/functor.h"

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "sluice/cpu/simd/conversions.h"
#include "sluice/ops/division_functors.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/extreme_functors.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/trigonometric_functors.h"
#include "sluice/ops/update_functors.h"

namespace sluice::cpu {

// A type-erased functor type of ops/.
struct FunctorRow {
  std::string_view type;
  std::string_view variant;
  int inputs = 0;
  bool predicate = false;
  bool exact = false;
  void (*make)(const double* hypers, void* functor) = nullptr;
  MapFn map = nullptr;  // The map of a registered operator (OpDef::map), else null.
  MapFn (*kernel)(Isa isa) = nullptr;
};

namespace {

constexpr size_t kMaxHypers = kMaxMapHypers;

template <typename F>
FunctorRow row_of() {
  static_assert(sizeof(F) <= Functor::kMaxBytes && std::is_trivially_copyable_v<F>);
  FunctorRow e;
  e.type = F::kType;
  if constexpr (requires { F::kVariant; }) e.variant = F::kVariant;
  e.inputs = internal::inputs_of<F, simd::F1>();
  e.predicate = requires { F::kPredicate; };
  e.exact = requires { F::kExact; };
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
void append(std::vector<FunctorRow>& table, std::type_identity<std::tuple<Fs...>>) {
  (table.push_back(row_of<Fs>()), ...);
}

// Returns the row of an operator with a map (OpDef::map). Rows stay where they are.
const FunctorRow* row_of_map(const OpDef& def) {
  static std::mutex mutex;
  static std::map<const OpDef*, FunctorRow>& rows = *new std::map<const OpDef*, FunctorRow>;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = rows.try_emplace(&def);
  FunctorRow& row = found->second;
  if (is_new) {
    row.type = def.type;
    row.inputs = static_cast<int>(def.inputs.size());
    row.make = [](const double* hypers, void* functor) {
      std::memcpy(functor, hypers, kMaxHypers * sizeof *hypers);
    };
    row.map = def.map;
  }
  return &row;
}

// Returns the option of an op that names the variant of its functor; empty if it has none.
std::string variant_of(const OpView& op) {
  for (const auto& [name, value] : op.attrs().items) {
    if (name == "kind" && std::holds_alternative<std::string>(value))
      return std::get<std::string>(value);
    if (name == "index" && std::holds_alternative<int64_t>(value))
      return std::to_string(std::get<int64_t>(value));
  }
  return {};
}

const FunctorRow* find_functor(const OpView& op) {
  if (op.def().map != nullptr) return row_of_map(op.def());
  static const std::vector<FunctorRow> table = [] {
    std::vector<FunctorRow> t;
    append(t, std::type_identity<ops::functor::ElementwiseFunctors>{});
    append(t, std::type_identity<ops::functor::UpdateFunctors>{});
    append(t, std::type_identity<ops::functor::TrigonometricFunctors>{});
    append(t, std::type_identity<ops::functor::DivisionFunctors>{});
    append(t, std::type_identity<ops::functor::ExtremeFunctors>{});
    return t;
  }();
  const std::string_view type = ops::elementwise::functor_type(op.def().type);
  // The compiler asks often: whether there is a functor, and then for the functor.
  thread_local const FunctorRow* last = nullptr;
  if (last != nullptr && last->type == type) return last;
  for (const FunctorRow& e : table) {
    // This tells most rows apart without a call of memcmp().
    if (e.type.size() != type.size() || e.type.back() != type.back() || e.type != type) continue;
    if (e.variant.empty()) return last = &e;
    if (e.variant == variant_of(op)) return &e;
  }
  return nullptr;
}

// Returns whether f32 represents all values of the dtype.
bool is_read_as_f32(DType dtype) {
  return computes_in_f32(dtype) || dtype == boolean || dtype == u8;
}

double read(DType dtype, const std::byte* element) {
  if (dtype == f32) return static_cast<double>(*reinterpret_cast<const float*>(element));
  const uint16_t bits = *reinterpret_cast<const uint16_t*>(element);
  return static_cast<double>(dtype == f16 ? half_to_float(bits) : bfloat_to_float(bits));
}

}  // namespace

bool Functor::exists(const OpView& op) {
  const FunctorRow* row = find_functor(op);
  if (row == nullptr || op.outputs() != 1) return false;
  const DType result = op.output(0).dtype;
  if (row->predicate ? result != boolean : !computes_in_f32(result)) return false;
  for (int i = 0; i < op.inputs(); ++i) {
    if (!is_read_as_f32(op.input(i).dtype)) return false;
  }
  int hyper_operands = 0;
  const auto hypers = ops::hypers_of(op);
  for (const ops::Hyper& h : hypers) hyper_operands += h.operand >= 0;
  return row->inputs == op.inputs() - hyper_operands && hypers.size() <= kMaxHypers;
}

Functor::Functor(const OpView& op)
    : row_(find_functor(op)),
      kernel_(row_->map != nullptr ? row_->map : row_->kernel(current_isa())),
      hypers_(ops::hypers_of(op)) {
  double values[kMaxHypers] = {};
  for (size_t h = 0; h < hypers_.size(); ++h) {
    values[h] = hypers_[h].value;
    hyper_dtypes_.push_back(hypers_[h].operand < 0 ? f32 : op.input(hypers_[h].operand).dtype);
    hypers_in_memory_ = hypers_in_memory_ || hypers_[h].operand >= 0;
  }
  if (!hypers_in_memory_) row_->make(values, fixed_.bytes);
}

int Functor::inputs() const { return row_->inputs; }
bool Functor::is_exact() const { return row_->exact; }
bool Functor::is(std::string_view type, std::string_view variant) const {
  return row_ != nullptr && row_->type == type && row_->variant == variant;
}
bool Functor::is_copy() const { return is(ops::functor::Cast::kType, {}); }

void Functor::move_operands(std::span<const int32_t> indices) {
  for (ops::Hyper& h : hypers_) {
    if (h.operand >= 0) h.operand = at(indices, h.operand);
  }
}

const void* Functor::make(std::byte* const* operands, Storage& own) const {
  double values[kMaxHypers] = {};
  for (size_t h = 0; h < hypers_.size(); ++h) {
    const ops::Hyper& hyper = hypers_[h];
    values[h] = hyper.operand < 0 ? hyper.value : read(hyper_dtypes_[h], operands[hyper.operand]);
  }
  row_->make(values, own.bytes);
  return own.bytes;
}

}  // namespace sluice::cpu
