#include "sluice/ops/basic.h"

#include <algorithm>

#include "sluice/ir/builtin.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_same(const OpView& op) {
  require_device_dtype(op.input(0), op.def().name + " (C1): x");
  return {op.input(0)};
}

template <typename T>
void reference_copy(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
  });
}

Tensors identity_grad(GradContext& g) { return {g.grad(0)}; }

OpDef define_identity(const char* type, const char* name, const char* doc, uint32_t traits) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = fmt::format("{} (C1) x has a dtype that devices have.", doc);
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.traits = kElementwise | kView | traits;
  d.may_coincide = {{0, 0}};
  d.infer = infer_same;
  d.reference_float = reference_copy<float>;
  d.reference_double = reference_copy<double>;
  for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{0, 2}})
    d.samples.push_back({.inputs = {f32_spec(shape)}});
  for (const DType dtype : {f16, i32, boolean})
    d.samples.push_back({.inputs = {{Shape{7}, dtype, {}}}});
  for (Sample& s : d.samples)
    s.gradient = (traits & kZeroGradient) == 0 && is_float(s.inputs[0].dtype);
  d.must_fail = {{"(C1)", {{Shape{2}, i64, {}}}, {}}};
  return d;
}

const OpDef& detach_in_place_def() {
  static const OpDef def = [] {
    OpDef d = define_identity("DetachInplace", "detach_", "x's storage; blocks gradients.",
                              kZeroGradient);
    d.aliases = {{0, 0}};
    return d;
  }();
  return def;
}

Tensor emit_init(Graph& graph, const TensorSpec& spec, builtin::InitOptions options,
                 std::string name) {
  require_device_dtype(spec, "init: the tensor");
  require(can_store(spec.dtype, options.value), "init: value must be {} to be {}, got {}",
          taken_by(spec.dtype), name_of(spec.dtype), options.value);
  options.shape = spec.shape;
  options.dtype = spec.dtype;
  EmitOptions emit_options{.name = std::move(name)};
  emit_options.outputs = {spec};
  return graph.emit(builtin::init(), {}, to_attrs(options), std::move(emit_options))[0];
}

}  // namespace

const OpDef& identity_def() {
  static const OpDef def = [] {
    OpDef d = define_identity("Identity", "identity", "x.", 0);
    d.grad = identity_grad;
    return d;
  }();
  return def;
}

const OpDef& detach_def() {
  static const OpDef def =
      define_identity("Detach", "detach", "x; blocks gradients.", kZeroGradient);
  return def;
}

std::vector<const OpDef*> basic_ops() {
  return {&identity_def(), &detach_def(), &detach_in_place_def()};
}

Tensor identity(TensorArg x, std::string name) {
  return emit(identity_def(), {x}, {}, {.name = std::move(name)})[0];
}
Tensor detach(TensorArg x) { return emit_one(detach_def(), {x}); }
Tensor detach_(TensorArg x) { return emit_one(detach_in_place_def(), {x}); }

Tensor init(Graph& graph, const TensorSpec& spec, InitType type, std::string name) {
  return emit_init(graph, spec, builtin::InitOptions{.undefined = type == InitType::kUndefined},
                   std::move(name));
}
Tensor init(Graph& graph, const TensorSpec& spec, double value, std::string name) {
  return emit_init(graph, spec, builtin::InitOptions{.value = value}, std::move(name));
}

}  // namespace sluice::ops
