#pragma once
#include <compare>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::compiler {

/// Something whose uses are numbered in the order of the program: the entries of a stream, or the collectives of a
/// grouping of the replicas.
struct Sequence {
  enum class Of : uint8_t { kStream, kGroup };
  Of of = Of::kStream;
  int32_t id = 0;  ///< Stream, or index into FactTable::groups.
  auto operator<=>(const Sequence&) const = default;
};

/// How often one run of a graph uses a sequence.
struct SequenceUse {
  Sequence sequence;
  int64_t count = 0;
};

/// What a caller must know of a graph before it is compiled.
struct GraphFacts {
  bool has_effects =
      false;  ///< It touches a stream or remote buffer, communicates or prints, itself or in a callee.
  std::vector<SequenceUse> sequences;  ///< Ascending; none with 0 uses.
  std::set<int32_t> stores_to;         ///< Remote buffers that it stores to, itself or in a callee.
  std::set<int32_t> loads_from;        ///< Likewise.
  std::vector<bool> writes_input;      ///< Whether it writes a by-reference input for its caller.
  int64_t call_sites = 0;  ///< Call ops that name it, in graphs reachable from the entries.
};

/// Facts of all graphs reachable from the entries. Error{kUsage} for a conditional with a branch that uses a stream or
/// has a collective, or for a collective of groups that do not tile the replicas.
class FactTable {
 public:
  explicit FactTable(const Ir& ir);
  const GraphFacts& operator[](GraphId id) const { return facts_.at(id); }
  /// The groupings that collectives have.
  const std::vector<ReplicaGrouping>& groups() const { return groups_; }
  /// Number of a collective's grouping.
  int32_t group_of(const Attrs& collective) const;

 private:
  void visit(const Ir& ir, GraphId id);
  void add_group(const Op& collective, const Graph& graph);
  bool is_written(const Graph& graph, int32_t storage) const;
  std::unordered_map<GraphId, GraphFacts> facts_;
  std::unordered_set<GraphId> visited_;
  int replicas_;
  std::vector<ReplicaGrouping> groups_;
};

}  // namespace sluice::compiler
