#include <algorithm>
#include <vector>

#include "sluice/transforms/loops/body_ops.h"
#include "sluice/transforms/loops/row_loop.h"

namespace sluice::ops {

ScanResults scan(Graph& parent, Graph& graph, const Tensors& carried, const Tensors& sequences,
                 const TensorMap& named, RowOrder order, std::source_location where) {
  const Tensors inputs = graph.inputs();
  const Tensors outputs = graph.original_outputs();
  const size_t given = carried.size() + sequences.size();
  require(graph.ir().id() == parent.ir().id() && graph.id() != parent.id(),
          "scan: graph {} must be another graph of the Ir of graph {}", graph.name(),
          parent.name());
  require(!sequences.empty(), "scan: requires at least one sequence, got none; use repeat()");
  require(inputs.size() >= given && outputs.size() >= carried.size(),
          "scan: graph {} must have at least {} inputs and {} outputs, got {} and {}", graph.name(),
          given, carried.size(), inputs.size(), outputs.size());
  const auto check = [&](const Tensor& t, const TensorSpec& spec, const Tensor& input) {
    require(t.valid() && parent.owns(t),
            "scan: input '{}' of graph {} must get a tensor of graph "
            "{}, got {}",
            input.name(), graph.name(), parent.name(),
            t.valid() ? "'" + t.name() + "' of graph " + t.graph().name() : "an empty handle");
    require(t.shape() == spec.shape && t.dtype() == spec.dtype,
            "scan: input '{}' of graph {} must get {}, got '{}' {}", input.name(), graph.name(),
            to_string(spec), t.name(), to_string(t.spec()));
  };
  require(sequences[0].valid() && sequences[0].rank() >= 1 && sequences[0].dim(0) >= 1,
          "scan: a sequence must have at least one row, got {}",
          sequences[0].valid() ? to_string(sequences[0].spec()) : "an empty handle");
  const int64_t rows = sequences[0].dim(0);
  transforms::RowLoop loop(parent, graph, rows);
  for (size_t k = 0; k < carried.size(); ++k) {
    check(carried[k], inputs[k].spec(), inputs[k]);
    require(outputs[k].shape() == inputs[k].shape() && outputs[k].dtype() == inputs[k].dtype(),
            "scan: output {} of graph {} must be {} like the input that it feeds, got {}", k,
            graph.name(), to_string(inputs[k].spec()), to_string(outputs[k].spec()));
    loop.carry(carried[k], inputs[k]);
  }
  for (size_t k = 0; k < sequences.size(); ++k) {
    const Tensor& input = inputs[carried.size() + k];
    std::vector<int64_t> dims = input.shape().dims();
    dims.insert(dims.begin(), rows);
    check(sequences[k], {Shape(std::move(dims)), input.dtype(), {}}, input);
    require(graph.info(input).pass == Pass::kByValue,
            "scan: input '{}' of graph {} gets a row of a sequence, so it must be by value, got by "
            "reference",
            input.name(), graph.name());
    loop.row(sequences[k], order, input);
  }
  for (size_t k = given; k < inputs.size(); ++k) {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first == inputs[k]; });
    require(found != named.end(), "scan: input '{}' of graph {} must get a tensor, got none",
            inputs[k].name(), graph.name());
    check(found->second, inputs[k].spec(), inputs[k]);
    loop.invariant(found->second, inputs[k]);
  }
  for (const auto& [input, t] : named) {
    require(std::find(inputs.begin() + static_cast<int64_t>(given), inputs.end(), input) !=
                inputs.end(),
            "scan: a named tensor must be for an input of graph {} that is neither carried nor a "
            "row, got '{}'",
            graph.name(), input.valid() ? input.name() : "an empty handle");
  }
  const std::vector<RowOrder> orders(outputs.size() - carried.size(), order);
  const BodyOps added(parent, "scan");
  try {
    transforms::RowLoop::Results results = loop.run(orders, where);
    return {std::move(results.carried), std::move(results.rows)};
  } catch (...) {
    added.remove();
    throw;
  }
}

}  // namespace sluice::ops
