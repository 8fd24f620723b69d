#pragma once
#include <optional>
#include <vector>

#include "sluice/compiler/program.h"

/// Scalars that constants, loop counters and arguments alone decide. Entries of remote buffers made of them become
/// index expressions, which the executor evaluates: no bytes of the device hold them.
namespace sluice::compiler {

/// The value of a scalar in int64 arithmetic, which is its value in its own dtype: the range lies in that.
struct IndexFact {
  exe::IndexExpr expr;
  IndexRange range;
};

/// Index facts of the bodies that the entries reach, by their parameters and results.
class IndexTable {
 public:
  explicit IndexTable(const Program& program);

  /// Whether entries are made of this parameter, in the body or in a callee.
  bool is_wanted(BodyId body, size_t param) const;
  /// The range of a parameter over all calls that pass an index; empty if none does.
  std::optional<IndexRange> range(BodyId body, size_t param) const;
  /// The range of the iteration of a loop's body.
  std::optional<IndexRange> iteration(BodyId body) const;
  /// A result that is parameter `param` plus `add`, modulo 2^32 or, if there is one, `modulus`.
  struct Offset {
    size_t param = 0;
    int64_t add = 0;
    int64_t modulus = 0;  ///< 0: none.
  };
  std::optional<Offset> result(BodyId body, size_t result) const;

 private:
  struct Facts {
    std::vector<bool> wanted;
    std::vector<std::optional<IndexRange>> ranges;
    std::optional<IndexRange> iteration;
    std::vector<std::optional<Offset>> results;
  };
  void find_results(const Body& body, Facts& facts) const;
  void find_wanted(const Body& body, Facts& facts) const;
  const Facts& facts(BodyId body) const { return facts_[static_cast<size_t>(body)]; }

  const Program& program_;
  std::vector<Facts> facts_;  // By BodyId.
};

/// The index facts of the values of one body.
class Indices {
 public:
  /// `params`: facts of the body's parameters; may be shorter. `iteration`: the range of a loop's counter, where the body
  /// does not know it yet.
  Indices(const Program& program, const Body& body, const IndexTable& table,
          const std::vector<std::optional<IndexFact>>& params = {},
          const std::optional<IndexRange>& iteration = {});

  const std::optional<IndexFact>& of(ValueIndex v) const { return facts_[static_cast<size_t>(v)]; }
  /// The fact of the argument that a call or loop passes for an input; that of a loop may name the iteration.
  std::optional<IndexFact> argument(const Node& node, size_t input) const;

 private:
  void find_facts(const Node& node);
  std::optional<IndexFact> of_kernel(const Node& node) const;
  /// The change by each iteration of the carried value that starts as input k.
  std::optional<IndexTable::Offset> step(const Node::Loop& loop, size_t k) const;

  const Body& body_;
  const IndexTable& table_;
  std::vector<std::optional<IndexRange>> index_params_;
  std::vector<std::optional<IndexFact>> facts_;
};

/// Whether the last input of a node is the entry of a remote buffer.
bool computes_entry(const Node& node);
/// The entry of a remote buffer that a transfer moves, unless an operand gives it.
std::optional<exe::IndexExpr> entry_of(const Node::Transfer& transfer);
/// Whether two expressions never have the same value: their difference is a constant other than 0.
bool differ(const exe::IndexExpr& a, const exe::IndexExpr& b);

}  // namespace sluice::compiler
