#pragma once
#include <memory>
#include <unordered_map>

#include "sluice/compiler/body.h"
#include "sluice/compiler/graph_facts.h"

namespace sluice::compiler {

/// Numbers of variables and constants in the executable, as bodies refer to them.
struct Globals {
  struct Variable {
    std::shared_ptr<VariableInfo> info;
    TensorSpec spec;
    int32_t device = 0;
    std::string name;
  };
  struct Constant {
    std::string name;
    std::shared_ptr<const HostTensor> data;
    int32_t device = 0;
  };
  std::vector<Variable> variables;
  std::vector<Constant> constants;
  std::unordered_map<const VariableInfo*, int32_t> variable_index;

  int32_t variable(const TensorInfo& info);
  int32_t constant(const TensorInfo& info);

 private:
  std::unordered_map<const HostTensor*, int32_t> constant_index_;
};

/// What a graph is used as.
enum class GraphRole : uint8_t { kFunction, kLoopBody };

/// The body of a graph. Before: handles name storage and ops write into it. After: each version is a value, an updating
/// node's output is tied to what it overwrites, a by-value input that the graph writes is copied first. The body of a
/// loop returns, after the carried values, what it made of each carried input that is by reference.
Body functionalise(const Graph& graph, const FactTable& facts, Globals& globals,
                   GraphRole role = GraphRole::kFunction);

}  // namespace sluice::compiler
