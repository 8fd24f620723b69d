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
#include "sluice/base/map_kernel.h"
#include "sluice/ir/op.h"

namespace sluice {

/// The part of an op that its rules see: operand specs and options, but no graph.
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
  const TensorSpec& input(int i) const { return at(inputs_, i); }
  const TensorSpec& output(int i) const { return at(outputs_, i); }

 private:
  const OpDef* def_;
  const Attrs* attrs_;
  std::span<const TensorSpec> inputs_;
  std::span<const TensorSpec> outputs_;
};

/// Operands of a reference kernel. Floating-point operands of any dtype are arrays of the kernel's
/// T (float or double); the caller rounds f16 and bf16 results once. Integers and bool are stored
/// as they are. Arrays are row-major, without padding. An output that aliases an input by the op's
/// definition may have the address of that input.
///
/// The kernel of a collective computes the result of one replica. Its inputs are the operands of
/// all members of the group, in the order of the replicas.
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
    const auto* const data = static_cast<const T*>(at(operands_, i));
    return {data, data + op_.input(i).elements()};
  }
  template <typename T>
  std::span<T> out(int i) const {
    auto* const data = static_cast<T*>(at(operands_, op_.inputs() + i));
    return {data, data + op_.output(i).elements()};
  }
  const Shape& in_shape(int i) const { return op_.input(i).shape; }
  const Shape& out_shape(int i) const { return op_.output(i).shape; }
  DType in_dtype(int i) const { return op_.input(i).dtype; }
  DType out_dtype(int i) const { return op_.output(i).dtype; }
  /// For a collective: the member of the group that gets the result.
  int member() const { return member_; }

 private:
  OpView op_;
  std::span<void* const> operands_;
  int member_;
};

/// Calls `f(E{})` with the element type E that a reference kernel in T sees for `dtype`. E is T for
/// floating point.
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

/// Tools of a gradient rule. Reading `input` or `output` makes autodiff keep that forward tensor.
class GradContext {
 public:
  virtual ~GradContext() = default;
  virtual OpView op() const = 0;
  /// The graph to which the ops of the gradient are added.
  virtual Graph& graph() = 0;
  /// Forward input or output i, as a tensor of the gradient graph.
  virtual Tensor input(int i) = 0;
  virtual Tensor output(int i) = 0;
  /// Gradient of output i; zeros if it has no gradient (has_grad).
  virtual Tensor grad(int i) = 0;
  virtual bool has_grad(int i) const = 0;
  /// Whether the gradient of input i is wanted.
  virtual bool needs(int i) const = 0;
  /// Adds `f(forward inputs, forward outputs)` to the forward graph. Autodiff then keeps the result
  /// of `f` instead of the tensors that `f` reads. Returns the result as a tensor of the gradient
  /// graph.
  virtual Tensor forward(
      const std::function<Tensor(const Tensors& inputs, const Tensors& outputs)>& f) = 0;

  template <typename Options>
  Options options() const {
    return op().options<Options>();
  }
};

/// Traits of operators; combined with |.
enum Trait : uint32_t {
  kElementwise = 1,  ///< Output element i depends on input elements i (after broadcasting) only.
  kView = 2,         ///< The output has the bytes of the input in the same order; may share them.
  kStructural = 4,   ///< Built into the IR (calls, loads, stores); lowered by the compiler itself.
  /// The gradients of all inputs are 0 by definition (comparison, argmax, random numbers, detach).
  /// An operator without this trait and without a gradient rule is refused by autodiff.
  kZeroGradient = 8,
  kCollective = 16,  ///< The replicas of a group run it together, on the operands of all of them.
};

/// One example of an operator for the generated tests: shapes, options, and the domain of its
/// inputs.
struct Sample {
  std::vector<TensorSpec> inputs = {};
  Attrs options = {};                       ///< Options; empty: the defaults of the options struct.
  std::pair<double, double> domain{-2, 2};  ///< Floating-point inputs are uniform in this interval.
  /// Values of inputs that must not be random; may be shorter than `inputs`.
  std::vector<std::optional<HostTensor>> values = {};
  bool gradient = true;     ///< Check the gradient against central differences.
  double tolerance = 1e-5;  ///< Relative, of reference_float against reference_double.
};

/// Inputs that an operator must refuse, and the constraint "(C2)" that its message must name.
struct MustFail {
  std::string constraint = {};
  std::vector<TensorSpec> inputs = {};
  Attrs options = {};
};

struct InputDef {
  std::string name;
  Mode mode = Mode::kRead;
  bool zero_gradient = false;  ///< Whether the gradient of the input is 0 by definition.
};

/// Output `output` shares the storage of input `input` (the result of an updating op, or a `_`
/// view).
struct Alias {
  int output = 0;
  int input = 0;
};

/// Index arithmetic of an operator on i32 and u32 scalars. The compiler computes entries of remote
/// buffers with it.
enum class IndexRule : uint8_t {
  kNone,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kIncrementMod,  ///< (x + increment) mod modulus, by ops::IncrementModOptions.
  kSame,          ///< The value of the operand, perhaps in another dtype.
};

/// Lets an op y = f(x) and its gradient share costly work: w = work(x), y = value(x, w),
/// gradient(x, g) = g·slope(x, w). The bits in f32 do not change.
struct SharedWork {
  const OpDef* work = nullptr;
  const OpDef* value = nullptr;
  const OpDef* slope = nullptr;
  const OpDef* gradient = nullptr;
};

/// One of the ops that replace an op, by the definition of its operator.
using OpStage = OpStageOf<const OpDef*>;

using InferFn = std::vector<TensorSpec> (*)(const OpView& op);
using GradFn = Tensors (*)(GradContext& g);
using FormulaFn = Tensors (*)(const OpView& op, const Tensors& inputs);
using ReferenceFn = void (*)(const KernelArgs& k);

/// A kernel of a registered operator (ops/register_op.h), which workers run in parts. A part is
/// some rows of the results, along axis 0. It computes the bits of the operator's reference in
/// float.
struct HostKernel {
  /// Returns the number of rows of a part, at least 1. It depends only on the op.
  int64_t (*rows)(const OpView& op) = nullptr;
  /// Computes rows [begin, end) of each result, and accesses no other rows of it. The operands are
  /// whole arrays of their dtypes; floating-point operands are f32, those of f16 and bf16 copies in
  /// f32. A scalar is one row. All results must have equally many rows. If results may overwrite an
  /// operand (OpDef::may_coincide), a part reads only its own rows of that
  /// operand.
  void (*run)(const KernelArgs& k, int64_t begin, int64_t end) = nullptr;
};

/// Returns whether an op on this dtype has the bits of its parts. Kernels compute f16 and bf16 in
/// f32 and round results only, so the parts of an op would round more often than the op.
inline bool splits_exactly(DType dtype) { return dtype == f32; }

/// Users of an operator: programs, or only other operators (their gradients, parts and shared
/// work). Front ends show the operators of programs.
enum class Audience : uint8_t { kPrograms, kOperators };

/// Everything about an operator, as data.
struct OpDef {
  std::string type;  ///< Name of the operator's type, "MatMul".
  std::string name;  ///< Name of the C++ function, "matmul".
  std::string doc;   ///< Description of the result, with numbered constraints (C1), (C2), ….
  std::vector<InputDef> inputs;
  bool variadic = false;  ///< The last of `inputs` may occur any number of times, including zero.
  std::vector<std::string> outputs;
  /// Defaults of the options struct; they define the names and types of all fields.
  Attrs options;
  /// Words, contracts and requirements of the options, in their order. May be empty.
  std::vector<FieldInfo> fields;
  Audience audience = Audience::kPrograms;
  uint32_t traits = 0;
  std::vector<Alias> aliases;
  /// (input, output) pairs that may have the same address in a kernel call: the kernel reads
  /// element i before it writes element i.
  std::vector<std::pair<int, int>> may_coincide;
  std::optional<SharedWork> shared_work;
  IndexRule index_rule = IndexRule::kNone;
  /// Ops that replace the op, one after the other, with the same bits if the dtypes of its results
  /// split exactly (splits_exactly). They may be views.
  /// Null, or an empty list, if there is no replacement.
  std::vector<OpStage> (*parts)(const OpView& op) = nullptr;
  InferFn infer = nullptr;
  /// Returns one gradient per input; an empty handle for an input that needs none, that is not
  /// floating point, or whose gradient is 0 by definition or not defined. Returns nothing to have
  /// the formula differentiated. Null if the operator has no gradient rule. Autodiff refuses to
  /// pass a gradient through an operator, or to an input, without one; the error names both.
  GradFn grad = nullptr;
  /// Adds the formula of the op, made of other ops, to the graph of `inputs`; returns the outputs.
  /// Autodiff differentiates the formula of an operator without a gradient rule. It reads
  /// floating-point inputs as the op does, but may round differently. Null if there is no formula.
  FormulaFn formula = nullptr;
  ReferenceFn reference_float = nullptr;
  ReferenceFn reference_double = nullptr;
  /// For an elementwise registered operator (ops/register_op.h): computes the bits of
  /// reference_float on blocks, alone and in fused chains. `functor` points to the values of the
  /// hyperparameters (ops::hypers_of).
  MapFn map = nullptr;
  HostKernel host_kernel = {};   ///< For a registered operator; may be empty.
  double flops_per_element = 0;  ///< Floating-point operations per element of output 0.
  double (*flops)(const OpView& op) = nullptr;  ///< Replaces flops_per_element if it is not null.
  std::vector<Sample> samples;
  std::vector<MustFail> must_fail;

  /// Sets `options` and `fields` from an options struct, whose values are the defaults.
  template <typename Options>
  void set_options(const Options& defaults) {
    options = to_attrs(defaults);
    fields = describe_fields<Options>();
  }

  bool has(Trait t) const { return (traits & t) != 0; }
  Mode input_mode(int i) const;
  /// Whether the gradient of input `i` is 0 by definition: because of kZeroGradient or
  /// InputDef::zero_gradient, or because the op overwrites the input.
  bool zero_gradient(int i) const;
};

}  // namespace sluice
