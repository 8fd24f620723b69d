#include "sluice/compiler/lower/entry_bounds.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "sluice/base/error.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

using exe::IndexExpr;

bool is_remote(const exe::Step& step) {
  const auto* issue = std::get_if<exe::Issue>(&step.body);
  return issue != nullptr && !issue->entry_from &&
         (issue->kind == exe::TransferKind::kRemoteLoad ||
          issue->kind == exe::TransferKind::kRemoteStore);
}

/// Bounds of an index: minimum and maximum.
struct Range {
  int64_t low = 0;
  int64_t high = 0;
  auto operator<=>(const Range&) const = default;
};

// Returns bounds of an expression for parameters and an iteration within theirs: the exact ones if
// each of them occurs once. Empty if an intermediate result may overflow or a divisor is not a
// positive constant.
std::optional<Range> bounds(const IndexExpr& x, const std::vector<Range>& params,
                            const Range& iteration) {
  using Opcode = IndexExpr::Opcode;
  std::vector<Range> stack;
  for (const IndexExpr::Node& n : x.nodes()) {
    switch (n.kind) {
      case Opcode::kConstant:
        stack.push_back({n.value, n.value});
        continue;
      case Opcode::kIteration:
        stack.push_back(iteration);
        continue;
      case Opcode::kReplica:
        stack.push_back({});
        continue;
      case Opcode::kParam:
        stack.push_back(sluice::at(params, n.value));
        continue;
      default:
        break;
    }
    const Range b = stack.back();
    stack.pop_back();
    Range& a = stack.back();
    const bool divides = n.kind == Opcode::kDiv || n.kind == Opcode::kMod;
    if (divides && (b.low != b.high || b.low <= 0)) return std::nullopt;
    if (n.kind == Opcode::kMod) {
      const auto quotient = [&](int64_t v) { return v / b.low - (v % b.low < 0); };
      const int64_t first = quotient(a.low);
      a = first == quotient(a.high) ? Range{a.low - first * b.low, a.high - first * b.low}
                                    : Range{0, b.low - 1};
      continue;
    }
    Range result{INT64_MAX, INT64_MIN};
    for (const int64_t p : {a.low, a.high}) {
      for (const int64_t q : {b.low, b.high}) {
        int64_t v = 0;
        const bool overflow = n.kind == Opcode::kAdd   ? __builtin_add_overflow(p, q, &v)
                              : n.kind == Opcode::kSub ? __builtin_sub_overflow(p, q, &v)
                              : n.kind == Opcode::kMul ? __builtin_mul_overflow(p, q, &v)
                                                       : (v = p / q - (p % q < 0), false);
        if (overflow) return std::nullopt;
        result = {std::min(result.low, v), std::max(result.high, v)};
      }
    }
    a = result;
  }
  return stack.back();
}

// Finds the entries that each remote transfer moves. `Exact::kNo`: bounds of them, from one
// traversal of each loop. `Exact::kYes`: their minimum and maximum, from each iteration.
enum class Exact { kNo, kYes };

class EntryWalk {
 public:
  EntryWalk(const exe::Executable& e, Exact exact)
      : e_(e), exact_(exact), needs_(e.functions.size()) {}

  /// Returns whether all entries are within their buffers.
  bool fits() {
    for (const exe::FunctionId f : exe::callees_first(e_)) find_needs(f);
    for (const exe::Program& program : e_.programs) {
      for (const exe::Start& start : program.starts) walk(start.function, {});
    }
    return known_ && std::all_of(seen_.begin(), seen_.end(), [&](const auto& seen) {
             return seen.second.low >= 0 && seen.second.high < buffer_of(*seen.first).entries;
           });
  }

  /// Error{kUsage} for the first step, in the order of the functions, whose entries are outside.
  void check() const {
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& step : f.steps) {
        if (const auto seen = seen_.find(&step); seen != seen_.end()) check(step, seen->second);
      }
    }
  }

 private:
  const exe::RemoteBufferPlan& buffer_of(const exe::Step& step) const {
    return e_.remote_buffers[std::get<exe::Issue>(step.body).buffer()];
  }

  void check(const exe::Step& step, const Range& entries) const {
    const exe::RemoteBufferPlan& buffer = buffer_of(step);
    const auto& [low, high] = entries;
    require(low >= 0 && high < buffer.entries,
            "remote buffer {}: entry must be 0 to {}, got {} (made at {})", buffer.name,
            buffer.entries - 1,
            low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high), step.where);
  }

  // Whether a function moves remote entries, itself or in a callee, and the index parameters on
  // which these entries depend.
  struct Needs {
    bool remote = false;
    std::vector<bool> params;
  };

  static void add(const IndexExpr& x, Needs& needs) {
    for (const IndexExpr::Node& n : x.nodes()) {
      if (n.kind == IndexExpr::Opcode::kParam) sluice::at(needs.params, n.value) = true;
    }
  }

  void find_needs(exe::FunctionId f) {
    const exe::Function& function = e_.functions[f];
    Needs& needs = needs_[f];
    needs.params.resize(static_cast<size_t>(function.index_params), false);
    for (const exe::Step& step : function.steps) {
      if (is_remote(step)) {
        needs.remote = true;
        add(std::get<exe::Issue>(step.body).entry, needs);
      }
      exe::for_each_call(step, [&](const exe::Call& c) {
        const Needs& callee = needs_[c.function];
        needs.remote |= callee.remote;
        for (size_t i = 0; i < c.index_args.size(); ++i) {
          if (callee.params[i]) add(c.index_args[i], needs);
        }
      });
    }
  }

  // The bounds of an expression; in an exact walk, whose ranges have one value each, its value.
  Range range_of(const IndexExpr& x, const std::vector<Range>& params, const Range& iteration) {
    if (const auto range = bounds(x, params, iteration)) return *range;
    if (exact_ == Exact::kNo) {
      known_ = false;
      return {};
    }
    std::vector<int64_t> values;
    for (const Range& p : params) values.push_back(p.low);
    const int64_t value = x.evaluate({values, iteration.low, 0});
    return {value, value};
  }

  // Records the entries that function `f` moves. `params`: its index parameters, with 0 for those
  // on which no entry depends, so that equal activations are visited once.
  void walk(exe::FunctionId f, const std::vector<Range>& params) {
    if (!needs_[f].remote || !walked_.insert({f, params}).second) return;
    for (const exe::Step& step : e_.functions[f].steps) {
      if (is_remote(step)) {
        const Range entry = range_of(std::get<exe::Issue>(step.body).entry, params, {});
        auto& [low, high] = seen_.try_emplace(&step, entry).first->second;
        low = std::min(low, entry.low);
        high = std::max(high, entry.high);
      }
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      const int64_t trips = loop == nullptr ? 1 : loop->trips;
      exe::for_each_call(step, [&](const exe::Call& c) {
        if (trips == 0 || !needs_[c.function].remote) return;
        if (exact_ == Exact::kNo || !counts(c)) {
          call(c, params, {0, exact_ == Exact::kNo ? trips - 1 : 0});
        } else {
          for (int64_t it = 0; it < trips; ++it) call(c, params, {it, it});
        }
      });
    }
  }

  // Whether the entries that a call moves depend on the iteration of its loop.
  bool counts(const exe::Call& c) const {
    const Needs& callee = needs_[c.function];
    for (size_t i = 0; i < c.index_args.size(); ++i) {
      if (callee.params[i] && c.index_args[i].uses(IndexExpr::Opcode::kIteration)) return true;
    }
    return false;
  }

  void call(const exe::Call& c, const std::vector<Range>& params, const Range& iteration) {
    const Needs& callee = needs_[c.function];
    std::vector<Range> args(c.index_args.size());
    for (size_t i = 0; i < args.size(); ++i) {
      if (callee.params[i]) args[i] = range_of(c.index_args[i], params, iteration);
    }
    walk(c.function, args);
  }

  const exe::Executable& e_;
  Exact exact_;
  Ids<exe::FunctionId, Needs> needs_;
  std::set<std::pair<exe::FunctionId, std::vector<Range>>> walked_;
  std::map<const exe::Step*, Range> seen_;
  bool known_ = true;  ///< Each expression has bounds.
};

}  // namespace

// Bounds suffice for nearly all plans, and their cost does not depend on the trip counts of loops.
void check_entries(const exe::Executable& executable) {
  if (executable.remote_buffers.empty()) return;
  if (EntryWalk(executable, Exact::kNo).fits()) return;
  EntryWalk exact(executable, Exact::kYes);
  if (!exact.fits()) exact.check();
}

}  // namespace sluice::compiler
