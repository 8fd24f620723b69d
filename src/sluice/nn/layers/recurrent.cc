#include "sluice/nn/sequences.h"

#include <fmt/format.h>

#include <cmath>

#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"
#include "sluice/ops/unary.h"
#include "sluice/transforms/loops/loops.h"

namespace sluice::nn::internal {

// A step of one direction.
struct Recurrent::Step {
  Graph&
      graph;  // Inputs: states, products of the input, weight of h, biases of h. Outputs: states,
              // h.
  ops::RowOrder order;
};

Recurrent::Recurrent(Cell cell, const RecurrentOptions& options)
    : cell_(std::move(cell)), options_(options) {
  require(options.hidden >= 1, "{}: hidden must be at least 1, got {}", cell_.name, options.hidden);
  require(options.layers >= 1, "{}: layers must be at least 1, got {}", cell_.name, options.layers);
}

std::string Recurrent::cache_key() const {
  const RecurrentOptions& o = options_;
  return fmt::format("{} {} {} {} {} {}", cell_.name, o.hidden, o.layers, o.bidirectional,
                     o.batch_first, o.bias);
}

Graph& Recurrent::cell_graph(Builder& b, const TensorSpec& state) const {
  Graph& g = b.ir().create_empty_graph(cell_.name + "_step");
  const Graph::Scope scope(g, b.path());
  const int64_t hidden = options_.hidden;
  const int64_t products = cell_.gates * hidden;
  const DType dtype = state.dtype;
  const Tensor h = g.input(state, "h");
  const Tensor c = cell_.states == 2 ? g.input(state, "c") : Tensor();
  const Tensor x = g.input({{state.shape[0], products}, dtype, {}}, "x");
  const Tensor weight = g.input({{hidden, products}, dtype, {}}, "weight_hh");
  const Tensor product = ops::matmul(h, weight);
  if (c.valid()) {
    const Tensors gates = ops::split(x + product, 4, -1);
    const Tensor next = ops::sigmoid(gates[1]) * c + ops::sigmoid(gates[0]) * ops::tanh(gates[2]);
    const Tensor result = ops::sigmoid(gates[3]) * ops::tanh(next);
    g.set_outputs({result, next, result});
    return g;
  }
  const Tensor bias = options_.bias ? g.input({{products}, dtype, {}}, "bias_hh") : Tensor();
  const Tensors from_h = ops::split(bias.valid() ? product + bias : product, 3, -1);
  const Tensors from_x = ops::split(x, 3, -1);
  const Tensor reset = ops::sigmoid(from_x[0] + from_h[0]);
  const Tensor keep = ops::sigmoid(from_x[1] + from_h[1]);
  const Tensor fresh = ops::tanh(from_x[2] + reset * from_h[2]);
  const Tensor result = fresh + keep * (h - fresh);
  g.set_outputs({result, result});
  return g;
}

// Runs one direction of a layer over all steps. Returns the last states, then h of all steps.
Tensors Recurrent::direction(Builder& b, const Step& step, const Tensor& x, const Tensors& first,
                             const std::string& suffix) const {
  const int64_t hidden = options_.hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto variable = [&](const std::string& name, const Shape& shape) {
    return b.add_variable_input(name + suffix, uniform(-bound, bound), shape, x.dtype());
  };
  const int64_t rows = cell_.gates * hidden;
  const Tensor weight_x = variable("weight_ih", {rows, x.dim(-1)});
  const Tensor weight_h = variable("weight_hh", {rows, hidden});
  Tensor product = ops::matmul(x, ops::transpose(weight_x));
  const Tensors ins = step.graph.inputs();
  const auto states = static_cast<size_t>(cell_.states);
  TensorMap invariants{{ins[states + 1], ops::transpose(weight_h)}};
  if (options_.bias) {
    product = product + variable("bias_ih", {rows});
    const Tensor bias_h = variable("bias_hh", {rows});
    if (ins.size() > states + 2) {
      invariants.emplace_back(ins[states + 2], bias_h);
    } else {
      product = product + bias_h;
    }
  }
  const ops::ScanResults results =
      ops::scan(b.graph(), step.graph, first, {product}, invariants, step.order);
  Tensors all = results.carried;
  all.push_back(results.rows[0]);
  return all;
}

Tensors Recurrent::run(Builder& b, const Tensor& x, const Tensors& first) const {
  const RecurrentOptions& o = options_;
  require(x.rank() == 3, "{}: input must have three axes, got '{}' {}", cell_.name, x.name(),
          to_string(x.spec()));
  Tensor rows = o.batch_first ? ops::transpose(x, {1, 0, 2}) : x;
  require(rows.dim(0) >= 1, "{}: input must have at least one step, got '{}' {}", cell_.name,
          x.name(), to_string(x.spec()));
  const int64_t directions = o.bidirectional ? 2 : 1;
  const TensorSpec state{{rows.dim(1), o.hidden}, x.dtype(), {}};
  const TensorSpec all{{o.layers * directions, rows.dim(1), o.hidden}, x.dtype(), {}};
  for (const Tensor& t : first) {
    require(t.shape() == all.shape && t.dtype() == all.dtype,
            "{}: a first state must be {}, got '{}' {}", cell_.name, to_string(all), t.name(),
            to_string(t.spec()));
  }
  Graph& graph = cell_graph(b, state);
  std::vector<std::vector<TensorArg>> last(static_cast<size_t>(cell_.states));
  for (int64_t layer = 0; layer < o.layers; ++layer) {
    std::vector<TensorArg> parts;
    for (int64_t d = 0; d < directions; ++d) {
      Tensors states;
      for (size_t k = 0; k < last.size(); ++k) {
        states.push_back(first.empty() ? ops::init(b.graph(), state)
                                       : ops::select(first[k], layer * directions + d));
      }
      const Step step{graph, d == 0 ? ops::RowOrder::kAscending : ops::RowOrder::kDescending};
      const Tensors results =
          direction(b, step, rows, states, fmt::format("_l{}{}", layer, d == 0 ? "" : "_reverse"));
      for (size_t k = 0; k < last.size(); ++k) last[k].emplace_back(results[k]);
      parts.emplace_back(results.back());
    }
    rows = parts.size() == 1 ? parts[0].tensor : ops::concat(parts, -1);
  }
  Tensors results{o.batch_first ? ops::transpose(rows, {1, 0, 2}) : rows};
  for (const auto& states : last) results.push_back(ops::stack(states));
  return results;
}

}  // namespace sluice::nn::internal
