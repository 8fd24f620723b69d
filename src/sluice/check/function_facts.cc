#include "sluice/check/function_facts.h"

#include <algorithm>
#include <numeric>

#include "sluice/check/saturating.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/remote_trace.h"
#include "sluice/exe/visit_step.h"

namespace sluice::check {
namespace {

using Opcode = exe::IndexExpr::Opcode;

/// Returns the least common multiple of two periods. Period 0 represents "the whole number"; joined
/// with any period it remains 0. Multiples above 2^40 also become 0.
int64_t join(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  const int64_t g = std::gcd(a, b);
  int64_t r = 0;
  return __builtin_mul_overflow(a / g, b, &r) || r > (int64_t{1} << 40) ? 0 : r;
}

/// Returns the modulus to which the leaf `kind` number `index` must be known, where `expr` must be
/// known modulo `modulus`. A modulus of 0 means exactly; the result is 1 if the leaf does not
/// occur.
int64_t period(const exe::IndexExpr& expr, int64_t modulus, Opcode kind, int64_t index) {
  int64_t result = 1;
  const auto& nodes = expr.nodes();
  // Read backwards, postfix order lists a node, then its right operand, then its left operand.
  std::vector<int64_t> needs{modulus};
  for (size_t i = nodes.size(); i-- > 0;) {
    const int64_t need = needs.back();
    needs.pop_back();
    switch (nodes[i].kind) {
      case Opcode::kConstant:
        break;
      case Opcode::kIteration:
      case Opcode::kReplica:
      case Opcode::kParam:
        if (nodes[i].kind == kind && (kind != Opcode::kParam || nodes[i].value == index))
          result = join(result, need);
        break;
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kMul:  // The residue of a result follows from the residues of its operands.
        needs.push_back(need);
        needs.push_back(need);
        break;
      case Opcode::kDiv:
      case Opcode::kMod: {
        int64_t left = 0;
        const bool constant = i > 0 && nodes[i - 1].kind == Opcode::kConstant;
        const int64_t divisor = constant ? nodes[i - 1].value : 0;
        if (divisor > 0 && nodes[i].kind == Opcode::kMod) left = divisor;
        if (divisor > 0 && nodes[i].kind == Opcode::kDiv && need != 0 &&
            (__builtin_mul_overflow(need, divisor, &left) || left > (int64_t{1} << 40))) {
          left = 0;
        }
        needs.push_back(left);
        needs.push_back(0);
        break;
      }
    }
  }
  return result;
}

/// How an expression depends on parameters and counters. The replica is a constant of a run.
enum class Dependence : uint8_t { kConstant, kAffine, kOther };

Dependence dependence_of(const exe::IndexExpr& expr) {
  std::vector<Dependence> dependences;
  for (const auto& node : expr.nodes()) {
    if (node.kind == Opcode::kConstant || node.kind == Opcode::kReplica) {
      dependences.push_back(Dependence::kConstant);
      continue;
    }
    if (node.kind == Opcode::kIteration || node.kind == Opcode::kParam) {
      dependences.push_back(Dependence::kAffine);
      continue;
    }
    const Dependence right = dependences.back();
    dependences.pop_back();
    Dependence& left = dependences.back();
    const bool sum = node.kind == Opcode::kAdd || node.kind == Opcode::kSub;
    const bool constant = left == Dependence::kConstant && right == Dependence::kConstant;
    const bool scaled = node.kind == Opcode::kMul &&
                        (left == Dependence::kConstant || right == Dependence::kConstant);
    left = constant        ? Dependence::kConstant
           : sum || scaled ? std::max(left, right)
                           : Dependence::kOther;
  }
  return dependences.back();
}

/// Calls f(expression) for the numbers of a step: those of messages, stream entries, collectives,
/// and arguments on which numbers of callees depend.
template <typename F>
void for_each_number(const exe::Step& step, const FactsOfFunctions& facts, F&& f) {
  exe::for_each_call(step, [&](const exe::Call& c) {
    const FunctionFacts& callee = facts[c.function];
    for (size_t i = 0; i < c.index_args.size(); ++i) {
      if (callee.in_numbers[i]) f(c.index_args[i]);
    }
  });
  if (const auto* i = std::get_if<exe::Issue>(&step.body); i != nullptr && i->is_stream())
    f(i->entry);
  if (const auto* s = std::get_if<exe::Send>(&step.body)) f(s->message);
  if (const auto* r = std::get_if<exe::Receive>(&step.body)) f(r->message);
  if (const auto* c = std::get_if<exe::Collective>(&step.body)) f(c->sequence);
}

int64_t address_period(const exe::Address& a, Opcode kind, int64_t index) {
  return a.depth > 0 ? period(a.slot, a.depth, kind, index) : 1;
}

int64_t call_period(const exe::Call& c, const FactsOfFunctions& facts, Opcode kind, int64_t index) {
  int64_t result = address_period(c.frame, kind, index);
  for (const exe::Operand& o : c.args) result = join(result, address_period(o.at, kind, index));
  const FunctionFacts& callee = facts[c.function];
  for (size_t i = 0; i < c.index_args.size(); ++i) {
    if (callee.index_period[i] != 1) {
      result = join(result, period(c.index_args[i], callee.index_period[i], kind, index));
    }
  }
  return result;
}

int64_t step_period(const exe::Step& step, const FactsOfFunctions& facts, Opcode kind,
                    int64_t index) {
  int64_t result = 1;
  exe::for_each_call(
      step, [&](const exe::Call& c) { result = join(result, call_period(c, facts, kind, index)); });
  exe::for_each_operand(step, [&](const exe::Operand& o) {
    result = join(result, address_period(o.at, kind, index));
  });
  const auto* const issue = std::get_if<exe::Issue>(&step.body);
  if (issue != nullptr && !issue->is_stream() && !issue->entry_from)
    result = join(result, period(issue->entry, 0, kind, index));
  return result;
}

FunctionFacts facts_of(const exe::Function& f, const FactsOfFunctions& facts) {
  FunctionFacts out;
  out.index_period.assign(static_cast<size_t>(f.index_params), 1);
  out.in_numbers.assign(static_cast<size_t>(f.index_params), false);
  for (const exe::Step& step : f.steps) {
    if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
      out.communicates |= i->is_stream();
      out.moved = saturating_sum(out.moved, i->is_stream() ? 0 : 1);
    }
    out.communicates |= std::holds_alternative<exe::Send>(step.body) ||
                        std::holds_alternative<exe::Receive>(step.body) ||
                        std::holds_alternative<exe::Collective>(step.body);
    exe::for_each_call(step, [&](const exe::Call& c) {
      out.communicates |= facts[c.function].communicates;
      const auto* const loop = std::get_if<exe::Loop>(&step.body);
      out.moved = saturating_sum(out.moved, saturating_product(loop == nullptr ? 1 : loop->trips,
                                                               facts[c.function].moved));
      out.affine &= facts[c.function].affine;
      out.exits |= facts[c.function].exits;
    });
    if (const auto* l = std::get_if<exe::Loop>(&step.body)) out.exits |= l->condition >= 0;
    for_each_number(step, facts, [&](const exe::IndexExpr& x) {
      out.affine &= dependence_of(x) != Dependence::kOther;
      for (size_t p = 0; p < out.in_numbers.size(); ++p) {
        if (period(x, 0, Opcode::kParam, static_cast<int64_t>(p)) != 1) out.in_numbers[p] = true;
      }
    });
    for (size_t p = 0; p < out.index_period.size(); ++p) {
      out.index_period[p] = join(out.index_period[p],
                                 step_period(step, facts, Opcode::kParam, static_cast<int64_t>(p)));
    }
  }
  out.transfers = out.communicates || out.moved > 0;
  return out;
}

}  // namespace

FactsOfFunctions function_facts(const exe::Executable& executable) {
  FactsOfFunctions facts(executable.functions.size());
  for (const exe::FunctionId f : exe::callees_first(executable)) {
    facts[f] = facts_of(executable.functions[f], facts);
  }
  return facts;
}

bool is_long(const exe::Loop& loop, const FactsOfFunctions& facts) {
  const FunctionFacts& body = facts[loop.body.function];
  return loop.condition < 0 && saturating_product(loop.trips, body.moved) > exe::kLongLoop;
}

int64_t loop_period(const exe::Loop& loop, const FactsOfFunctions& facts) {
  const FunctionFacts& body = facts[loop.body.function];
  if ((body.moved > 0 && !is_long(loop, facts)) || body.exits || !body.affine) return 0;
  for (size_t i = 0; i < loop.body.index_args.size(); ++i) {
    if (body.in_numbers[i] && dependence_of(loop.body.index_args[i]) == Dependence::kOther)
      return 0;
  }
  return call_period(loop.body, facts, Opcode::kIteration, 0);
}

bool uses_replica(const exe::Executable& executable) {
  bool found = false;
  const auto look = [&](const exe::IndexExpr& x) { found |= x.uses(Opcode::kReplica); };
  const auto look_at = [&](const exe::Operand& o) { look(o.at.slot); };
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      exe::for_each_operand(step, look_at);
      exe::for_each_call(step, [&](const exe::Call& c) {
        look(c.frame.slot);
        for (const exe::Operand& o : c.args) look_at(o);
        for (const exe::IndexExpr& x : c.index_args) look(x);
      });
      if (const auto* i = std::get_if<exe::Issue>(&step.body)) look(i->entry);
      if (const auto* s = std::get_if<exe::Send>(&step.body)) look(s->message);
      if (const auto* r = std::get_if<exe::Receive>(&step.body)) look(r->message);
      if (const auto* c = std::get_if<exe::Collective>(&step.body)) look(c->sequence);
    }
  }
  return found;
}

}  // namespace sluice::check
