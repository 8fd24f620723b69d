#include "sluice/ops/reductions.h"

#include <limits>

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

enum class Extreme { kMax, kMin };

/// Splits the operand into the lanes to search.
AxisSplit argmax_split(const OpView& op) {
  const Shape& shape = op.input(0).shape;
  const auto o = op.options<ArgOptions>();
  if (o.flatten) return AxisSplit(Shape{shape.elements()}, 0);
  return AxisSplit(shape, axis_option(op, o.axis, shape, "(C2)"));
}

std::vector<TensorSpec> infer_argmax(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  require(x.dtype != f64 && x.dtype != i64 && x.dtype != boolean,
          "{} (C1): x must be a number of a device dtype, got {}", name, to_string(x));
  const AxisSplit s = argmax_split(op);
  require((s.extent > 0 || s.lanes() == 0) && s.extent <= std::numeric_limits<int32_t>::max(),
          "{} (C3): the number of elements to search must be in [1, {}], got {}", name,
          std::numeric_limits<int32_t>::max(), s.extent);
  const auto o = op.options<ArgOptions>();
  std::vector<int64_t> dims;
  for (int a = 0; a < x.shape.rank(); ++a) {
    const bool reduced = o.flatten || a == (o.axis < 0 ? o.axis + x.shape.rank() : o.axis);
    if (!reduced || o.keepdims) dims.push_back(reduced ? 1 : x.shape[a]);
  }
  return {{Shape(std::move(dims)), i32, {}}};
}

template <Extreme kind, typename E>
bool better(E candidate, E best) {
  if (best != best) return false;
  if (candidate != candidate) return true;
  return kind == Extreme::kMax ? candidate > best : candidate < best;
}

template <Extreme kind, typename T>
void reference_argmax(const KernelArgs& k) {
  const AxisSplit s = argmax_split(k.op());
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* x = k.in<E>(0).data();
    const auto y = k.out<int32_t>(0);
    for (int64_t l = 0; l < s.lanes(); ++l) {
      const E* lane = x + s.lane(l);
      int64_t best = 0;
      for (int64_t i = 1; i < s.extent; ++i) {
        if (better<kind>(lane[i * s.inner], lane[best * s.inner])) best = i;
      }
      at(y, l) = static_cast<int32_t>(best);
    }
  });
}

template <Extreme kind>
OpDef search(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(doc) +
          " (C1) x is a number of a device dtype. (C2) The axis exists, unless all elements are "
          "searched. (C3) There is at "
          "least one element to choose from and positions fit int32.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(ArgOptions{});
  d.traits = Trait::kZeroGradient;
  d.infer = infer_argmax;
  d.reference_float = reference_argmax<kind, float>;
  d.reference_double = reference_argmax<kind, double>;
  d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
  const auto with = [](int64_t axis, bool flatten, bool keepdims) {
    return to_attrs(ArgOptions{.axis = axis, .flatten = flatten, .keepdims = keepdims});
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  d.samples = {
      {.inputs = {f32_spec({37})}},
      {.inputs = {f32_spec({3, 5})}, .options = with(-1, false, false)},
      {.inputs = {f32_spec({2, 3, 4})}, .options = with(1, false, true)},
      {.inputs = {i32_spec({4, 5})}, .options = with(0, true, false)},
      {.inputs = {f32_spec({2, 2})}, .options = with(0, true, true)},
      {.inputs = {f32_spec({})}, .options = with(0, true, false)},
      {.inputs = {f32_spec({})}},
      {.inputs = {f32_spec({})}, .options = with(-1, false, true)},
      {.inputs = {f32_spec({5})}, .values = {HostTensor::of<float>({5}, f32, {1, 2, nan, 0, nan})}},
      {.inputs = {f32_spec({4})}, .values = {HostTensor::of<float>({4}, f32, {1, 0, 1, 0})}}};
  d.must_fail = {{"(C1)", {{{4}, boolean, {}}}, {}},
                 {"(C2)", {f32_spec({4})}, with(1, false, false)},
                 {"(C2)", {f32_spec({})}, with(1, false, false)},
                 {"(C3)", {f32_spec({0})}, {}}};
  return d;
}

}  // namespace

const OpDef& argmax_def() {
  static const OpDef def = search<Extreme::kMax>(
      "ArgMax", "argmax", "Position of the first largest element; the first NaN if there is one.");
  return def;
}

const OpDef& argmin_def() {
  static const OpDef def = search<Extreme::kMin>(
      "ArgMin", "argmin", "Position of the first smallest element; the first NaN if there is one.");
  return def;
}

Tensor argmax(TensorArg t, const ArgOptions& options) {
  return emit_one(argmax_def(), {t}, options);
}
Tensor argmin(TensorArg t, const ArgOptions& options) {
  return emit_one(argmin_def(), {t}, options);
}

std::vector<const OpDef*> argmax_ops() { return {&argmax_def(), &argmin_def()}; }

}  // namespace sluice::ops
