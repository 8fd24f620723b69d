#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::exe {

/// The values that an index expression may read while a program runs. It never reads device memory.
struct IndexContext {
  std::span<const int64_t> params;  ///< Index parameters of the running function.
  int64_t iteration = 0;            ///< Counter of the loop step whose operands are evaluated.
  int64_t replica = 0;
};

/// int64 arithmetic over constants, a loop's counter, the replica id and index parameters. The
/// nodes are stored in postfix order. The text is fully parenthesised infix: 5, it, rep, p0,
/// (p0+3), ((it*4)+1), (it%2), (it/2).
class IndexExpr {
 public:
  enum class Opcode : uint8_t {
    kConstant,
    kIteration,
    kReplica,
    kParam,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMod
  };
  struct Node {
    Opcode kind;
    int64_t value = 0;  ///< The constant, or the number of the parameter.
    bool operator==(const Node&) const = default;
  };

  IndexExpr(int64_t constant = 0) : nodes_{{Opcode::kConstant, constant}} {}  // NOLINT: implicit
  static IndexExpr iteration() { return IndexExpr(Opcode::kIteration, 0); }
  static IndexExpr replica() { return IndexExpr(Opcode::kReplica, 0); }
  static IndexExpr param(int64_t i) { return IndexExpr(Opcode::kParam, i); }

  /// The operators fold constants and simplify x+0, x*1, x*0 and (x+1)+2.
  friend IndexExpr operator+(const IndexExpr& a, const IndexExpr& b) {
    return combine(Opcode::kAdd, a, b);
  }
  friend IndexExpr operator-(const IndexExpr& a, const IndexExpr& b) {
    return combine(Opcode::kSub, a, b);
  }
  friend IndexExpr operator*(const IndexExpr& a, const IndexExpr& b) {
    return combine(Opcode::kMul, a, b);
  }
  friend IndexExpr operator/(const IndexExpr& a, const IndexExpr& b) {
    return combine(Opcode::kDiv, a, b);
  }
  friend IndexExpr operator%(const IndexExpr& a, const IndexExpr& b) {
    return combine(Opcode::kMod, a, b);
  }

  bool is_constant() const { return nodes_.size() == 1 && nodes_[0].kind == Opcode::kConstant; }
  int64_t constant() const { return nodes_[0].value; }
  bool uses(Opcode kind) const;
  /// Evaluates the expression. Division rounds toward minus infinity; the remainder has the sign of
  /// the divisor. Error{kUsage} if a divisor is 0, the result overflows, or the context does not
  /// have a parameter.
  int64_t evaluate(const IndexContext& context) const;
  const std::vector<Node>& nodes() const { return nodes_; }
  bool operator==(const IndexExpr&) const = default;

 private:
  IndexExpr(Opcode kind, int64_t value) : nodes_{{kind, value}} {}
  friend IndexExpr substitute(const IndexExpr& expr, std::span<const IndexExpr> params);
  static IndexExpr combine(Opcode kind, const IndexExpr& a, const IndexExpr& b);
  /// If this expression is x ± c, returns x ± (c ± constant) as one addition. Returns nothing if it
  /// has another form, or if the sum of the constants overflows.
  std::optional<IndexExpr> plus(Opcode kind, int64_t constant) const;
  std::vector<Node> nodes_;
};

std::string to_string(const IndexExpr& expr);
/// Replaces each parameter p of the expression by `params[p]`.
IndexExpr substitute(const IndexExpr& expr, std::span<const IndexExpr> params);
/// Parses the text of an expression. Error{kBadFile} naming the expected text and the position.
IndexExpr parse_index_expr(std::string_view text);

}  // namespace sluice::exe
