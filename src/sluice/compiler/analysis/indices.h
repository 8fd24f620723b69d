#pragma once
#include <optional>
#include <vector>

#include "sluice/compiler/program.h"

/// Finds scalars that depend only on constants, loop counters and arguments. An entry of a remote
/// buffer that is such a scalar becomes an index expression. The executor evaluates the expression,
/// so the scalar needs no device memory.
namespace sluice::compiler {

/// A scalar as an expression in int64 arithmetic. Its range fits the scalar's dtype, so the
/// expression equals the value that the op computes.
struct IndexFact {
  exe::IndexExpr expr;
  IndexRange range;
};

/// Index facts of the parameters and results of all bodies that the entries reach.
class IndexTable {
 public:
  explicit IndexTable(const Program& program);

  /// Whether an entry of a remote buffer depends on this parameter, in the body or in a callee.
  bool is_wanted(BodyId body, size_t param) const;
  /// The range of a parameter over all calls that pass an argument with an index fact. Empty if no
  /// call does.
  std::optional<IndexRange> range(BodyId body, size_t param) const;
  /// The range of a loop body's iteration over all its loops. Empty for other bodies.
  std::optional<IndexRange> iteration(BodyId body) const;
  /// A result that equals parameter `param` plus `add`, modulo `modulus`, or modulo 2^32 if that is
  /// 0.
  struct Offset {
    size_t param = 0;
    int64_t add = 0;
    int64_t modulus = 0;  ///< 0: no modulus.
  };
  std::optional<Offset> result(BodyId body, size_t result) const;
  size_t result_count(BodyId body) const { return facts(body).results.size(); }

 private:
  struct Facts {
    std::vector<bool> wanted;
    std::vector<std::optional<IndexRange>> ranges;
    std::optional<IndexRange> iteration;
    std::vector<std::optional<Offset>> results;
  };
  void find_results(const Body& body, Facts& facts) const;
  void find_wanted(const Body& body, Facts& facts) const;
  const Facts& facts(BodyId body) const { return facts_[body]; }

  const Program& program_;
  Ids<BodyId, Facts> facts_;
};

/// The index facts of the values of one body.
class Indices {
 public:
  /// `params`: facts of the body's first parameters; the facts of further ones are unknown.
  /// `iteration`: range of the loop's counter, used if the body has no range for it.
  Indices(const Program& program, const Body& body, const IndexTable& table,
          const std::vector<std::optional<IndexFact>>& params = {},
          const std::optional<IndexRange>& iteration = {});

  const std::optional<IndexFact>& of(ValueIndex v) const { return facts_[v]; }
  /// The fact of the argument that a call or loop passes for input `input`. For a carried input,
  /// the expression may contain the iteration.
  std::optional<IndexFact> argument(const Node& node, size_t input) const;

 private:
  void find_facts(const Node& node);
  std::optional<IndexFact> of_kernel(const Node& node) const;
  /// The offset that each iteration applies to carried value k, if known.
  std::optional<IndexTable::Offset> step(const Node::Loop& loop, size_t k) const;

  const Body& body_;
  const IndexTable& table_;
  std::vector<std::optional<IndexRange>> index_params_;
  Ids<ValueIndex, std::optional<IndexFact>> facts_;
};

/// Whether the last input of a node is the entry of a remote buffer.
bool computes_entry(const Node& node);
/// The remote entry that a transfer moves; empty if an operand computes it.
std::optional<exe::IndexExpr> entry_of(const Node::Transfer& transfer);
/// Whether two expressions never have the same value, because their difference is a constant other
/// than 0.
bool differ(const exe::IndexExpr& a, const exe::IndexExpr& b);

}  // namespace sluice::compiler
