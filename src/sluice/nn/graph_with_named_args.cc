#include "sluice/nn/graph_with_named_args.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "sluice/base/error.h"
#include "sluice/ir/ir.h"

namespace sluice::nn {
namespace {

// Returns `base` with the tensors of `more`, which replace those of `base` for the same input.
TensorMap overridden(const TensorMap& base, const TensorMap& more) {
  if (more.empty()) return base;
  TensorMap result = base;
  std::unordered_map<Tensor, size_t> index;
  for (size_t i = 0; i < result.size(); ++i) index.emplace(result[i].first, i);
  for (const auto& [input, tensor] : more) {
    const auto [at, added] = index.emplace(input, result.size());
    if (added) {
      result.emplace_back(input, tensor);
    } else {
      result[at->second].second = tensor;
    }
  }
  return result;
}

}  // namespace

CallArguments::CallArguments() = default;
CallArguments::~CallArguments() = default;
void CallArguments::add(const Tensor& t) { positional_.emplace_back(t); }
void CallArguments::add(const Tensors& tensors) {
  for (const Tensor& t : tensors) add(t);
}
void CallArguments::add_number(double value) { positional_.emplace_back(value); }
void CallArguments::add(const TensorMap& by_input) {
  by_input_.insert(by_input_.end(), by_input.begin(), by_input.end());
}
void CallArguments::add(const NamedTensors& named) { named_.update(named, Overwrite::kYes); }

GraphWithNamedArgs::GraphWithNamedArgs(const GraphWithNamedArgs&) = default;
GraphWithNamedArgs::GraphWithNamedArgs(GraphWithNamedArgs&&) noexcept = default;
GraphWithNamedArgs& GraphWithNamedArgs::operator=(const GraphWithNamedArgs&) = default;
GraphWithNamedArgs& GraphWithNamedArgs::operator=(GraphWithNamedArgs&&) noexcept = default;
GraphWithNamedArgs::~GraphWithNamedArgs() = default;

GraphWithNamedArgs::GraphWithNamedArgs(
    Graph& graph, NamedTensors args,
    std::shared_ptr<const transforms::GradGraphInfo> grad_graph_info)
    : ir_(graph.ir()),
      graph_(graph.id()),
      args_(std::move(args)),
      grad_graph_info_(std::move(grad_graph_info)) {
  const auto& ids = graph.input_ids();
  const std::unordered_set<TensorId> inputs(ids.begin(), ids.end());
  args_.for_each([&](const std::string& key, const Tensor& t) {
    require(graph.owns(t) && inputs.contains(t.id()),
            "graph {}: argument '{}' is not one of its inputs", graph.name(), key);
  });
}

const transforms::GradGraphInfo& GraphWithNamedArgs::grad_graph_info() const {
  require(grad_graph_info_ != nullptr, "graph {} is not a gradient graph", graph().name());
  return *grad_graph_info_;
}

BoundGraph GraphWithNamedArgs::bind(const NamedTensors& tensors) const { return {*this, tensors}; }

CallSiteInfo GraphWithNamedArgs::call_with(const CallArguments& arguments) const {
  return bind({}).call_with(arguments);
}

std::string GraphWithNamedArgs::print_schedule() const {
  const auto [keys, tensors] = args_.unpack();
  std::vector<std::pair<std::string, Tensor>> named;
  for (size_t i = 0; i < keys.size(); ++i) named.emplace_back(keys[i], tensors[i]);
  return sluice::print_schedule(graph(), named);
}

BoundGraph::BoundGraph(GraphWithNamedArgs graph, const NamedTensors& tensors)
    : graph_(std::move(graph)),
      bound_(graph_.args().to_mapping(tensors)),
      given_(tensors.keys_flat()) {}

BoundGraph::BoundGraph(const BoundGraph&) = default;
BoundGraph::BoundGraph(BoundGraph&&) noexcept = default;
BoundGraph& BoundGraph::operator=(const BoundGraph&) = default;
BoundGraph& BoundGraph::operator=(BoundGraph&&) noexcept = default;
BoundGraph::~BoundGraph() = default;

BoundGraph BoundGraph::bind(const NamedTensors& more) const {
  BoundGraph result = *this;
  result.bound_ = overridden(bound_, graph_.args().to_mapping(more));
  for (const std::string& key : more.keys_flat()) {
    if (std::find(given_.begin(), given_.end(), key) == given_.end()) result.given_.push_back(key);
  }
  return result;
}

CallSiteInfo BoundGraph::call_with(const CallArguments& arguments) const {
  Graph& callee = graph();
  TensorMap named = overridden(bound_, graph_.args().to_mapping(arguments.named_));
  named = overridden(named, arguments.by_input_);

  // A named input may also be a positional argument.
  const auto& inputs = callee.input_ids();
  std::unordered_set<TensorId> given;
  for (const auto& [input, tensor] : named) given.insert(input.id());
  for (size_t i = 0; i < std::min(inputs.size(), arguments.positional_.size()); ++i) {
    given.insert(inputs[i]);
  }
  std::vector<std::string> missing;
  graph_.args().for_each([&](const std::string& key, const Tensor& input) {
    if (!given.contains(input.id())) missing.push_back(key);
  });
  if (!missing.empty()) {
    std::vector<std::string> names = given_;
    for (const std::string& key : arguments.named_.keys_flat()) names.push_back(key);
    fail(ErrorKind::kUsage,
         "call of graph {}: named inputs without a tensor: {}; names that were bound: {}",
         callee.name(), internal::join_keys(missing), internal::join_keys(names));
  }

  Graph* parent = arguments.parent_;
  for (const auto& argument : arguments.positional_) {
    if (parent == nullptr && std::holds_alternative<Tensor>(argument))
      parent = &std::get<Tensor>(argument).graph();
  }
  if (parent == nullptr && !named.empty()) parent = &named.front().second.graph();
  require(parent != nullptr,
          "call of graph {}: arguments must have a tensor or the graph to call in, got neither",
          callee.name());

  Tensors positional;
  for (const auto& argument : arguments.positional_) {
    if (const Tensor* t = std::get_if<Tensor>(&argument)) {
      positional.push_back(*t);
    } else {
      require(positional.size() < inputs.size(), "call: {} inputs given, graph {} has {}",
              arguments.positional_.size(), callee.name(), inputs.size());
      const DType dtype = callee.spec(inputs[positional.size()]).dtype;
      positional.push_back(parent->scalar(std::get<double>(argument), dtype));
    }
  }
  return ops::call_with_info(*parent, callee, positional, named);
}

std::string to_string(const BoundGraph& graph) {
  return fmt::format("<sluice::nn::BoundGraph object at {}>", static_cast<const void*>(&graph));
}

}  // namespace sluice::nn
