#include "sluice/transforms/differentiate.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "sluice/ir/builtin.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/reshape.h"
#include "sluice/transforms/kept_values.h"

namespace sluice::transforms {
namespace {

constexpr const char* kPrefix = "Gradient___";

Tensor in_shape(const Tensor& t, const Shape& shape) {
  return t.shape() == shape ? t : ops::reshape(t, shape);
}

Tensor zeros(Graph& graph, const TensorSpec& spec, std::string name) {
  return graph.emit(builtin::init(), {},
                    to_attrs(builtin::InitOptions{.shape = spec.shape, .dtype = spec.dtype}),
                    {.name = std::move(name)})[0];
}

std::string gradient_graph_name(const Graph& forward) {
  const Ir ir = forward.ir();
  const std::string base = forward.name() + "_bwd";
  const auto taken = [&](const std::string& name) {
    for (GraphId id = 0; id < ir.graph_count(); ++id) {
      if (ir.graph(id).name() == name) return true;
    }
    return false;
  };
  std::string name = base;
  for (int i = 1; taken(name); ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

size_t position(const std::vector<TensorId>& ids, const Tensor& t) {
  return static_cast<size_t>(std::find(ids.begin(), ids.end(), t.id()) - ids.begin());
}

/// The sweep over one graph, from its results to its inputs.
class Sweep {
 public:
  Sweep(Graph& forward, const GradRequest& request, const GradGraphs& called,
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

  GradGraphInfo run();

 private:
  friend class OpGradients;

  /// Results of an op that have a gradient.
  struct Made {
    bool any = false;
    std::vector<bool> outputs;
  };

  static std::vector<Value> values_of(const std::vector<GradRequest::Place>& places) {
    std::vector<Value> values;
    for (const auto& p : places) values.push_back(p.value);
    return values;
  }

  bool needs(const Operand& operand) const {
    return active_.at(value_read(forward_, operand)) &&
           is_float(forward_.spec(operand.tensor).dtype) && !is_detached(forward_, operand.tensor);
  }
  std::string name_of_value(const Value& v) const;
  void contribute(TensorId handle, const Value& value, Tensor gradient);
  void add_to(const Value& value, const Tensor& gradient);
  /// The gradient of an output in the output's shape; an empty handle if there is none.
  Tensor gradient_of(const Op& op, size_t output);
  void visit(const Op& op);
  void check_repeat(const Op& op) const;
  void check_partial_writes(const Op& op);
  void pass_references(const Op& op);
  void differentiate_op(const Op& op);
  void differentiate_call(const Op& op);
  void differentiate_branch(const Op& op);
  /// Arguments of a gradient graph for a forward graph whose operands start at `first`.
  Tensors arguments(const Op& op, const GradGraphInfo& info, size_t first);
  void check_complete(const Op& op, const GradGraphInfo& info, size_t first);
  std::vector<ExpectedConnection> make_outputs();

  Graph& forward_;
  const GradRequest& request_;
  const GradGraphs& called_;
  const std::set<GraphId>& given_;
  Dependence& dependence_;
  Graph& gradient_;
  KeptValues kept_;
  ValueTable<Tensor> gradients_;  ///< In the shape of the storage's root.
  ValueTable<char> active_;       ///< Depends on something whose gradient is required.
};

/// What a gradient rule sees of one forward op.
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
    const Operand& o = op_.inputs[static_cast<size_t>(i)];
    return sweep_.kept_.get(o.tensor, o.version, op_);
  }
  Tensor output(int i) override {
    const auto j = static_cast<size_t>(i);
    return sweep_.kept_.get(op_.outputs[j], value_made(sweep_.forward_, op_, j).version, op_);
  }
  Tensor grad(int i) override {
    const auto j = static_cast<size_t>(i);
    if (!grads_[j].valid()) grads_[j] = zeros(sweep_.gradient_, out_[j], "no_gradient");
    return grads_[j];
  }
  bool has_grad(int i) const override { return grads_[static_cast<size_t>(i)].valid(); }
  bool needs(int i) const override { return sweep_.needs(op_.inputs[static_cast<size_t>(i)]); }
  Tensor forward(const KeptValues::Function& f) override { return sweep_.kept_.compute(op_, f); }

 private:
  Sweep& sweep_;
  const Op& op_;
  Tensors grads_;
  std::vector<TensorSpec> in_;
  std::vector<TensorSpec> out_;
};

std::string Sweep::name_of_value(const Value& v) const {
  const Storage& storage = forward_.storage(v.storage);
  const TensorId handle = storage.writers[static_cast<size_t>(v.version)].handle;
  return forward_.info(handle >= 0 ? handle : storage.root).name;
}

void Sweep::add_to(const Value& value, const Tensor& gradient) {
  Tensor& sum = gradients_[value];
  sum = sum.valid() ? ops::add(sum, gradient) : gradient;
}

void Sweep::contribute(TensorId handle, const Value& value, Tensor gradient) {
  SLUICE_CHECK(gradient.shape() == forward_.spec(handle).shape &&
               gradient.dtype() == forward_.spec(handle).dtype);
  // Back through the views between the handle and its storage's root.
  for (AliasStep step = alias_step(forward_, handle); step.op != nullptr;
       step = alias_step(forward_, handle)) {
    const Op view = *step.op;
    if (!step.writes) {
      if (!has_gradient(*view.def)) return;
      if (!view.def->has(Trait::kView)) {
        Tensors grads(view.outputs.size());
        grads[step.output] = in_shape(gradient, forward_.spec(handle).shape);
        OpGradients context(*this, view, std::move(grads));
        gradient = view.def->grad(context)[step.input];
        if (!gradient.valid()) return;
      }
    }
    handle = view.inputs[step.input].tensor;
    gradient = in_shape(gradient, forward_.spec(handle).shape);
  }
  add_to(value, gradient);
}

Tensor Sweep::gradient_of(const Op& op, size_t output) {
  const Tensor whole = gradients_.at(value_made(forward_, op, output));
  return whole.valid() ? in_shape(whole, forward_.spec(op.outputs[output]).shape) : whole;
}

void Sweep::check_repeat(const Op& op) const {
  for (const Operand& o : op.inputs) {
    require(
        !needs(o),
        "autodiff of graph {}: repeat has no gradient, and the gradient of '{}' would pass {} ({})",
        forward_.name(), forward_.info(o.tensor).name, op.label(), op.where);
  }
}

// A write to a part of a storage leaves the rest as it was: a gradient that no rule describes.
void Sweep::check_partial_writes(const Op& op) {
  for (const Operand& o : op.inputs) {
    if (o.new_version < 0 || layout_of(forward_, o.tensor) == Layout::kWhole) continue;
    require(!gradients_.at({forward_.info(o.tensor).storage, o.new_version}).valid(),
            "autodiff of graph {}: {} ({}) writes to '{}', a view of a part of another tensor, "
            "which has no gradient",
            forward_.name(), op.label(), op.where, forward_.info(o.tensor).name);
  }
}

// A tensor passed by reference that the callee leaves alone keeps its value and its gradient.
void Sweep::pass_references(const Op& op) {
  if (op.def != &builtin::call()) return;
  const Graph& callee = forward_.ir().graph(op.callees[0]);
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const Operand& o = op.inputs[k];
    if (o.new_version < 0) continue;
    const int32_t storage = forward_.info(o.tensor).storage;
    const Tensor after = gradients_.at({storage, o.new_version});
    if (!after.valid()) continue;
    if (!writes_input(callee, k)) {
      add_to({storage, o.version}, after);
      continue;
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      require(!(dependence_.of(callee).final_inputs[k].contains(i) && needs(op.inputs[i])),
              "autodiff of graph {}: the gradient of '{}' passes {} ({}), which writes to it by "
              "reference; return the "
              "new value as an output instead",
              forward_.name(), forward_.info(o.tensor).name, op.label(), op.where);
    }
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
    any |= o.new_version >= 0 &&
           gradients_.at({forward_.info(o.tensor).storage, o.new_version}).valid();
  }
  if (!any ||
      std::none_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) { return needs(o); }))
    return;
  GraphEditor::Guise guise(gradient_, op);
  check_partial_writes(op);
  if (op.def == &builtin::loop()) return check_repeat(op);
  pass_references(op);
  if (op.def == &builtin::call()) return differentiate_call(op);
  if (op.def == &builtin::branch()) return differentiate_branch(op);
  if (has_gradient(*op.def)) differentiate_op(op);
}

void Sweep::differentiate_op(const Op& op) {
  Tensors grads;
  for (size_t j = 0; j < op.outputs.size(); ++j) {
    const AliasStep step = alias_step(forward_, op.outputs[j]);
    if (step.op != nullptr && !step.writes) return;
    grads.push_back(gradient_of(op, j));
  }
  if (std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.valid(); })) return;
  OpGradients context(*this, op, std::move(grads));
  const Tensors result = op.def->grad(context);
  SLUICE_CHECK(result.size() == op.inputs.size());
  for (size_t i = 0; i < result.size(); ++i) {
    if (!result[i].valid() || !needs(op.inputs[i])) continue;
    const TensorSpec& want = forward_.spec(op.inputs[i].tensor);
    if (result[i].shape() != want.shape || result[i].dtype() != want.dtype) {
      fail(ErrorKind::kInternal, "gradient of {}: operand {} is {}, its gradient {}", op.label(), i,
           to_string(want), to_string(result[i].spec()));
    }
    contribute(op.inputs[i].tensor, value_read(forward_, op.inputs[i]), result[i]);
  }
}

Tensors Sweep::arguments(const Op& op, const GradGraphInfo& info, size_t first) {
  const Graph& callee = info.forward_graph();
  const auto& ins = callee.input_ids();
  const auto& outs = callee.output_ids();
  const auto& expected = info.expected_inputs();
  require(info.graph().input_ids().size() == expected.size(),
          "autodiff of graph {}: gradient graph {} of {} has further inputs (accumulators?) and "
          "cannot be used here",
          forward_.name(), info.graph().name(), callee.name());
  Tensors result;
  std::map<TensorId, size_t> taken;  // occurrences among the outputs that earlier entries stand for
  for (size_t k = 0; k < expected.size(); ++k) {
    const Tensor& t = expected[k].fwd_tensor;
    if (expected[k].type == Connection::kFwd) {
      const size_t i = position(ins, t);
      if (i < ins.size()) {
        const Operand& o = op.inputs[first + i];
        result.push_back(kept_.get(o.tensor, o.new_version >= 0 ? o.new_version : o.version, op));
      } else {
        const TensorId out = op.outputs[position(outs, t)];
        result.push_back(kept_.get(out, 0, op));
      }
      continue;
    }
    require(position(outs, t) < outs.size(),
            "autodiff of graph {}: gradient graph {} takes the gradient of '{}', which is no "
            "output of {}",
            forward_.name(), info.graph().name(), t.name(), callee.name());
    const bool last = std::none_of(
        expected.begin() + static_cast<int64_t>(k) + 1, expected.end(),
        [&](const auto& e) { return e.type == Connection::kFwdGrad && e.fwd_tensor == t; });
    Tensor sum;
    size_t occurrence = 0;
    for (size_t j = 0; j < outs.size(); ++j) {
      if (outs[j] != t.id() || occurrence++ < taken[t.id()]) continue;
      const Tensor g = gradient_of(op, j);
      if (g.valid()) sum = sum.valid() ? ops::add(sum, g) : g;
      if (!last) break;
    }
    ++taken[t.id()];
    result.push_back(sum.valid() ? sum : zeros(gradient_, t.spec(), "no_gradient"));
  }
  return result;
}

void Sweep::differentiate_call(const Op& op) {
  const auto found = called_.find(op.callees[0]);
  if (found == called_.end()) return;
  const GradGraphInfo& info = found->second;
  if (given_.contains(op.callees[0])) check_complete(op, info, 0);
  const auto& ins = info.forward_graph().input_ids();
  const Tensors gradients = ops::call(gradient_, info.graph(), arguments(op, info, 0));
  for (size_t k = 0; k < gradients.size(); ++k) {
    const size_t i = position(ins, info.expected_outputs()[k].fwd_tensor);
    if (i >= ins.size() || !needs(op.inputs[i])) continue;
    contribute(op.inputs[i].tensor, value_read(forward_, op.inputs[i]), gradients[k]);
  }
}

// A gradient graph made for some operands only cannot stand in where another's gradient is wanted.
void Sweep::check_complete(const Op& op, const GradGraphInfo& info, size_t first) {
  const auto& on = dependence_.of(info.forward_graph());
  const auto& ins = info.forward_graph().input_ids();
  for (size_t i = 0; i < ins.size(); ++i) {
    if (!needs(op.inputs[first + i])) continue;
    const auto given = [&](const ExpectedConnection& c) { return c.fwd_tensor.id() == ins[i]; };
    if (std::any_of(info.expected_outputs().begin(), info.expected_outputs().end(), given))
      continue;
    for (size_t j = 0; j < on.outputs.size(); ++j) {
      require(!(on.outputs[j].contains(i) && gradient_of(op, j).valid()),
              "autodiff of graph {}: gradient graph {} given for {} has no gradient of '{}'",
              forward_.name(), info.graph().name(), info.forward_graph().name(),
              info.forward_graph().info(ins[i]).name);
    }
  }
}

// Each branch's gradient graph is wrapped so that both give a gradient for every operand of either,
// zeros where a branch does not use it.
void Sweep::differentiate_branch(const Op& op) {
  const auto then_inputs =
      static_cast<size_t>(from_attrs<builtin::IfOptions>(op.attrs).then_inputs);
  const std::array<const GradGraphInfo*, 2> infos = [&] {
    std::array<const GradGraphInfo*, 2> result{};
    for (size_t b = 0; b < 2; ++b) {
      const auto found = called_.find(op.callees[b]);
      if (found != called_.end()) result[b] = &found->second;
    }
    return result;
  }();
  if (infos[0] == nullptr && infos[1] == nullptr) return;

  const std::array<size_t, 2> first{1, 1 + then_inputs};
  std::vector<Operand> targets;
  std::array<std::vector<std::pair<size_t, size_t>>, 2> feeds;  // {gradient graph output, target}
  for (size_t b = 0; b < 2; ++b) {
    if (infos[b] == nullptr) continue;
    if (given_.contains(op.callees[b])) check_complete(op, *infos[b], first[b]);
    const auto& ins = infos[b]->forward_graph().input_ids();
    for (size_t k = 0; k < infos[b]->expected_outputs().size(); ++k) {
      const size_t i = position(ins, infos[b]->expected_outputs()[k].fwd_tensor);
      if (i >= ins.size()) continue;
      const Operand& o = op.inputs[first[b] + i];
      if (!needs(o)) continue;
      auto target = std::find_if(targets.begin(), targets.end(),
                                 [&](const Operand& t) { return t.tensor == o.tensor; });
      if (target == targets.end()) target = targets.insert(target, o);
      feeds[b].emplace_back(k, static_cast<size_t>(target - targets.begin()));
    }
  }
  if (targets.empty()) return;

  Ir ir = forward_.ir();
  std::array<Graph*, 2> wrappers{};
  std::array<Tensors, 2> args;
  for (size_t b = 0; b < 2; ++b) {
    wrappers[b] = &ir.create_empty_graph(ir.graph(op.callees[b]).name() + "_bwd_branch");
    Tensors results(targets.size());
    if (infos[b] != nullptr) {
      args[b] = arguments(op, *infos[b], first[b]);
      Tensors inputs;
      for (const Tensor& t : infos[b]->graph().inputs())
        inputs.push_back(wrappers[b]->input(t.spec(), t.name()));
      const Tensors gradients = ops::call(*wrappers[b], infos[b]->graph(), inputs);
      for (const auto& [k, target] : feeds[b]) {
        Tensor& sum = results[target];
        sum = sum.valid() ? ops::add(sum, gradients[k]) : gradients[k];
      }
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (!results[i].valid())
        results[i] = zeros(*wrappers[b], forward_.spec(targets[i].tensor), "no_gradient");
    }
    wrappers[b]->set_outputs(results);
  }
  const Operand& condition = op.inputs[0];
  const Tensors gradients =
      ops::conditional(gradient_, kept_.get(condition.tensor, condition.version, op), *wrappers[0],
                       *wrappers[1], args[0], args[1]);
  for (size_t i = 0; i < targets.size(); ++i) {
    contribute(targets[i].tensor, value_read(forward_, targets[i]), gradients[i]);
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
              "gradient of that one",
              forward_.name(), forward_.info(handle).name);
      g = in_shape(g, spec.shape);
    } else if (request_.missing == GradRequest::Missing::kOmit) {
      continue;
    } else {
      require(request_.missing == GradRequest::Missing::kZeros,
              "autodiff of graph {}: no gradient reaches '{}': no output whose gradient is given "
              "depends on it through "
              "operators that have a gradient",
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
  for (const KeptValues::Kept& k : kept_.finish()) {
    inputs.push_back(k.input);
    expected_inputs.push_back({Connection::kFwd, k.forward});
  }
  editor.set_inputs(inputs);
  editor.compact();
  return {forward_, gradient_, std::move(expected_inputs), std::move(expected_outputs)};
}

}  // namespace

GradGraphInfo differentiate(Graph& forward, const GradRequest& request, const GradGraphs& called,
                            const std::set<GraphId>& given, Dependence& dependence) {
  return Sweep(forward, request, called, given, dependence).run();
}

}  // namespace sluice::transforms
