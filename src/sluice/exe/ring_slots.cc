#include "sluice/exe/ring_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::exe {
namespace {

using Opcode = IndexExpr::Opcode;

/// All values of an expression are in [low, high].
struct Bounds {
  int64_t low = 0;
  int64_t high = 0;
};
/// Nothing: the expression has no known bounds.
using Known = std::optional<Bounds>;

/// The values that an expression may read.
struct Scope {
  std::span<const Known> params;
  Bounds iteration;
  Bounds replica;
};

int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b < 0); }

Known sum(const Bounds& a, int64_t low, int64_t high) {
  Bounds r;
  if (__builtin_add_overflow(a.low, low, &r.low) || __builtin_add_overflow(a.high, high, &r.high))
    return std::nullopt;
  return r;
}

Known product(const Bounds& a, const Bounds& b) {
  int64_t corners[4];
  if (__builtin_mul_overflow(a.low, b.low, &corners[0]) ||
      __builtin_mul_overflow(a.low, b.high, &corners[1]) ||
      __builtin_mul_overflow(a.high, b.low, &corners[2]) ||
      __builtin_mul_overflow(a.high, b.high, &corners[3]))
    return std::nullopt;
  const auto [low, high] = std::minmax_element(corners, corners + 4);
  return Bounds{*low, *high};
}

// `b` is positive.
Bounds quotient(const Bounds& a, const Bounds& b) {
  const int64_t corners[] = {floor_of(a.low, b.low), floor_of(a.low, b.high),
                             floor_of(a.high, b.low), floor_of(a.high, b.high)};
  const auto [low, high] = std::minmax_element(std::begin(corners), std::end(corners));
  return {*low, *high};
}

// `b` is positive, so a remainder has bounds whatever is divided.
Bounds remainder(const Known& a, const Bounds& b) {
  if (a && b.low == b.high && floor_of(a->low, b.low) == floor_of(a->high, b.low)) {
    const auto rest = [&](int64_t x) { return x % b.low + (x % b.low < 0 ? b.low : 0); };
    return {rest(a->low), rest(a->high)};
  }
  if (a && a->low >= 0 && a->high < b.low) return *a;
  return {0, b.high - 1};
}

Known combined(Opcode kind, const Known& a, const Known& b) {
  const bool divides = kind == Opcode::kDiv || kind == Opcode::kMod;
  if (divides && (!b || b->low <= 0)) return std::nullopt;
  if (kind == Opcode::kMod) return remainder(a, *b);
  if (!a || !b) return std::nullopt;
  switch (kind) {
    case Opcode::kAdd:
      return sum(*a, b->low, b->high);
    case Opcode::kSub:
      if (b->low == INT64_MIN || b->high == INT64_MIN) return std::nullopt;
      return sum(*a, -b->high, -b->low);
    case Opcode::kMul:
      return product(*a, *b);
    case Opcode::kDiv:
      return quotient(*a, *b);
    default:
      return std::nullopt;
  }
}

Known bounds_of(const IndexExpr& x, const Scope& scope) {
  if (x.is_constant()) return Bounds{x.constant(), x.constant()};
  std::vector<Known> stack;
  for (const IndexExpr::Node& node : x.nodes()) {
    switch (node.kind) {
      case Opcode::kConstant:
        stack.push_back(Bounds{node.value, node.value});
        break;
      case Opcode::kIteration:
        stack.push_back(scope.iteration);
        break;
      case Opcode::kReplica:
        stack.push_back(scope.replica);
        break;
      case Opcode::kParam:
        stack.push_back(at(scope.params, node.value));
        break;
      default: {
        const Known right = stack.back();
        stack.pop_back();
        stack.back() = combined(node.kind, stack.back(), right);
      }
    }
  }
  return stack.back();
}

class Finder {
 public:
  explicit Finder(const Executable& e) : e_(e), params_(e.functions.size()) {
    for (const FunctionId f : e.functions.ids())
      params_[f].resize(static_cast<size_t>(e.functions[f].index_params));
    runs_.resize(e.functions.size(), false);
    for (const Program& p : e.programs) {
      for (const Start& start : p.starts) runs_[start.function] = true;
    }
  }

  std::vector<Problem> run() {
    std::vector<FunctionId> order = callees_first(e_);
    std::reverse(order.begin(), order.end());
    for (const FunctionId f : order) {
      if (runs_[f]) function(f);
    }
    return std::move(problems_);
  }

 private:
  void function(FunctionId f) {
    const std::vector<Step>& steps = e_.functions[f].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      Scope scope{params_[f], {}, {0, e_.replicas - 1}};
      if (const auto* loop = std::get_if<Loop>(&steps[s].body))
        scope.iteration.high = std::max<int64_t>(loop->trips - 1, 0);
      const Address* bad = nullptr;
      const auto look = [&](const Address& at) {
        if (at.depth == 0) return;
        const Known slot = bounds_of(at.slot, scope);
        if (bad == nullptr && (!slot || slot->low < 0)) bad = &at;
      };
      for_each_operand(steps[s], [&](const Operand& o) { look(o.at); });
      for_each_call(steps[s], [&](const Call& c) {
        look(c.frame);
        for (const Operand& o : c.args) look(o.at);
        pass(c, scope);
      });
      if (bad == nullptr) continue;
      const Known slot = bounds_of(bad->slot, scope);
      problems_.push_back(
          {{PlanPosition::Section::kFunction, f, static_cast<int64_t>(s)},
           fmt::format("ring slot {} must be at least 0, got {}", to_string(bad->slot),
                       slot ? fmt::format("{} as its lowest value", slot->low)
                            : "an expression without a known lower bound")});
    }
  }

  /// Widens the bounds of the callee's parameters by the arguments of a call.
  void pass(const Call& c, const Scope& scope) {
    for (size_t i = 0; i < c.index_args.size(); ++i) {
      Known& param = params_[c.function][i];
      const Known given = bounds_of(c.index_args[i], scope);
      if (!runs_[c.function]) {
        param = given;
      } else if (param && given) {
        param = Bounds{std::min(param->low, given->low), std::max(param->high, given->high)};
      } else {
        param = std::nullopt;
      }
    }
    runs_[c.function] = true;
  }

  const Executable& e_;
  Ids<FunctionId, std::vector<Known>> params_;
  Ids<FunctionId, bool> runs_;  ///< Whether a program or a call runs the function.
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> negative_slots(const Executable& executable) {
  return Finder(executable).run();
}

}  // namespace sluice::exe
