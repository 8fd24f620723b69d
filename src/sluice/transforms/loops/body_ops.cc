#include "sluice/transforms/loops/body_ops.h"

#include <fmt/format.h>

#include <limits>
#include <unordered_set>
#include <vector>

#include "sluice/ir/graph_editor.h"

namespace sluice {
namespace {

std::string_view foreign(const Graph& graph, const Tensor& t) {
  return t.graph().ir().id() == graph.ir().id() ? "" : " of another Ir";
}

}  // namespace

std::string names_of(const std::vector<FeedField>& fields) {
  std::vector<std::string> names;
  for (const FeedField& f : fields) names.push_back(f.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string counted(size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

bool BodyOps::read(const Tensors& tensors, const Tensors& results) const {
  std::unordered_set<TensorId> given;
  for (const Tensor& t : tensors) given.insert(t.id());
  for (const Tensor& t : results) {
    if (given.contains(t.id())) return true;
  }
  for (const OpIndex i : IdRange(first_, graph_.ops().end_id())) {
    for (const Operand& o : graph_.ops()[i].inputs) {
      if (given.contains(o.tensor)) return true;
    }
  }
  return false;
}

void BodyOps::check_outputs() const {
  require(graph_.outputs().size() == outputs_.size(),
          "{}: the outputs of graph {} must be added outside the body, got {} in it; return "
          "the tensor as a carried value and add the result of the loop",
          loop_, graph_.name(), graph_.outputs().size() - outputs_.size());
}

void BodyOps::remove() const {
  std::unordered_set<OpId> added;
  for (const OpIndex i : IdRange(first_, graph_.ops().end_id())) added.insert(graph_.ops()[i].id);
  if (graph_.outputs().size() != outputs_.size()) graph_.set_outputs(outputs_);
  GraphEditor(graph_).remove_ops(added);
}

void LoopRequest::check() const {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  require(trips >= 0 && trips <= kMax, "{}: {} must be 0 to {}, got {}", loop, trips_name, kMax,
          trips);
  for (size_t k = 0; k < inputs.size(); ++k) {
    require(inputs[k].valid(), "{}: input {} must be a tensor, got an empty handle", loop, k);
    require(graph.owns(inputs[k]), "{}: input {} must belong to graph {}, got '{}' of graph {}{}",
            loop, k, graph.name(), inputs[k].name(), inputs[k].graph().name(),
            foreign(graph, inputs[k]));
  }
  require(!infeed || infeed->ir == graph.ir().id(),
          "{}: infeed '{}' must belong to the Ir of graph {}, got one of another Ir", loop,
          infeed ? infeed->name : "", graph.name());
}

void LoopRequest::check_results(const Tensors& results) const {
  require(results.size() == inputs.size(),
          "{}: the body must return {}, one for each input, got {}; return the new value of "
          "each carried tensor in the order of the inputs",
          loop, counted(inputs.size(), "tensor"), results.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& t = results[k];
    require(t.valid(), "{}: result {} of the body must be a tensor, got an empty handle", loop, k);
    require(graph.owns(t),
            "{}: result {} of the body must belong to graph {}, got '{}' of graph {}{}", loop, k,
            graph.name(), t.name(), t.graph().name(), foreign(graph, t));
    require(t.shape() == inputs[k].shape() && t.dtype() == inputs[k].dtype(),
            "{}: result {} of the body must be {} like input '{}', got {}; a carried value "
            "keeps its dtype and shape",
            loop, k, to_string(inputs[k].spec()), inputs[k].name(), to_string(t.spec()));
  }
}

Tensors LoopRequest::run(const LoopBody& body, const Tensors& values) const {
  const Tensors fields = infeed ? graph.dequeue(*infeed) : Tensors{};
  const BodyOps added(graph, loop);
  const Tensors results = [&] {
    const DeviceScope restore(graph, graph.device());
    return body(LoopArguments(values, fields, infeed, loop));
  }();
  check_results(results);
  require(!infeed || added.read(fields, results),
          "{}: the body must read infeed '{}', got a body that reads none of its fields "
          "({}); read a field or pass no infeed",
          loop, infeed ? infeed->name : "", infeed ? names_of(infeed->fields) : "");
  return results;
}

}  // namespace sluice
