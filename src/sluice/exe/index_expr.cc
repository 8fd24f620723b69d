#include "sluice/exe/index_expr.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"

namespace sluice::exe {
namespace {

using Opcode = IndexExpr::Opcode;

/// Returns the result of `a kind b`, or nothing if the divisor is 0 or the result overflows.
std::optional<int64_t> apply(Opcode kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case Opcode::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
      return result;
    case Opcode::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
      return result;
    case Opcode::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
      return result;
    case Opcode::kDiv:
      if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
      return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
    case Opcode::kMod:
      if (b == 0) return std::nullopt;
      if (b == -1) return 0;
      result = a % b;
      return result != 0 && (result < 0) != (b < 0) ? result + b : result;
    default:
      return std::nullopt;
  }
}

char symbol(Opcode kind) {
  switch (kind) {
    case Opcode::kAdd:
      return '+';
    case Opcode::kSub:
      return '-';
    case Opcode::kMul:
      return '*';
    case Opcode::kDiv:
      return '/';
    default:
      return '%';
  }
}

/// Largest nesting of parentheses that the parser accepts, so that a hostile file cannot exhaust
/// the stack.
constexpr int kMaxDepth = 500;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), rest_(text) {}

  IndexExpr parse() {
    IndexExpr result = expression(0);
    if (!rest_.empty()) bad("the end");
    return result;
  }

 private:
  [[noreturn]] void bad(std::string_view expected) const {
    fail(ErrorKind::kBadFile, "index expression '{}': {} expected at '{}'", text_, expected, rest_);
  }

  bool eat(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  int64_t integer() {
    int64_t value = 0;
    const auto r = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (r.ec != std::errc{}) bad("an integer");
    rest_.remove_prefix(static_cast<size_t>(r.ptr - rest_.data()));
    return value;
  }

  IndexExpr expression(int depth) {
    if (depth > kMaxDepth) bad("less nesting");
    if (eat("it")) return IndexExpr::iteration();
    if (eat("rep")) return IndexExpr::replica();
    if (eat("p")) {
      const int64_t i = integer();
      if (i < 0) bad("a parameter number >= 0");
      return IndexExpr::param(i);
    }
    if (!eat("(")) return integer();
    const IndexExpr a = expression(depth + 1);
    if (rest_.find_first_of("+-*/%") != 0) bad("one of + - * / %");
    const char op = rest_.front();
    rest_.remove_prefix(1);
    const IndexExpr b = expression(depth + 1);
    if (!eat(")")) bad("')'");
    switch (op) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return a / b;
      default:
        return a % b;
    }
  }

  std::string_view text_;
  std::string_view rest_;
};

}  // namespace

IndexExpr IndexExpr::combine(Opcode kind, const IndexExpr& a, const IndexExpr& b) {
  if (a.is_constant() && b.is_constant()) {
    // Keep an operation that has no result: evaluate() reports it.
    if (const auto v = apply(kind, a.constant(), b.constant())) return *v;
  }
  const auto is = [](const IndexExpr& e, int64_t v) {
    return e.is_constant() && e.constant() == v;
  };
  if (kind == Opcode::kAdd && is(a, 0)) return b;
  if ((kind == Opcode::kAdd || kind == Opcode::kSub) && is(b, 0)) return a;
  if (kind == Opcode::kMul && is(a, 1)) return b;
  if (kind == Opcode::kMul && is(b, 1)) return a;
  if (kind == Opcode::kMul && (is(a, 0) || is(b, 0))) return 0;
  if ((kind == Opcode::kAdd || kind == Opcode::kSub) && b.is_constant()) {
    if (auto sum = a.plus(kind, b.constant())) return *std::move(sum);
  }
  IndexExpr result;
  result.nodes_.clear();
  result.nodes_.reserve(a.nodes_.size() + b.nodes_.size() + 1);
  result.nodes_.insert(result.nodes_.end(), a.nodes_.begin(), a.nodes_.end());
  result.nodes_.insert(result.nodes_.end(), b.nodes_.begin(), b.nodes_.end());
  result.nodes_.push_back({kind, 0});
  return result;
}

std::optional<IndexExpr> IndexExpr::plus(Opcode kind, int64_t constant) const {
  const size_t n = nodes_.size();
  if (n < 3 || nodes_[n - 2].kind != Opcode::kConstant) return std::nullopt;
  const Opcode last = nodes_[n - 1].kind;
  if (last != Opcode::kAdd && last != Opcode::kSub) return std::nullopt;
  const auto own = apply(last, 0, nodes_[n - 2].value);
  const auto sum = own ? apply(kind, *own, constant) : std::nullopt;
  if (!sum) return std::nullopt;
  IndexExpr left = *this;
  left.nodes_.resize(n - 2);
  return *sum < 0 && *sum > INT64_MIN ? left - IndexExpr(-*sum) : left + IndexExpr(*sum);
}

bool IndexExpr::uses(Opcode kind) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.kind == kind; });
}

int64_t IndexExpr::evaluate(const IndexContext& context) const {
  if (is_constant()) return constant();
  // A running step must not allocate memory. Only expressions with more nodes than the array need a
  // vector.
  std::array<int64_t, 16> small{};
  std::vector<int64_t> large;
  if (nodes_.size() > small.size()) large.resize(nodes_.size());
  int64_t* const stack = large.empty() ? small.data() : large.data();
  size_t top = 0;
  for (const Node& node : nodes_) {
    switch (node.kind) {
      case Opcode::kConstant:
        stack[top++] = node.value;
        break;
      case Opcode::kIteration:
        stack[top++] = context.iteration;
        break;
      case Opcode::kReplica:
        stack[top++] = context.replica;
        break;
      case Opcode::kParam:
        if (node.value < 0 || node.value >= std::ssize(context.params)) {
          fail(ErrorKind::kUsage, "index expression {}: index parameters must be below {}, got p{}",
               to_string(*this), context.params.size(), node.value);
        }
        stack[top++] = at(context.params, node.value);
        break;
      default: {
        const auto v = apply(node.kind, stack[top - 2], stack[top - 1]);
        if (!v.has_value()) {
          fail(ErrorKind::kUsage, "index expression {}: {} {} {} has no 64-bit value",
               to_string(*this), stack[top - 2], symbol(node.kind), stack[top - 1]);
        }
        stack[--top - 1] = *v;
      }
    }
  }
  return stack[0];
}

std::string to_string(const IndexExpr& expr) {
  std::vector<std::string> stack;
  for (const IndexExpr::Node& node : expr.nodes()) {
    switch (node.kind) {
      case Opcode::kConstant:
        stack.push_back(fmt::format("{}", node.value));
        break;
      case Opcode::kIteration:
        stack.emplace_back("it");
        break;
      case Opcode::kReplica:
        stack.emplace_back("rep");
        break;
      case Opcode::kParam:
        stack.push_back(fmt::format("p{}", node.value));
        break;
      default: {
        const std::string b = std::move(stack.back());
        stack.pop_back();
        stack.back() = fmt::format("({}{}{})", stack.back(), symbol(node.kind), b);
      }
    }
  }
  return stack.back();
}

IndexExpr substitute(const IndexExpr& expr, std::span<const IndexExpr> params) {
  std::vector<IndexExpr> stack;
  for (const IndexExpr::Node& node : expr.nodes()) {
    switch (node.kind) {
      case Opcode::kConstant:
        stack.emplace_back(node.value);
        break;
      case Opcode::kIteration:
        stack.push_back(IndexExpr::iteration());
        break;
      case Opcode::kReplica:
        stack.push_back(IndexExpr::replica());
        break;
      case Opcode::kParam:
        stack.push_back(at(params, node.value));
        break;
      default: {
        const IndexExpr b = std::move(stack.back());
        stack.pop_back();
        stack.back() = IndexExpr::combine(node.kind, stack.back(), b);
      }
    }
  }
  return stack.back();
}

IndexExpr parse_index_expr(std::string_view text) { return Parser(text).parse(); }

}  // namespace sluice::exe
