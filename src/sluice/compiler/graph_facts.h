#pragma once
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::compiler {

/// Entries of a stream that one run of a graph reads or writes.
struct StreamUse {
  int32_t stream = 0;
  int64_t count = 0;
};

/// What a caller must know of a graph before it is compiled.
struct GraphFacts {
  bool has_effects =
      false;  ///< It touches a stream or remote buffer, or prints, itself or in a callee.
  std::vector<StreamUse> streams;  ///< By ascending id; none with 0 entries.
  std::set<int32_t> stores_to;     ///< Remote buffers that it stores to, itself or in a callee.
  std::set<int32_t> loads_from;    ///< Likewise.
  std::vector<bool> writes_input;  ///< Whether it writes a by-reference input for its caller.
  int64_t call_sites = 0;          ///< Call ops that name it, in graphs reachable from the entries.
};

/// Facts of all graphs reachable from the entries. Error{kUsage} for a conditional with a branch that uses a stream.
class FactTable {
 public:
  explicit FactTable(const Ir& ir);
  const GraphFacts& operator[](GraphId id) const { return facts_.at(id); }

 private:
  void visit(const Ir& ir, GraphId id);
  bool is_written(const Graph& graph, int32_t storage) const;
  std::unordered_map<GraphId, GraphFacts> facts_;
  std::unordered_set<GraphId> visited_;
};

}  // namespace sluice::compiler
