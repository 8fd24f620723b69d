#include "sluice/ops/bitwise.h"

#include <type_traits>

#include "sluice/ops/elementwise.h"
#include "sluice/ops/integer_functors.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_bits(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) {
    const DType dtype = op.input(i).dtype;
    require(dtype == i32 || dtype == u32 || dtype == u8,
            "{} (C1): {} must be int32, uint32 or uint8, got {}", op.def().name,
            op.def().inputs[static_cast<size_t>(i)].name, to_string(op.input(i)));
  }
  elementwise::require_one_dtype(op);
  return {elementwise::broadcast_operands(op)};
}

// Runs the formula of one or two operands on integers.
template <int inputs, typename F>
void run_bits(const KernelArgs& k) {
  visit_element<float>(k.in_dtype(0), [&]<typename E>(E) {
    if constexpr (std::is_integral_v<E> && !std::is_same_v<E, bool>)
      elementwise::map<inputs, E, E>(k, F{});
  });
}

template <typename F, int inputs>
OpDef bits(const char* name, const char* doc) {
  OpDef d;
  d.type = F::kType;
  d.name = name;
  d.doc = std::string(doc) + " (C1) int32, uint32 or uint8.";
  d.outputs = {"y"};
  d.traits = kElementwise | kZeroGradient;
  d.infer = infer_bits;
  d.reference_float = run_bits<inputs, F>;
  d.reference_double = run_bits<inputs, F>;
  const TensorSpec bytes{{3, 5}, u8, {}}, words{{17}, u32, {}};
  if constexpr (inputs == 1) {
    d.inputs = {{"x"}};
    d.may_coincide = {{0, 0}};
    d.samples = {{.inputs = {i32_spec({2, 3})}, .domain = {-9, 9}},
                 {.inputs = {words}, .domain = {0, 9}},
                 {.inputs = {bytes}, .domain = {0, 255}}};
    d.must_fail = {{"(C1)", {f32_spec({2})}, {}}};
  } else {
    d.doc += " (C2) Both of one dtype. (C3) Shapes broadcast.";
    d.inputs = {{"lhs"}, {"rhs"}};
    d.may_coincide = {{0, 0}, {1, 0}};
    d.samples = {{.inputs = {i32_spec({2, 1, 3}), i32_spec({4, 3})}, .domain = {-40, 40}},
                 {.inputs = {i32_spec({6}), i32_spec({6})}, .domain = {-9, 9}},
                 {.inputs = {words, words}, .domain = {0, 40}},
                 {.inputs = {bytes, bytes}, .domain = {0, 12}}};
    d.must_fail = {{"(C1)", {f32_spec({2}), f32_spec({2})}, {}},
                   {"(C2)", {words, bytes}, {}},
                   {"(C3)", {i32_spec({2, 3}), i32_spec({2})}, {}}};
  }
  return d;
}

}  // namespace

const OpDef& bitwise_and_def() {
  static const OpDef def = bits<integer::And, 2>("bitwise_and", "Bits that both have.");
  return def;
}
const OpDef& bitwise_or_def() {
  static const OpDef def = bits<integer::Or, 2>("bitwise_or", "Bits that one of both has.");
  return def;
}
const OpDef& bitwise_xor_def() {
  static const OpDef def =
      bits<integer::Xor, 2>("bitwise_xor", "Bits that exactly one of both has.");
  return def;
}
const OpDef& bitwise_not_def() {
  static const OpDef def = bits<integer::Not, 1>("bitwise_not", "All other bits.");
  return def;
}
const OpDef& shift_left_def() {
  static const OpDef def = bits<integer::ShiftLeft, 2>(
      "shift_left", "lhs with its bits moved to the left by rhs places.");
  return def;
}
const OpDef& shift_right_def() {
  static const OpDef def = bits<integer::ShiftRight, 2>(
      "shift_right",
      "lhs with its bits moved to the right by rhs places, and the sign of int32 repeated.");
  return def;
}

std::vector<const OpDef*> bitwise_ops() {
  return {&bitwise_and_def(), &bitwise_or_def(), &bitwise_xor_def(),
          &bitwise_not_def(), &shift_left_def(), &shift_right_def()};
}

Tensor bitwise_and(TensorArg lhs, TensorArg rhs) { return emit_one(bitwise_and_def(), {lhs, rhs}); }
Tensor bitwise_or(TensorArg lhs, TensorArg rhs) { return emit_one(bitwise_or_def(), {lhs, rhs}); }
Tensor bitwise_xor(TensorArg lhs, TensorArg rhs) { return emit_one(bitwise_xor_def(), {lhs, rhs}); }
Tensor bitwise_not(TensorArg x) { return emit_one(bitwise_not_def(), {x}); }
Tensor shift_left(TensorArg lhs, TensorArg rhs) { return emit_one(shift_left_def(), {lhs, rhs}); }
Tensor shift_right(TensorArg lhs, TensorArg rhs) { return emit_one(shift_right_def(), {lhs, rhs}); }

}  // namespace sluice::ops
