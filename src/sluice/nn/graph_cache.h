#pragma once
#include <concepts>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/module.h"

namespace sluice::nn {

/// A module with a cache key. Modules of the same class and key, with the same arguments, must
/// build equal graphs.
template <typename M>
concept CacheableModule = requires(const M& m) {
  { m.cache_key() } -> std::convertible_to<std::string>;
};

namespace internal {

std::string describe(const TensorSpec& spec);
std::string describe(const NamedInput& input);
inline std::string describe(const Tensor& t) { return describe(t.spec()); }
inline std::string describe(const GraphWithNamedArgs& g) {
  return fmt::format("graph {}", g.graph().id());
}
template <typename Number>
requires std::integral<Number> || std::floating_point<Number> std::string describe(Number value) {
  return fmt::format("{}", value);
}
template <typename Element>
std::string describe(const std::vector<Element>& list) {
  std::string text = "[";
  for (const Element& e : list) text += describe(e) + ";";
  return text + "]";
}

}  // namespace internal

/// A cache of graphs, so that modules of the same structure share one graph. One cache may serve
/// any number of programs.
class GraphCache {
 public:
  using Made = std::pair<NamedVariableFactories, GraphWithNamedArgs>;

  /// Creates a graph like nn::create_graph(). Returns the existing graph if `ir` has one from a
  /// module of the same class and cache_key(), with the same specs and values of arguments. The
  /// factories can create variables for any number of callers.
  template <CacheableModule M, typename... Inputs>
  const Made& create_graph(Ir ir, const M& module, const Inputs&... inputs) {
    std::string key =
        fmt::format("{}|{}|{}", ir.id(), typeid(M).name(), std::string(module.cache_key()));
    ((key += "|" + internal::describe(inputs)), ...);
    const auto found = made_.find(key);
    if (found != made_.end()) return found->second;
    return made_.emplace(std::move(key), nn::create_graph(ir, module, inputs...)).first->second;
  }

  size_t size() const { return made_.size(); }

 private:
  std::map<std::string, Made> made_;
};

}  // namespace sluice::nn
