#include "sluice/transforms/sweep.h"

#include <algorithm>
#include <unordered_set>

#include "sluice/base/provenance.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"

namespace sluice::transforms {
namespace {

constexpr const char* kPrefix = "Gradient___";

std::string gradient_graph_name(const Graph& forward) {
  const Ir ir = forward.ir();
  const std::string base = forward.name() + "_bwd";
  const auto taken = [&](const std::string& name) {
    for (const GraphId id : ir.graph_ids()) {
      if (ir.graph(id).name() == name) return true;
    }
    return false;
  };
  std::string name = base;
  for (int i = 1; taken(name); ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

// Reports that an op does not pass the gradient that its operand `i` needs.
[[noreturn]] void refuse(const Graph& graph, const Op& op, size_t i) {
  const std::string operand = op.def->inputs[std::min(i, op.def->inputs.size() - 1)].name;
  fail(ErrorKind::kUsage,
       "autodiff of graph {}: {} ({}, {}) has no gradient with respect to its operand {}, and that "
       "of '{}' would pass it; use other operators, or detach('{}') if its gradient must be 0",
       graph.name(), op.def->name, op.label(), op.provenance->line, operand,
       graph.info(op.inputs[i].tensor).name, graph.info(op.inputs[i].tensor).name);
}

std::vector<Value> values_of(const std::vector<GradRequest::Gradient>& requested) {
  std::vector<Value> values;
  for (const auto& p : requested) values.push_back(p.value);
  return values;
}

}  // namespace

Tensor zeros(Graph& graph, const TensorSpec& spec, std::string name) {
  return graph.emit(builtin::init(), {},
                    to_attrs(builtin::InitOptions{.shape = spec.shape, .dtype = spec.dtype}),
                    {.name = std::move(name)})[0];
}

Sweep::Sweep(Graph& forward, const GradRequest& request, const GradGraphs& called,
             const std::set<GraphId>& given, Dependence& dependence)
    : forward_(forward),
      request_(request),
      called_(called),
      given_(given),
      dependence_(dependence),
      gradient_(forward.ir().create_graph_named(gradient_graph_name(forward))),
      kept_(forward, gradient_),
      gradients_(forward),
      active_(dependence.downstream(forward, values_of(request.required))) {}

std::string Sweep::name_of_value(const Value& v) const {
  const Storage& storage = forward_.storage(v.storage);
  const TensorId handle = storage.writers[v.version].handle;
  return forward_.info(handle.valid() ? handle : storage.root).name;
}

void Sweep::add_to(const Value& value, const Tensor& gradient) {
  Tensor& sum = gradients_[value];
  sum = sum.valid() ? ops::add(sum, gradient) : gradient;
}

void Sweep::contribute(TensorId handle, const Value& value, Tensor gradient) {
  SLUICE_CHECK(gradient.shape() == forward_.spec(handle).shape &&
               gradient.dtype() == forward_.spec(handle).dtype);
  // Passes the gradient through the views between the handle and its storage's root.
  for (AliasStep step = alias_step(forward_, handle); step.op != nullptr;
       step = alias_step(forward_, handle)) {
    const Op view = *step.op;
    if (!step.writes) {
      if (view.def->zero_gradient(step.input)) return;
      if (!view.def->has(Trait::kView)) {
        if (view.def->grad == nullptr) refuse(forward_, view, step.input);
        Tensors grads(view.outputs.size());
        at(grads, step.output) = in_shape(gradient, forward_.spec(handle).shape);
        OpGradients context(*this, view, std::move(grads));
        gradient = at(view.def->grad(context), step.input);
        if (!gradient.valid()) return;
      }
    }
    handle = at(view.inputs, step.input).tensor;
    gradient = in_shape(gradient, forward_.spec(handle).shape);
  }
  add_to(value, gradient);
}

Tensor Sweep::gradient_of(const Op& op, size_t output) {
  const Tensor whole = gradients_.at(value_made(forward_, op, output));
  return whole.valid() ? in_shape(whole, forward_.spec(op.outputs[output]).shape) : whole;
}

// A write to a part of a storage keeps the rest. There is no gradient rule for that.
void Sweep::check_partial_writes(const Op& op) {
  for (const Operand& o : op.inputs) {
    if (!o.new_version.valid() || layout_of(forward_, o.tensor) == Layout::kWhole) continue;
    require(!gradients_.at({forward_.info(o.tensor).storage, o.new_version}).valid(),
            "autodiff of graph {}: {} ({}) writes to '{}', a view of a part of another tensor, "
            "which has no gradient",
            forward_.name(), op.label(), op.provenance->line, forward_.info(o.tensor).name);
  }
}

void Sweep::visit(const Op& op) {
  bool any = false;
  for (size_t j = 0; j < op.outputs.size(); ++j) {
    const Value made = value_made(forward_, op, j);
    const AliasStep step = alias_step(forward_, op.outputs[j]);
    if (step.op != nullptr && !step.writes) continue;  // the same value as its operand
    const Tensor g = gradients_.at(made);
    if (!g.valid()) continue;
    any = true;
    const TensorInfo& info = gradient_.info(g);
    if (info.kind == TensorKind::kResult && !info.name.starts_with(kPrefix)) {
      GraphEditor(gradient_).rename(g, kPrefix + name_of_value(made));
    }
  }
  for (const Operand& o : op.inputs) {
    any |= o.new_version.valid() &&
           gradients_.at({forward_.info(o.tensor).storage, o.new_version}).valid();
  }
  bool needed = false;
  for (size_t i = 0; i < op.inputs.size(); ++i) needed |= needs(op, i);
  if (!any || !needed) return;
  GraphEditor::Guise guise(gradient_, op);
  check_partial_writes(op);
  if (op.def == &builtin::loop() && !has_static_trips(op)) return check_while_loop(op);
  pass_references(op);
  if (op.def == &builtin::loop()) return differentiate_repeat(op);
  if (op.def == &builtin::call()) return differentiate_call(op);
  if (op.def == &builtin::branch()) return differentiate_branch(op);
  differentiate_op(op);
}

void Sweep::differentiate_op(const Op& op) {
  Tensors grads;
  for (size_t j = 0; j < op.outputs.size(); ++j) {
    const AliasStep step = alias_step(forward_, op.outputs[j]);
    if (step.op != nullptr && !step.writes) return;
    grads.push_back(gradient_of(op, j));
  }
  if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.valid(); })) return;
  if (op.def->grad == nullptr) return differentiate_formula(op, grads);
  OpGradients context(*this, op, grads);
  const Tensors result = op.def->grad(context);
  if (result.empty()) return differentiate_formula(op, grads);
  SLUICE_CHECK(result.size() == op.inputs.size());
  for (size_t i = 0; i < result.size(); ++i) {
    if (!needs(op, i)) continue;
    if (!result[i].valid()) refuse(forward_, op, i);
    const TensorSpec& want = forward_.spec(op.inputs[i].tensor);
    if (result[i].shape() != want.shape || result[i].dtype() != want.dtype) {
      fail(ErrorKind::kInternal, "gradient of {}: the gradient of operand {} must be {}, got {}",
           op.label(), i, to_string(want), to_string(result[i].spec()));
    }
    contribute(op.inputs[i].tensor, value_read(forward_, op.inputs[i]), result[i]);
  }
}

void Sweep::differentiate_formula(const Op& op, const Tensors& grads) {
  if (op.def->formula == nullptr) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (needs(op, i)) refuse(forward_, op, i);
    }
  }
  const OpGradients context(*this, op, {});
  const OpView view = context.op();
  Ir ir = forward_.ir();
  const GraphEditor::Mark mark = GraphEditor(forward_).mark();
  Graph& formula = ir.create_empty_graph(op.def->name);
  Tensors inputs;
  for (int i = 0; i < view.inputs(); ++i) inputs.push_back(formula.input(view.input(i)));
  formula.set_outputs(op.def->formula(view, inputs));
  GradRequest request;
  request.missing = GradRequest::Missing::kOmit;
  Tensors provided;
  for (size_t j = 0; j < grads.size(); ++j) {
    if (!grads[j].valid()) continue;
    const TensorId t = formula.output_ids()[j];
    request.provided.push_back({t, value_of_output(formula, t)});
    provided.push_back(grads[j]);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorId t = inputs[i].id();
    if (needs(op, i)) request.required.push_back({t, value_of_handle(formula, t)});
  }
  Dependence dependence;
  const GradGraphInfo info = differentiate(formula, request, {}, {}, dependence);
  if (info.expected_outputs().empty()) return GraphEditor::roll_back(ir, mark);  // All are 0.
  Tensors kept;
  for (const Operand& o : op.inputs) kept.push_back(kept_.get(o.tensor, o.version, op));
  const CallSiteInfo call = ops::call_with_info(gradient_, formula, kept);
  const Tensors result = ops::call(gradient_, info.graph(), provided, info.inputs_dict(call));
  for (size_t k = 0; k < result.size(); ++k) {
    const size_t i = position(formula.input_ids(), info.expected_outputs()[k].fwd_tensor);
    contribute(op.inputs[i].tensor, value_read(forward_, op.inputs[i]), result[k]);
  }
}

std::vector<ExpectedConnection> Sweep::make_outputs() {
  std::vector<ExpectedConnection> expected;
  Tensors outputs;
  std::unordered_set<TensorId> taken;
  GraphEditor editor(gradient_);
  for (const auto& [handle, value] : request_.required) {
    Tensor g = gradients_.at(value);
    const TensorSpec& spec = forward_.spec(handle);
    const std::string name = kPrefix + forward_.info(handle).name;
    if (g.valid()) {
      require(layout_of(forward_, handle) == Layout::kWhole,
              "autodiff of graph {}: '{}' is a view of a part of another tensor; require the "
              "gradient of the whole tensor",
              forward_.name(), forward_.info(handle).name);
      g = in_shape(g, spec.shape);
    } else if (request_.missing == GradRequest::Missing::kOmit) {
      continue;
    } else {
      require(request_.missing == GradRequest::Missing::kZeros,
              "autodiff of graph {}: no gradient reaches '{}': no output whose gradient is given "
              "depends on it through operators that pass gradients; to freeze it, leave it out of "
              "grads_required instead of using detach()",
              forward_.name(), forward_.info(handle).name);
      g = zeros(gradient_, spec, name);
    }
    const bool shared =
        gradient_.info(g).kind != TensorKind::kResult || !taken.insert(g.id()).second;
    if (shared && outputs.size() < request_.shared_from) g = ops::identity(g, name);
    if (gradient_.info(g).kind == TensorKind::kResult && !g.name().starts_with(kPrefix))
      editor.rename(g, name);
    outputs.push_back(g);
    expected.push_back({Connection::kFwdGrad, forward_.handle(handle)});
  }
  gradient_.set_outputs(outputs);
  return expected;
}

GradGraphInfo Sweep::run() {
  std::vector<ExpectedConnection> expected_inputs;
  Tensors inputs;
  for (const auto& [handle, value] : request_.provided) {
    inputs.push_back(gradient_.input(forward_.spec(handle), kPrefix + forward_.info(handle).name));
    expected_inputs.push_back({Connection::kFwdGrad, forward_.handle(handle)});
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    contribute(request_.provided[i].handle, request_.provided[i].value, inputs[i]);
  }
  std::vector<OpId> order;
  for (const Op& op : forward_.ops()) order.push_back(op.id);
  for (size_t i = order.size(); i-- > 0;) {
    const Op op = forward_.op(order[i]);  // a copy: gradients may add ops to the graph
    visit(op);
  }
  std::vector<ExpectedConnection> expected_outputs = make_outputs();

  GraphEditor editor(gradient_);
  editor.remove_dead_ops();
  for (const KeptValues::Kept& k : kept_.finish(
           request_.keeps_inside ? KeptValues::Keep::kInside : KeptValues::Keep::kOutputs)) {
    inputs.push_back(k.input);
    expected_inputs.push_back({Connection::kFwd, k.forward});
  }
  editor.set_inputs(inputs);
  editor.compact();
  return {forward_, gradient_, std::move(expected_inputs), std::move(expected_outputs)};
}

GradGraphInfo differentiate(Graph& forward, const GradRequest& request, const GradGraphs& called,
                            const std::set<GraphId>& given, Dependence& dependence) {
  return Sweep(forward, request, called, given, dependence).run();
}

}  // namespace sluice::transforms
