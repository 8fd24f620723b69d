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
std::string describe_real(double value);
inline std::string describe(const Tensor& t) { return describe(t.spec()); }
inline std::string describe(const GraphWithNamedArgs& g) {
  return "graph " + std::to_string(g.graph().id());
}
template <typename Number>
requires std::integral<Number> || std::floating_point<Number> std::string describe(Number value) {
  if constexpr (std::is_same_v<Number, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::integral<Number>) {
    return std::to_string(value);
  } else {
    return describe_real(static_cast<double>(value));
  }
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
        std::to_string(ir.id()) + "|" + typeid(M).name() + "|" + std::string(module.cache_key());
    ((key += "|" + internal::describe(inputs)), ...);
    if (const Made* found = find(key)) return *found;
    return add(std::move(key), nn::create_graph(ir, module, inputs...));
  }

  GraphCache();
  GraphCache(const GraphCache&);
  GraphCache(GraphCache&&) noexcept;
  GraphCache& operator=(const GraphCache&);
  GraphCache& operator=(GraphCache&&) noexcept;
  ~GraphCache();
  size_t size() const;

 private:
  const Made* find(const std::string& key) const;
  const Made& add(std::string key, Made made);

  std::map<std::string, Made> made_;
};

}  // namespace sluice::nn
