// Gradients of repeat.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sluice/ir/builtin.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/unary.h"
#include "sluice/transforms/loops/row_loop.h"
#include "sluice/transforms/sweep.h"

namespace sluice::transforms {
namespace {

// The first two inputs of a loop's wrapper graph, the iteration and keep-going, are not operands.
constexpr size_t kNotOperands = 2;

int64_t trips_of(const Op& loop) { return from_attrs<builtin::LoopOptions>(loop.attrs).trips; }

// Returns the input of a loop's wrapper graph in which the loop stores `t`; the number of inputs if
// it does not.
size_t stored_in(const Graph& wrapper, const Tensor& t) {
  const Version last = wrapper.storage(wrapper.info(t).storage).version();
  size_t input = kNotOperands;
  for (; input < wrapper.input_ids().size(); ++input) {
    const auto written = row_written(wrapper, input);
    if (written && written->row == t && written->version == last) break;
  }
  return input;
}

}  // namespace

bool has_static_trips(const Op& loop) {
  return from_attrs<builtin::LoopOptions>(loop.attrs).condition < 0;
}

void Sweep::check_while_loop(const Op& op) const {
  for (const Operand& o : op.inputs) {
    require(!needs(o),
            "autodiff of graph {}: while_loop has no gradient, and the gradient of '{}' would pass "
            "{} ({})",
            forward_.name(), forward_.info(o.tensor).name, op.label(), op.provenance->line);
  }
}

/// The gradient of one repeat. `info` has the gradient of its wrapper graph, one iteration.
class RepeatGradient {
 public:
  RepeatGradient(Sweep& sweep, const Op& op, const GradGraphInfo& info)
      : sweep_(sweep),
        forward_(sweep.forward_),
        op_(op),
        info_(info),
        wrapper_(info.forward_graph()),
        carried_(builtin::carried(op)),
        loop_(sweep.gradient_,
              forward_.ir().create_empty_graph(base_name(wrapper_.name()) + "_reversed"),
              trips_of(op)) {
    const Tensors inputs = wrapper_.inputs();
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      rows_.push_back(row_read(wrapper_, i + kNotOperands));
      stacks_.push_back(row_written(wrapper_, i + kNotOperands));
      const Tensor t = rows_[i] ? rows_[i]->row : inputs[i + kNotOperands];
      for (size_t e = 0; e < info.expected_outputs().size(); ++e) {
        if (info.expected_outputs()[e].fwd_tensor == t) output_of_.emplace(i, e);
      }
    }
  }

  void run() {
    const Graph::ProvenanceScope role(loop_.body(), {.role = OpRole::kGradient});
    const GraphEditor::Guise guise(loop_.body(), op_);
    check_states();
    carry_gradients();
    carry_sums();
    add_outputs(ops::call(loop_.body(), info_.graph(), arguments()));
    std::vector<ops::RowOrder> orders;
    for (const size_t i : sequences_) orders.push_back(reversed(rows_[i]->order));
    contribute(loop_.run(orders));
  }

 private:
  // The gradient of operands that are one tensor, summed over iterations.
  struct Sum {
    size_t operand;               // The first of the operands.
    std::vector<size_t> outputs;  // Terms, as outputs of the gradient of an iteration, in order.
    bool continues;               // Whether it begins with the gradient of later readers.
    Tensor in_body;
  };

  const Operand& operand(size_t i) const { return op_.inputs[i]; }
  Value value(size_t i) const { return value_read(forward_, operand(i)); }
  // Returns the gradient of a tensor of which the iterations write one row each.
  Tensor gradient_of_stack(size_t i) const {
    if (!stacks_[i]) return {};
    return sweep_.gradients_.at({forward_.info(operand(i).tensor).storage, operand(i).new_version});
  }

  // A gradient between iterations passes through carried values only.
  void check_states() const {
    IndexSet needed;
    IndexSet provided;
    for (size_t i = 0; i < op_.inputs.size(); ++i) {
      if (sweep_.needs(operand(i))) needed.insert(i);
    }
    for (size_t j = 0; j < op_.outputs.size(); ++j) {
      if (sweep_.gradient_of(op_, j).valid()) provided.insert(j);
    }
    for (size_t k = 0; k < op_.inputs.size(); ++k) {
      if (gradient_of_stack(k).valid()) provided.insert(k);
    }
    const LoopPaths paths = sweep_.dependence_.loop_paths(forward_, op_, needed, provided);
    for (size_t k = 0; k < op_.inputs.size(); ++k) {
      require(!(paths.active.contains(k) && paths.useful.contains(k) &&
                operand(k).new_version.valid() && changes(forward_, op_, k) && !stacks_[k]),
              "autodiff of graph {}: the gradient of {} ({}) passes '{}', which its iterations "
              "write by reference; carry the value instead",
              forward_.name(), op_.label(), op_.provenance->line,
              forward_.info(operand(k).tensor).name);
    }
  }

  void carry_gradients() {
    for (size_t k = 0; k < carried_; ++k) {
      const TensorId out = wrapper_.output_ids()[k];
      const auto& expected = info_.expected_inputs();
      const bool read = std::any_of(expected.begin(), expected.end(), [&](const auto& c) {
        return c.type == Connection::kFwdGrad && c.fwd_tensor.id() == out;
      });
      if (!read && !output_of_.contains(k)) continue;
      const Tensor g = sweep_.gradient_of(op_, k);
      const TensorSpec& spec = forward_.spec(op_.outputs[k]);
      gradients_[k] = loop_.carry(g.valid() ? g : zeros(sweep_.gradient_, spec, "no_gradient"));
    }
  }

  void carry_sums() {
    for (const auto& [i, e] : output_of_) {
      if (i < carried_ || !sweep_.needs(operand(i))) continue;
      if (rows_[i]) {
        sequences_.push_back(i);
        continue;
      }
      const TensorId handle = operand(i).tensor;
      const bool whole = layout_of(forward_, handle) == Layout::kWhole;
      const auto same = std::find_if(sums_.begin(), sums_.end(), [&](const Sum& s) {
        const TensorId other = operand(s.operand).tensor;
        return value(s.operand) == value(i) &&
               (other == handle || (whole && layout_of(forward_, other) == Layout::kWhole));
      });
      if (same != sums_.end()) {
        same->outputs.push_back(e);
        continue;
      }
      const Tensor later = whole ? sweep_.gradients_.at(value(i)) : Tensor();
      const TensorSpec& spec = forward_.spec(handle);
      // Adding -0 does not change a number.
      const Tensor first = later.valid() ? in_shape(later, spec.shape)
                                         : ops::neg(zeros(sweep_.gradient_, spec, "no_gradient"));
      sums_.push_back({i, {e}, later.valid(), loop_.carry(first)});
    }
  }

  // Returns the inputs of the gradient of an iteration, in the body.
  Tensors arguments() {
    Tensors result;
    for (const auto& [type, t] : info_.expected_inputs()) {
      if (type == Connection::kFwd) {
        result.push_back(forward_value(t));
        continue;
      }
      Tensor sum;
      for (const auto& [k, g] : gradients_) {
        if (wrapper_.output_ids()[k] == t.id()) sum = sum.valid() ? ops::add(sum, g) : g;
      }
      for (size_t k = carried_; k < op_.inputs.size(); ++k) {
        const Tensor whole = gradient_of_stack(k);
        if (!whole.valid() || stacks_[k]->row != t) continue;
        const Tensor g = loop_.row(whole, reversed(stacks_[k]->order));
        sum = sum.valid() ? ops::add(sum, g) : g;
      }
      result.push_back(sum.valid() ? sum : zeros(loop_.body(), t.spec(), "no_gradient"));
    }
    return result;
  }

  Tensor forward_value(const Tensor& t) {
    if (const auto order = order_of(wrapper_, t.id(), trips_of(op_)))
      return loop_.iteration(reversed(*order));
    for (size_t i = carried_; i < op_.inputs.size(); ++i) {
      if (rows_[i] && rows_[i]->row == t)
        return loop_.row(kept_operand(i), reversed(rows_[i]->order));
    }
    const size_t input = position(wrapper_.input_ids(), t);
    SLUICE_CHECK(input >= kNotOperands);
    const size_t i = input - kNotOperands;
    if (input == wrapper_.input_ids().size() || i < carried_ || changes(forward_, op_, i))
      return stored_value(t);
    return loop_.invariant(kept_operand(i));
  }

  Tensor kept_operand(size_t i) const {
    const Operand& o = operand(i);
    return sweep_.kept_.get(o.tensor, o.new_version.valid() ? o.new_version : o.version, op_);
  }

  // Returns the value of a tensor of the wrapper graph in the forward iteration. The forward loop
  // stores the values of all iterations from now on, unless it already does.
  Tensor stored_value(const Tensor& t) {
    const size_t input = stored_in(wrapper_, t);
    if (input == wrapper_.input_ids().size()) store(t);
    const Operand stack = forward_.op(op_.id).inputs[input - kNotOperands];
    return loop_.row(sweep_.kept_.get(stack.tensor, stack.new_version, op_),
                     reversed(row_written(wrapper_, input)->order));
  }

  void store(const Tensor& t) {
    std::vector<int64_t> dims = t.shape().dims();
    dims.insert(dims.begin(), trips_of(op_));
    const GraphEditor::Guise guise(wrapper_, op_);
    GraphEditor editor(wrapper_);
    const Tensor stack =
        editor.append_buffer({Shape(std::move(dims)), t.dtype(), {}}, "iterations_of_" + t.name());
    const OpId first = wrapper_.ops()[0].id;
    ops::update_row_(stack, t, wrapper_.handle(wrapper_.input_ids()[0]));
    // An input is stored first, so that the iteration may overwrite its memory.
    const bool input = wrapper_.info(t).kind == TensorKind::kInput;
    if (input && wrapper_.storage(wrapper_.info(t).storage).version() == 0)
      editor.place({{wrapper_.ops().back().id, first, GraphEditor::Placement::Side::kBefore}});
  }

  // Makes the carried values after an iteration with these gradients, and rows.
  void add_outputs(const Tensors& iteration) {
    Tensors next;
    for (const auto& [k, g] : gradients_) {
      next.push_back(output_of_.contains(k) ? iteration[output_of_.at(k)]
                                            : zeros(loop_.body(), g.spec(), "no_gradient"));
    }
    for (const Sum& s : sums_) {
      Tensor sum = s.in_body;
      for (const size_t e : s.outputs) sum = ops::add(sum, in_shape(iteration[e], sum.shape()));
      next.push_back(sum);
    }
    for (const size_t i : sequences_) next.push_back(iteration[output_of_.at(i)]);
    loop_.body().set_outputs(next);
  }

  void contribute(const RowLoop::Results& results) {
    // A sum that continues a gradient replaces it, so these sums precede sums of partial views.
    for (const bool continues : {true, false}) {
      size_t next = gradients_.size();
      for (const Sum& s : sums_) {
        const Tensor& sum = results.carried[next++];
        if (s.continues != continues) continue;
        if (continues) {
          Tensor& total = sweep_.gradients_[value(s.operand)];
          total = in_shape(sum, total.shape());
        } else {
          sweep_.contribute(operand(s.operand).tensor, value(s.operand), sum);
        }
      }
    }
    size_t next = 0;
    for (const size_t i : sequences_)
      sweep_.contribute(operand(i).tensor, value(i), results.rows[next++]);
    next = 0;
    for (const auto& [k, g] : gradients_) {
      const Tensor& first = results.carried[next++];
      if (output_of_.contains(k) && sweep_.needs(operand(k)))
        sweep_.contribute(operand(k).tensor, value(k), first);
    }
  }

  Sweep& sweep_;
  Graph& forward_;
  const Op& op_;
  const GradGraphInfo& info_;
  Graph& wrapper_;
  const size_t carried_;
  RowLoop loop_;
  std::vector<std::optional<RowUse>> rows_;    // For each operand: the row that is read.
  std::vector<std::optional<RowUse>> stacks_;  // For each operand: the row that is written.
  std::map<size_t, size_t> output_of_;         // {operand, output of the gradient of an iteration}.
  std::map<size_t, Tensor> gradients_;         // {carried value, its gradient in the body}.
  std::vector<Sum> sums_;
  std::vector<size_t> sequences_;  // Operands whose gradient is made of rows.
};

void Sweep::differentiate_repeat(const Op& op) {
  if (trips_of(op) == 0) {
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const Tensor g = gradient_of(op, k);
      if (g.valid() && needs(op.inputs[k]))
        contribute(op.inputs[k].tensor, value_read(forward_, op.inputs[k]), g);
    }
    return;
  }
  const auto found = called_.find(op.callees[0]);
  if (found != called_.end()) RepeatGradient(*this, op, found->second).run();
}

}  // namespace sluice::transforms
