#pragma once
#include <set>
#include <string>
#include <vector>

#include "sluice/base/provenance.h"
#include "sluice/ir/op_def.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/transforms/differentiate.h"
#include "sluice/transforms/kept_values.h"

namespace sluice::transforms {

Tensor zeros(Graph& graph, const TensorSpec& spec, std::string name);

/// Differentiates one graph: visits its ops from its outputs to its inputs.
class Sweep {
 public:
  Sweep(Graph& forward, const GradRequest& request, const GradGraphs& called,
        const std::set<GraphId>& given, Dependence& dependence);

  GradGraphInfo run();

 private:
  friend class OpGradients;
  friend class RepeatGradient;

  bool needs(const Operand& operand) const {
    return active_.at(value_read(forward_, operand)) &&
           is_float(forward_.spec(operand.tensor).dtype) && !is_detached(forward_, operand.tensor);
  }
  std::string name_of_value(const Value& v) const;
  void contribute(TensorId handle, const Value& value, Tensor gradient);
  void add_to(const Value& value, const Tensor& gradient);
  /// Returns the gradient of an output, in the output's shape; an empty handle if it does not
  /// exist.
  Tensor gradient_of(const Op& op, size_t output);
  void visit(const Op& op);
  void check_while_loop(const Op& op) const;
  void check_partial_writes(const Op& op);
  void pass_references(const Op& op);
  /// Whether the rule of an op must return a gradient of operand `i`.
  bool needs(const Op& op, size_t i) const {
    return needs(op.inputs[i]) && !op.def->zero_gradient(static_cast<int>(i));
  }
  void differentiate_op(const Op& op);
  /// Differentiates OpDef::formula of an op, in a graph of its own.
  void differentiate_formula(const Op& op, const Tensors& grads);
  void differentiate_call(const Op& op);
  void differentiate_branch(const Op& op);
  void differentiate_repeat(const Op& op);
  /// Returns the arguments of a call of `info`'s gradient graph. The forward graph's operands begin
  /// at operand `first` of `op`.
  Tensors arguments(const Op& op, const GradGraphInfo& info, size_t first);
  void check_complete(const Op& op, const GradGraphInfo& info, size_t first);
  std::vector<ExpectedConnection> make_outputs();

  Graph& forward_;
  const GradRequest& request_;
  const GradGraphs& called_;
  const std::set<GraphId>& given_;
  Dependence& dependence_;
  Graph& gradient_;
  Graph::ProvenanceScope role_{gradient_, {.role = OpRole::kGradient}};
  KeptValues kept_;
  ValueTable<Tensor> gradients_;  ///< Gradients of values, in the shape of the storage's root.
  ValueTable<char> active_;  ///< Whether the value depends on a value whose gradient is required.
};

/// Presents one forward op to its gradient rule.
class OpGradients : public GradContext {
 public:
  OpGradients(Sweep& sweep, const Op& op, Tensors grads)
      : sweep_(sweep), op_(op), grads_(std::move(grads)) {
    for (const Operand& o : op.inputs) in_.push_back(sweep.forward_.spec(o.tensor));
    for (const TensorId t : op.outputs) out_.push_back(sweep.forward_.spec(t));
  }

  OpView op() const override { return {*op_.def, op_.attrs, in_, out_}; }
  Graph& graph() override { return sweep_.gradient_; }
  Tensor input(int i) override {
    const Operand& o = at(op_.inputs, i);
    return sweep_.kept_.get(o.tensor, o.version, op_);
  }
  Tensor output(int i) override {
    return sweep_.kept_.get(at(op_.outputs, i), value_made(sweep_.forward_, op_, i).version, op_);
  }
  Tensor grad(int i) override {
    Tensor& grad = at(grads_, i);
    if (!grad.valid()) grad = zeros(sweep_.gradient_, at(out_, i), "no_gradient");
    return grad;
  }
  bool has_grad(int i) const override { return at(grads_, i).valid(); }
  bool needs(int i) const override { return sweep_.needs(op_, static_cast<size_t>(i)); }
  Tensor forward(const KeptValues::Function& f) override { return sweep_.kept_.compute(op_, f); }

 private:
  Sweep& sweep_;
  const Op& op_;
  Tensors grads_;
  std::vector<TensorSpec> in_;
  std::vector<TensorSpec> out_;
};

}  // namespace sluice::transforms
