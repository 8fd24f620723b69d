#pragma once
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/compiler/functionalise.h"

/// Scalars that constants, loop counters and arguments alone decide. Entries of remote buffers made of them become
/// index expressions, which the executor evaluates: no bytes of the device hold them.
namespace sluice::compiler {

/// The value of a scalar in int64 arithmetic, which is its value in its own dtype: the range lies in that.
struct IndexFact {
  exe::IndexExpr expr;
  IndexRange range;
};

/// What is known of the graphs that the entry graphs reach, by their inputs and results.
class IndexTable {
 public:
  using BodyOf = std::function<const Body&(GraphId)>;

  /// An empty table: no entry is computed.
  IndexTable() = default;
  IndexTable(const Ir& ir, const Globals& globals, const BodyOf& body_of);

  /// Entries are made of this input, here or in a callee.
  bool is_wanted(GraphId graph, size_t input) const;
  /// Of an input, over all calls that pass an index; nothing if none does.
  std::optional<IndexRange> range(GraphId graph, size_t input) const;
  /// A result that is input `input` plus `add`, modulo 2^32 or, if there is one, `modulus`.
  struct Offset {
    size_t input = 0;
    int64_t add = 0;
    int64_t modulus = 0;  ///< 0: none.
  };
  std::optional<Offset> result(GraphId graph, size_t result) const;

 private:
  struct GraphEntry {
    std::vector<bool> wanted;
    std::vector<std::optional<IndexRange>> ranges;
    std::vector<std::optional<Offset>> results;
  };
  void visit(GraphId graph, const Globals& globals, const BodyOf& body_of,
             std::vector<GraphId>& order);
  void find_results(const Body& body, const Globals& globals, GraphEntry& entry) const;
  void find_wanted(const Body& body, GraphEntry& entry) const;
  void join(GraphId graph, size_t input, const IndexRange& range);
  const GraphEntry* find(GraphId graph) const;

  std::unordered_map<GraphId, GraphEntry> graphs_;
};

/// The facts of one body.
class Indices {
 public:
  /// `params`: facts of the body's parameters; may be shorter.
  Indices(const Body& body, const Globals& globals, const IndexTable& table,
          const std::vector<std::optional<IndexFact>>& params = {});

  const std::optional<IndexFact>& of(ValueIndex v) const { return facts_[static_cast<size_t>(v)]; }
  /// Of what a call or loop passes for an input; of a loop it may name the iteration.
  std::optional<IndexFact> argument(const Node& node, size_t input) const;

 private:
  std::optional<IndexFact> of_kernel(const Node& node) const;
  /// What each iteration does to the carried value that starts as input k.
  std::optional<IndexTable::Offset> step(const Node& loop, size_t k) const;

  const Body& body_;
  const IndexTable& table_;
  std::vector<std::optional<IndexFact>> facts_;
};

/// Calls and loops pass indices. Conditionals do not: whether an arm uses its entry is for the data to say, so an entry
/// beyond the buffer is an error only when it is used.
bool takes_indices(const Node& node);
/// Which input of the callee's graph an input of a call or loop is.
size_t callee_input(const Node& node, size_t input);

/// Its last input is the entry of a remote buffer.
bool computes_entry(const Node& node);
/// The entry of a remote buffer that a transfer moves, unless an operand gives it.
std::optional<exe::IndexExpr> entry_of(const Node& transfer);
/// Whether two expressions never have the same value: their difference is a constant other than 0.
bool differ(const exe::IndexExpr& a, const exe::IndexExpr& b);

}  // namespace sluice::compiler
