#include "sluice/cpu/kernels/integers.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/integer_functors.h"

namespace sluice::cpu {
namespace {

// Elements of a block. The compiler makes vectors of loops over arrays of this constant length.
constexpr int64_t kIntegerBlock = 256;

template <typename E>
struct Operand {
  E values[kIntegerBlock];

  void fill(const std::byte* value, int64_t n) {
    E x;
    std::memcpy(&x, value, sizeof x);
    std::fill_n(values, std::min(n, kIntegerBlock), x);
  }
  void load(const std::byte* from, int64_t n) {
    // Whole blocks have a constant length.
    if (n == kIntegerBlock)
      std::memcpy(values, from, sizeof values);
    else
      std::memcpy(values, from, static_cast<size_t>(n) * sizeof(E));
  }
};

// Runs f on blocks of operands of the types In.
template <typename F, typename... In, size_t... I>
void map_blocks(const F& f, const std::byte* const* inputs, const int64_t* steps, std::byte* to,
                int64_t n, std::index_sequence<I...>) {
  using Out = std::invoke_result_t<F, In...>;
  std::tuple<Operand<In>...> operands;
  Out results[kIntegerBlock];
  const auto fill = [&](auto& operand, size_t i) {
    if (steps[i] == 0 && n > 0) operand.fill(inputs[i], n);
  };
  (fill(std::get<I>(operands), I), ...);
  for (int64_t done = 0; done < n; done += kIntegerBlock) {
    const int64_t count = std::min(kIntegerBlock, n - done);
    const auto load = [&](auto& operand, size_t i) {
      constexpr auto kSize = static_cast<int64_t>(sizeof operand.values[0]);
      if (steps[i] != 0) operand.load(inputs[i] + done * kSize, count);
    };
    (load(std::get<I>(operands), I), ...);
    for (int64_t j = 0; j < kIntegerBlock; ++j) results[j] = f(std::get<I>(operands).values[j]...);
    std::byte* const result = to + done * static_cast<int64_t>(sizeof(Out));
    if (count == kIntegerBlock)
      std::memcpy(result, results, sizeof results);
    else
      std::memcpy(result, results, static_cast<size_t>(count) * sizeof(Out));
  }
}

template <typename F, typename... In>
void map_integers(const std::byte* const* inputs, const int64_t* steps, std::byte* to, int64_t n) {
  map_blocks<F, In...>(F{}, inputs, steps, to, n, std::index_sequence_for<In...>());
}

struct Choose {
  template <typename E>
  E operator()(uint8_t condition, E a, E b) const {
    return condition != 0 ? a : b;
  }
};

// Returns the map of F if the op has its type and as many operands.
template <typename F, typename E>
IntegerMap map_of(std::string_view type, int inputs) {
  constexpr bool kUnary = std::is_invocable_v<F, E>;
  if (type != F::kType || inputs != (kUnary ? 1 : 2)) return nullptr;
  if constexpr (kUnary)
    return map_integers<F, E>;
  else
    return map_integers<F, E, E>;
}

template <typename E, typename... F>
IntegerMap find_map(const OpView& op, std::type_identity<std::tuple<F...>>) {
  const std::string_view type = ops::elementwise::functor_type(op.def().type);
  IntegerMap found = nullptr;
  static_cast<void>((((found = map_of<F, E>(type, op.inputs())) != nullptr) || ...));
  return found;
}

template <typename To>
struct ConvertTo {
  template <typename From>
  To operator()(From x) const {
    if constexpr (std::is_same_v<To, bool>)
      return x != From{};
    else
      return static_cast<To>(x);
  }
};

template <typename From>
IntegerMap find_cast(DType to) {
  switch (to) {
    case i32:
      return map_integers<ConvertTo<int32_t>, From>;
    case u32:
      return map_integers<ConvertTo<uint32_t>, From>;
    case u8:
      return map_integers<ConvertTo<uint8_t>, From>;
    case boolean:
      return map_integers<ConvertTo<bool>, From>;
    default:
      return nullptr;
  }
}

template <typename E>
IntegerMap find(const OpView& op) {
  if (&op.def() == &ops::cast_def()) return find_cast<E>(op.output(0).dtype);
  if (&op.def() == &ops::where_def()) return map_integers<Choose, uint8_t, E, E>;
  return find_map<E>(op, std::type_identity<ops::integer::Functors>{});
}

}  // namespace

IntegerMap integer_map(const OpView& op) {
  if (!op.def().has(Trait::kElementwise) || op.inputs() == 0 || op.outputs() != 1) return nullptr;
  switch (op.input(op.inputs() - 1).dtype) {
    case i32:
      return find<int32_t>(op);
    case u32:
      return find<uint32_t>(op);
    case u8:
      return find<uint8_t>(op);
    case boolean:  // A byte, 0 or 1.
      return &op.def() == &ops::cast_def() || &op.def() == &ops::where_def() ? find<uint8_t>(op)
                                                                             : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace sluice::cpu
