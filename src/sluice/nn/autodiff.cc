#include "sluice/nn/autodiff.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "sluice/transforms/recompute.h"

namespace sluice::nn {
namespace {

// Converts the name of a tensor to a valid key of a tree.
std::string key_of(const Tensor& t) {
  std::string key = t.name();
  const auto other = [](unsigned char c) { return std::isalnum(c) == 0; };
  std::replace_if(key.begin(), key.end(), other, '_');
  const bool digit = !key.empty() && std::isdigit(static_cast<unsigned char>(key[0])) != 0;
  return digit || key.empty() ? "_" + key : key;
}

}  // namespace

GraphWithNamedArgs autodiff(const GraphWithNamedArgs& graph,
                            const transforms::AutodiffOptions& options) {
  auto info = std::make_shared<const transforms::GradGraphInfo>(
      transforms::autodiff(graph.graph(), options));
  Graph& gradient = info->graph();
  return GraphWithNamedArgs(gradient, {}, std::move(info));
}

GraphWithNamedArgs GraphWithNamedArgs::autodiff(const transforms::AutodiffOptions& options) const {
  return nn::autodiff(*this, options);
}

GraphWithNamedArgs GraphWithNamedArgs::autodiff() const { return nn::autodiff(*this); }

std::pair<NamedVariableFactories, GraphWithNamedArgs> autodiff_with_accumulation(
    const GraphWithNamedArgs& graph, const Tensors& tensors,
    const transforms::AccumulationOptions& options) {
  std::unordered_map<Tensor, std::string> keys;
  graph.args().for_each([&](const std::string& key, const Tensor& t) { keys.emplace(t, key); });
  std::vector<std::string> names;
  for (const Tensor& t : tensors) {
    const auto key = keys.find(t);
    names.push_back(key == keys.end() ? key_of(t) : key->second);
  }
  transforms::AccumulationResult result =
      transforms::autodiff_with_accumulation(graph.graph(), tensors, names, options);
  NamedVariableFactories factories;
  NamedTensors args;
  const size_t counters = result.added.size() - names.size();
  for (size_t i = 0; i < result.added.size(); ++i) {
    const transforms::AddedInput& added = result.added[i];
    const VariableFactory plain(added.spec, zeros(), Pass::kByReference, added.group);
    factories.merge(added.name,
                    plain.owned_by(i < counters ? "" : names[i - counters], Role::kAccumulator));
    args.merge(added.name, added.input);
  }
  auto info = std::make_shared<const transforms::GradGraphInfo>(std::move(result.info));
  Graph& gradient = info->graph();
  return {std::move(factories), GraphWithNamedArgs(gradient, std::move(args), std::move(info))};
}

GraphWithNamedArgs recompute_graph(const GraphWithNamedArgs& gradient) {
  transforms::RecomputeResult result = transforms::recompute_graph(gradient.grad_graph_info());
  NamedTensors args = gradient.args().remap(result.inputs);
  auto info = std::make_shared<const transforms::GradGraphInfo>(std::move(result.info));
  Graph& graph = info->graph();
  return GraphWithNamedArgs(graph, std::move(args), std::move(info));
}

}  // namespace sluice::nn
