#include "sluice/transforms/loops/repeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>
#include <vector>

#include "sluice/ir/graph_editor.h"
#include "sluice/ops/basic.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice {
namespace {

std::string names_of(const std::vector<FeedField>& fields) {
  std::vector<std::string> names;
  for (const FeedField& f : fields) names.push_back(f.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string counted(size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

// The ops that are added to a graph while a body runs.
class BodyOps {
 public:
  explicit BodyOps(Graph& graph)
      : graph_(graph), first_(graph.ops().size()), outputs_(graph.outputs()) {}

  size_t first() const { return first_; }

  bool read(const Tensors& tensors, const Tensors& results) const {
    std::unordered_set<TensorId> given;
    for (const Tensor& t : tensors) given.insert(t.id());
    for (const Tensor& t : results) {
      if (given.contains(t.id())) return true;
    }
    for (size_t i = first_; i < graph_.ops().size(); ++i) {
      for (const Operand& o : graph_.ops()[i].inputs) {
        if (given.contains(o.tensor)) return true;
      }
    }
    return false;
  }

  void check_outputs() const {
    require(graph_.outputs().size() == outputs_.size(),
            "repeat: the outputs of graph {} must be added outside the body, got {} in it; return "
            "the tensor as a carried value and add the result of the loop",
            graph_.name(), graph_.outputs().size() - outputs_.size());
  }

  void remove() const {
    std::unordered_set<OpId> added;
    for (size_t i = first_; i < graph_.ops().size(); ++i) added.insert(graph_.ops()[i].id);
    if (graph_.outputs().size() != outputs_.size()) graph_.set_outputs(outputs_);
    GraphEditor(graph_).remove_ops(added);
  }

 private:
  Graph& graph_;
  const size_t first_;
  const Tensors outputs_;
};

std::string_view foreign(const Graph& graph, const Tensor& t) {
  return t.graph().ir().id() == graph.ir().id() ? "" : " of another Ir";
}

void check_arguments(const Graph& graph, int64_t n, const Tensors& inputs,
                     const std::optional<Infeed>& infeed) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(n >= 0 && n <= kMost, "repeat: n must be 0 to {}, got {}", kMost, n);
  for (size_t k = 0; k < inputs.size(); ++k) {
    require(inputs[k].valid(), "repeat: input {} must be a tensor, got an empty handle", k);
    require(graph.owns(inputs[k]),
            "repeat: input {} must belong to graph {}, got '{}' of graph {}{}", k, graph.name(),
            inputs[k].name(), inputs[k].graph().name(), foreign(graph, inputs[k]));
  }
  require(!infeed || infeed->ir == graph.ir().id(),
          "repeat: infeed '{}' must belong to the Ir of graph {}, got one of another Ir",
          infeed ? infeed->name : "", graph.name());
}

void check_results(const Graph& graph, const Tensors& inputs, const Tensors& results) {
  require(results.size() == inputs.size(),
          "repeat: the body must return {}, one for each input, got {}; return the new value of "
          "each carried tensor in the order of the inputs",
          counted(inputs.size(), "tensor"), results.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& t = results[k];
    require(t.valid(), "repeat: result {} of the body must be a tensor, got an empty handle", k);
    require(graph.owns(t),
            "repeat: result {} of the body must belong to graph {}, got '{}' of graph {}{}", k,
            graph.name(), t.name(), t.graph().name(), foreign(graph, t));
    require(t.shape() == inputs[k].shape() && t.dtype() == inputs[k].dtype(),
            "repeat: result {} of the body must be {} like input '{}', got {}; a carried value "
            "keeps its dtype and shape",
            k, to_string(inputs[k].spec()), inputs[k].name(), to_string(t.spec()));
  }
}

}  // namespace

LoopArguments::LoopArguments(Tensors carried, Tensors fields, std::optional<Infeed> infeed)
    : arguments_(std::move(carried)), carried_(arguments_.size()), infeed_(std::move(infeed)) {
  arguments_.insert(arguments_.end(), fields.begin(), fields.end());
}

std::string LoopArguments::describe() const {
  std::string text = counted(carried_, "carried value");
  if (infeed_) {
    const size_t fields = infeed_->fields.size();
    text += fmt::format(" and {} of infeed '{}' ({})", counted(fields, "field"), infeed_->name,
                        names_of(infeed_->fields));
  }
  return text;
}

const Tensor& LoopArguments::operator[](size_t i) const {
  require(i < size(), "repeat: an argument of the body must be below {}, got {}; it has {}", size(),
          i, describe());
  return arguments_[i];
}

const Tensor& LoopArguments::operator[](std::string_view field) const {
  require(infeed_.has_value(),
          "repeat: field '{}' must belong to an infeed, got none; pass an infeed to the loop",
          field);
  for (size_t i = 0; i < infeed_->fields.size(); ++i) {
    if (infeed_->fields[i].name == field) return arguments_[carried_ + i];
  }
  fail(ErrorKind::kUsage, "repeat: a field of infeed '{}' must be one of {}, got '{}'",
       infeed_->name, names_of(infeed_->fields), field);
}

void LoopArguments::require_count(size_t count) const {
  require(count == size(), "repeat: the body must have {}, got {}: the arguments are {}",
          counted(size(), "parameter"), count, describe());
}

namespace ops {

Tensors repeat(Graph& graph, int64_t n, const LoopBody& body, const Tensors& inputs,
               const std::optional<Infeed>& infeed, std::source_location where) {
  check_arguments(graph, n, inputs, infeed);
  const BodyOps added(graph);
  try {
    std::vector<transforms::CarriedValue> carried;
    Tensors values;
    for (const Tensor& t : inputs) {
      values.push_back(identity({t, where}, t.name()));
      carried.push_back({.first = t, .before = values.back(), .after = {}});
    }
    const Tensors fields = infeed ? graph.dequeue(*infeed) : Tensors{};
    const BodyOps read(graph);
    const Tensors results = [&] {
      const DeviceScope restore(graph, graph.device());
      return body(LoopArguments(values, fields, infeed));
    }();
    check_results(graph, inputs, results);
    added.check_outputs();
    require(!infeed || read.read(fields, results),
            "repeat: the body must read infeed '{}', got a body that reads none of its fields "
            "({}); read a field or pass no infeed",
            infeed ? infeed->name : "", infeed ? names_of(infeed->fields) : "");
    if (n == 0) {
      added.remove();
      Tensors copies;
      for (const Tensor& t : inputs) copies.push_back(identity({t, where}, t.name()));
      return copies;
    }
    for (size_t k = 0; k < results.size(); ++k) carried[k].after = results[k];
    return transforms::repeat_last_ops(graph, added.first(), n, carried, where);
  } catch (...) {
    added.remove();
    throw;
  }
}

}  // namespace ops
}  // namespace sluice
