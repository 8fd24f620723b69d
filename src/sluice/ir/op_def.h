#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/attrs.h"
#include "sluice/base/host_tensor.h"
#include "sluice/ir/op.h"

namespace sluice {

/// What an op's rules see of it: operand specs and options, no graph.
class OpView {
 public:
  OpView(const OpDef& def, const Attrs& attrs, std::span<const TensorSpec> inputs,
         std::span<const TensorSpec> outputs = {})
      : def_(&def), attrs_(&attrs), inputs_(inputs), outputs_(outputs) {}

  const OpDef& def() const { return *def_; }
  const Attrs& attrs() const { return *attrs_; }
  template <typename Options>
  Options options() const {
    return from_attrs<Options>(*attrs_);
  }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  const TensorSpec& input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  const TensorSpec& output(int i) const { return outputs_[static_cast<size_t>(i)]; }

 private:
  const OpDef* def_;
  const Attrs* attrs_;
  std::span<const TensorSpec> inputs_;
  std::span<const TensorSpec> outputs_;
};

/// Operands of a reference kernel. Floating-point operands of any dtype are arrays of the kernel's T (float or double;
/// the caller rounds f16 and bf16 results once); integers and bool are stored as they are. Row-major, no padding. An
/// output that aliases an input by the op's definition may be at the same address.
///
/// A collective's kernel computes what one replica gets: its inputs are the operands of all members of the group, in
/// the order of the replicas.
class KernelArgs {
 public:
  KernelArgs(const OpView& op, std::span<void* const> operands, int member = 0)
      : op_(op), operands_(operands), member_(member) {}

  const OpView& op() const { return op_; }
  template <typename Options>
  Options options() const {
    return op_.options<Options>();
  }
  template <typename T>
  std::span<const T> in(int i) const {
    return {static_cast<const T*>(operands_[static_cast<size_t>(i)]),
            static_cast<size_t>(op_.input(i).elements())};
  }
  template <typename T>
  std::span<T> out(int i) const {
    return {static_cast<T*>(operands_[static_cast<size_t>(op_.inputs() + i)]),
            static_cast<size_t>(op_.output(i).elements())};
  }
  const Shape& in_shape(int i) const { return op_.input(i).shape; }
  const Shape& out_shape(int i) const { return op_.output(i).shape; }
  DType in_dtype(int i) const { return op_.input(i).dtype; }
  DType out_dtype(int i) const { return op_.output(i).dtype; }
  /// Of a collective: which member of the group gets the result.
  int member() const { return member_; }

 private:
  OpView op_;
  std::span<void* const> operands_;
  int member_;
};

/// Calls `f(E{})` with the element type that a reference kernel in T sees for `dtype`: T for floating point.
template <typename T, typename F>
decltype(auto) visit_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI32:
      return f(int32_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
    case DType::kI64:
      return f(int64_t{});
    default:
      return f(T{});
  }
}

/// What a gradient rule may use. Reading `input` or `output` makes autodiff keep that forward tensor.
class GradContext {
 public:
  virtual ~GradContext() = default;
  virtual OpView op() const = 0;
  /// The graph that the gradient's ops go to.
  virtual Graph& graph() = 0;
  /// Forward input or output i, as a tensor of the gradient graph.
  virtual Tensor input(int i) = 0;
  virtual Tensor output(int i) = 0;
  /// Gradient of output i; zeros if nothing downstream needed it.
  virtual Tensor grad(int i) = 0;
  virtual bool has_grad(int i) const = 0;
  /// Whether the gradient of input i is wanted.
  virtual bool needs(int i) const = 0;
  /// Adds `f(forward inputs and outputs)` to the forward graph and keeps its result instead of what it reads; returned
  /// as a tensor of the gradient graph.
  virtual Tensor forward(
      const std::function<Tensor(const Tensors& inputs, const Tensors& outputs)>& f) = 0;

  template <typename Options>
  Options options() const {
    return op().options<Options>();
  }
};

/// Traits of operators, or-ed.
enum Trait : uint32_t {
  kElementwise = 1,  ///< Output element i depends on input elements i (after broadcasting) only.
  kView = 2,         ///< The output has the input's bytes in the same order: it may share them.
  kStructural = 4,   ///< Built into the IR (calls, loads, stores); lowered by the compiler itself.
  kNoGradient = 8,   ///< Silently blocks gradients (detach, random, integer results).
  kCommutative = 16,
  kCollective = 32,  ///< Run by the replicas of a group together, on the operands of all.
};

/// One example of an operator: shapes, options, where its inputs are drawn from. Feeds the generated tests.
struct Sample {
  std::vector<TensorSpec> inputs;
  Attrs options;                            ///< Empty: the options struct's defaults.
  std::pair<double, double> domain{-2, 2};  ///< Floating-point inputs are uniform in it.
  std::vector<std::optional<HostTensor>>
      values;               ///< Given values for inputs that must not be random; may be shorter.
  bool gradient = true;     ///< Check the gradient against central differences.
  double tolerance = 1e-5;  ///< Relative, of reference<float> against reference<double>.
};

/// Inputs that an operator must refuse, and the constraint "(C2)" that its message must name.
struct MustFail {
  std::string constraint;
  std::vector<TensorSpec> inputs;
  Attrs options;
};

struct InputDef {
  std::string name;
  Mode mode = Mode::kRead;
};

/// Output `output` lies in the storage of input `input` (an updating op's result, or a `_` view).
struct Alias {
  int output = 0;
  int input = 0;
};

/// Index arithmetic that an operator does on i32 and u32 scalars; the compiler computes entries of remote buffers by it.
enum class IndexRule : uint8_t {
  kNone,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kIncrementMod,  ///< (x + increment) mod modulus, by ops::IncrementModOptions.
  kSame,          ///< The value itself, perhaps in another dtype.
};

/// How an op y = f(x) and its gradient can share what is costly in both: w = work(x), y = value(x, w),
/// gradient(x, g) = g·slope(x, w), with the same bits in f32.
struct SharedWork {
  const OpDef* work = nullptr;
  const OpDef* value = nullptr;
  const OpDef* slope = nullptr;
  const OpDef* gradient = nullptr;
};

/// A stage by the definition of its operator.
using OpStage = OpStageOf<const OpDef*>;

using InferFn = std::vector<TensorSpec> (*)(const OpView& op);
using GradFn = Tensors (*)(GradContext& g);
using ReferenceFn = void (*)(const KernelArgs& k);

/// Everything about an operator, as data.
struct OpDef {
  std::string type;  ///< The reference's name, "MatMul".
  std::string name;  ///< The function's name, "matmul".
  std::string doc;   ///< What it computes, with numbered constraints (C1)….
  std::vector<InputDef> inputs;
  bool variadic = false;  ///< The last of `inputs` may be repeated, also zero times.
  std::vector<std::string> outputs;
  Attrs options;  ///< The options struct's defaults: names and types of all fields.
  uint32_t traits = 0;
  std::vector<Alias> aliases;
  /// (input, output) pairs that may be exactly the same bytes in a kernel call: element i is read before it is written.
  std::vector<std::pair<int, int>> may_coincide;
  std::optional<SharedWork> shared_work;
  IndexRule index_rule = IndexRule::kNone;
  /// Ops that do the same one after the other, with the same bits in f32. Null, or an empty list: none.
  std::vector<OpStage> (*parts)(const OpView& op) = nullptr;
  InferFn infer = nullptr;
  GradFn grad =
      nullptr;  ///< One entry per input, empty handles where there is no gradient. Null: none.
  ReferenceFn reference_float = nullptr;
  ReferenceFn reference_double = nullptr;
  double flops_per_element = 0;                 ///< Per element of output 0.
  double (*flops)(const OpView& op) = nullptr;  ///< Instead, where that is not enough.
  std::vector<Sample> samples;
  std::vector<MustFail> must_fail;

  bool has(Trait t) const { return (traits & t) != 0; }
  Mode input_mode(int i) const;
};

/// Bare specs for samples: f32_spec({2, 3}).
inline TensorSpec f32_spec(Shape shape) { return {std::move(shape), f32, {}}; }
inline TensorSpec i32_spec(Shape shape) { return {std::move(shape), i32, {}}; }

}  // namespace sluice
