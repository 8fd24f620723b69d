#include "sluice/compiler/analysis/indices.h"

#include <algorithm>
#include <limits>

#include "sluice/ops/arithmetic.h"

namespace sluice::compiler {
namespace {

using exe::IndexExpr;

// Larger expressions are not folded. 16 nodes fit the stack of IndexExpr::evaluate, which then
// needs no allocation.
constexpr size_t kMaxNodes = 16;

bool is_index(const TensorSpec& spec) {
  return spec.elements() == 1 && (spec.dtype == i32 || spec.dtype == u32);
}

bool fits(const IndexRange& r, DType dtype) {
  return dtype == i32 ? r.low >= INT32_MIN && r.high <= INT32_MAX
                      : r.low >= 0 && r.high <= int64_t{UINT32_MAX};
}

// Returns the fact if `range` fits the dtype and the expression is small. Beyond the dtype, the op
// wraps around but the expression does not.
std::optional<IndexFact> checked(IndexExpr expr, const IndexRange& range, DType dtype) {
  if (!fits(range, dtype) || expr.nodes().size() > kMaxNodes) return std::nullopt;
  return IndexFact{std::move(expr), range};
}

// A number of iterations: its expression and its range.
struct Times {
  IndexExpr expr;
  IndexRange range;
};

// The value of `start` after `times` applications of `by`.
std::optional<IndexFact> advanced(const IndexFact& start, const IndexTable::Offset& by,
                                  const Times& times, DType dtype) {
  const IndexRange add{std::min(by.add * times.range.low, by.add * times.range.high),
                       std::max(by.add * times.range.low, by.add * times.range.high)};
  const IndexRange range{start.range.low + add.low, start.range.high + add.high};
  const IndexExpr expr = start.expr + times.expr * by.add;
  const auto in_modulus = [&](const IndexRange& r) { return r.low >= 0 && r.high < by.modulus; };
  if (by.modulus == 0 || in_modulus(range)) return checked(expr, range, dtype);
  // After 0 applications, the value is a remainder only if `start` is one.
  if (times.range.low == 0 && !in_modulus(start.range)) return std::nullopt;
  return checked(expr % by.modulus, {0, by.modulus - 1}, dtype);
}

IndexRule rule_of(const Node& node) {
  if (node.is<Node::View>() || node.is<Node::Copy>()) return IndexRule::kSame;
  const bool one_op = node.is<Node::Kernel>() && !node.has_stages() && node.outputs.size() == 1;
  return one_op ? node.def->index_rule : IndexRule::kNone;
}

// Whether a node is an op with an index rule on single i32 or u32 elements.
bool is_index_arithmetic(const Node& node) {
  return rule_of(node) != IndexRule::kNone && is_index(node.out_specs[0]) &&
         std::all_of(node.in_specs.begin(), node.in_specs.end(), is_index);
}

std::optional<int64_t> scalar_of(const Program& program, const Body& body, ValueIndex v) {
  const BodyValue& value = body.value(v);
  if (value.source != BodyValue::Source::kConstant || !is_index(value.spec)) return std::nullopt;
  const HostTensor& data = *program.constants[ConstantIndex(value.index)].data;
  return static_cast<int64_t>(data.to_doubles()[0]);
}

// The range of op(x, y) for x in `a` and y in `b`. Requires an op that is monotone in each operand.
template <typename Op>
IndexRange corners(const IndexRange& a, const IndexRange& b, Op op) {
  const int64_t all[] = {op(a.low, b.low), op(a.low, b.high), op(a.high, b.low),
                         op(a.high, b.high)};
  return {*std::min_element(all, all + 4), *std::max_element(all, all + 4)};
}

IndexTable::Offset remainder_of(const Node& increment_mod) {
  const auto o = from_attrs<ops::IncrementModOptions>(increment_mod.as<Node::Kernel>()->attrs);
  return {0, static_cast<int64_t>(o.increment), static_cast<int64_t>(o.modulus)};
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

}  // namespace

// --- facts of one body ---

Indices::Indices(const Program& program, const Body& body, const IndexTable& table,
                 const std::vector<std::optional<IndexFact>>& params,
                 const std::optional<IndexRange>& iteration)
    : body_(body), table_(table), index_params_(body.index_params), facts_(body.values.size()) {
  if (body.role == Role::kLoopBody && !index_params_[0]) index_params_[0] = iteration;
  for (const ValueIndex v : facts_.ids()) {
    const auto number = scalar_of(program, body, v);
    if (number) facts_[v] = {IndexExpr(*number), {*number, *number}};
  }
  for (size_t p = 0; p < std::min(params.size(), body.params.size()); ++p)
    facts_[body.params[p].in] = params[p];
  for (const Node& node : body.nodes) find_facts(node);
}

void Indices::find_facts(const Node& node) {
  const auto fact = [&](size_t output) -> std::optional<IndexFact>& {
    return facts_[node.outputs[output]];
  };
  if (is_index_arithmetic(node) && node.outputs[0] != kNone) {
    fact(0) = of_kernel(node);
  } else if (const auto* index = node.as<Node::Index>()) {
    const auto& leaf = index->value.nodes();
    if (leaf.size() != 1 || leaf[0].kind != IndexExpr::Opcode::kParam) return;
    const auto& range = at(index_params_, leaf[0].value);
    if (range) fact(0) = checked(index->value, *range, node.out_specs[0].dtype);
  } else if (const auto* loop = node.as<Node::Loop>()) {
    const Times all{loop->trips, {loop->trips, loop->trips}};
    for (size_t k = 0; k < node.carried(); ++k) {
      const auto& start = of(node.inputs[k]);
      const auto by = step(*loop, k);
      if (start && by && node.outputs[k] != kNone && argument(node, k))
        fact(k) = advanced(*start, *by, all, node.out_specs[k].dtype);
    }
  } else if (const auto* call = node.as<Node::Call>()) {
    for (size_t r = 0; r < table_.result_count(call->callee); ++r) {
      const auto offset = table_.result(call->callee, r);
      if (!offset || node.outputs[r] == kNone || !is_index(node.out_specs[r])) continue;
      const auto& from = of(node.inputs[offset->param]);
      if (from) fact(r) = advanced(*from, *offset, {1, {1, 1}}, node.out_specs[r].dtype);
    }
  }
}

std::optional<IndexFact> Indices::of_kernel(const Node& node) const {
  const auto& a = of(node.inputs[0]);
  const auto& b = of(node.inputs.back());
  const DType dtype = node.out_specs[0].dtype;
  if (!a || !b) return std::nullopt;
  switch (rule_of(node)) {
    case IndexRule::kSame:
      return checked(a->expr, a->range, dtype);
    case IndexRule::kAdd:
      return checked(a->expr + b->expr, corners(a->range, b->range, std::plus<>()), dtype);
    case IndexRule::kSub:
      return checked(a->expr - b->expr, corners(a->range, b->range, std::minus<>()), dtype);
    case IndexRule::kMul:
      // A product of 32-bit numbers overflows int64 only if both factors exceed INT32_MAX.
      if (a->range.high > INT32_MAX && b->range.high > INT32_MAX) return std::nullopt;
      return checked(a->expr * b->expr, corners(a->range, b->range, std::multiplies<>()), dtype);
    case IndexRule::kDiv:
      // The op returns 0 for x / 0, but the expression fails.
      if (b->range.low <= 0 && b->range.high >= 0) return std::nullopt;
      return checked(a->expr / b->expr, corners(a->range, b->range, floor_div), dtype);
    case IndexRule::kIncrementMod:
      return advanced(*a, remainder_of(node), {1, {1, 1}}, dtype);
    case IndexRule::kNone:
      break;
  }
  return std::nullopt;
}

std::optional<IndexTable::Offset> Indices::step(const Node::Loop& loop, size_t k) const {
  const auto offset = table_.result(loop.callee, k);
  if (!offset || offset->param != k) return std::nullopt;
  int64_t whole = 0;
  if (__builtin_mul_overflow(offset->add, loop.trips, &whole) ||
      std::max(whole, -whole) > int64_t{1} << 40)
    return std::nullopt;
  return offset;
}

std::optional<IndexFact> Indices::argument(const Node& node, size_t input) const {
  const ValueIndex v = node.inputs[input];
  if (v == kNone || !is_index(node.in_specs[input])) return std::nullopt;
  const auto& fact = of(v);
  if (!fact || input >= node.carried()) return fact;
  const auto& loop = *node.as<Node::Loop>();
  const auto by = step(loop, input);
  if (!by) return std::nullopt;
  const Times before{IndexExpr::iteration(), {0, std::max<int64_t>(loop.trips - 1, 0)}};
  return advanced(*fact, *by, before, node.in_specs[input].dtype);
}

// --- facts of all bodies ---

namespace {

void join(const IndexRange& range, std::optional<IndexRange>& known) {
  known = !known ? range
                 : IndexRange{std::min(known->low, range.low), std::max(known->high, range.high)};
}

}  // namespace

IndexTable::IndexTable(const Program& program) : program_(program), facts_(program.bodies.size()) {
  for (const BodyId id : callees_first(program)) {
    const Body& body = program.body(id);
    Facts& facts = facts_[id];
    facts.ranges.resize(body.params.size());
    find_results(body, facts);
    find_wanted(body, facts);
  }
  for (const BodyId id : callers_first(program)) {
    const Body& body = program.body(id);
    std::vector<std::optional<IndexFact>> params;
    for (size_t p = 0; p < body.params.size(); ++p) {
      const auto known = range(id, p);
      params.push_back(
          known ? std::optional(IndexFact{IndexExpr::param(static_cast<int64_t>(p)), *known})
                : std::nullopt);
    }
    const Indices indices(program, body, *this, params, iteration(id));
    for (const Node& node : body.nodes) {
      const auto* call = node.call();
      if (call == nullptr) continue;
      Facts& callee = facts_[call->callee];
      if (const auto* loop = node.as<Node::Loop>()) join({0, loop->trips - 1}, callee.iteration);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto fact = indices.argument(node, i);
        if (fact && callee.wanted[i]) join(fact->range, callee.ranges[i]);
      }
    }
  }
}

bool IndexTable::is_wanted(BodyId body, size_t param) const { return facts(body).wanted[param]; }

std::optional<IndexRange> IndexTable::range(BodyId body, size_t param) const {
  return facts(body).ranges[param];
}

std::optional<IndexRange> IndexTable::iteration(BodyId body) const { return facts(body).iteration; }

std::optional<IndexTable::Offset> IndexTable::result(BodyId body, size_t result) const {
  const Facts& known = facts(body);
  return result < known.results.size() ? known.results[result] : std::nullopt;
}

void IndexTable::find_results(const Body& body, Facts& facts) const {
  Ids<ValueIndex, std::optional<Offset>> of(body.values.size());
  // Reject offsets far beyond any counter, so that sums do not overflow.
  const auto then = [](const std::optional<Offset>& from,
                       const Offset& by) -> std::optional<Offset> {
    if (!from || std::max(by.add, -by.add) > int64_t{1} << 33) return std::nullopt;
    // Reject sums that are not an Offset. A sum may wrap around before its remainder is taken, and
    // a remainder plus a number is not a remainder.
    const bool fits = by.modulus == 0      ? from->modulus == 0
                      : from->modulus == 0 ? from->add == 0
                                           : from->modulus % by.modulus == 0;
    const Offset sum{from->param, from->add + by.add, by.modulus};
    if (!fits || std::max(sum.add, -sum.add) > int64_t{1} << 40) return std::nullopt;
    return sum;
  };
  const auto plus = [&](const std::optional<Offset>& from, std::optional<int64_t> add) {
    return add ? then(from, {0, *add}) : std::nullopt;
  };
  for (size_t p = 0; p < body.params.size(); ++p) {
    if (is_index(body.value(body.params[p].in).spec)) of[body.params[p].in] = Offset{p, 0};
  }
  for (const Node& node : body.nodes) {
    if (is_index_arithmetic(node) && node.outputs[0] != kNone) {
      const ValueIndex a = node.inputs[0];
      const ValueIndex b = node.inputs.back();
      std::optional<Offset>& out = of[node.outputs[0]];
      const IndexRule kind = rule_of(node);
      // Follow a value only within one dtype: a cast changes negative and large numbers, and
      // therefore their remainders.
      const bool same_dtype = node.in_specs[0].dtype == node.out_specs[0].dtype;
      if (kind == IndexRule::kSame && same_dtype) out = of[a];
      if (kind == IndexRule::kAdd) {
        out = plus(of[a], scalar_of(program_, body, b));
        if (!out) out = plus(of[b], scalar_of(program_, body, a));
      }
      if (kind == IndexRule::kSub) {
        const auto number = scalar_of(program_, body, b);
        if (number) out = plus(of[a], -*number);
      }
      if (kind == IndexRule::kIncrementMod) out = then(of[a], remainder_of(node));
    }
    if (const auto* call = node.as<Node::Call>()) {
      for (size_t r = 0; r < result_count(call->callee); ++r) {
        const auto inner = result(call->callee, r);
        if (inner && node.outputs[r] != kNone)
          of[node.outputs[r]] = then(of[node.inputs[inner->param]], *inner);
      }
    }
  }
  for (const ValueIndex v : body.results)
    facts.results.push_back(v == kNone ? std::nullopt : of[v]);
}

void IndexTable::find_wanted(const Body& body, Facts& facts) const {
  Ids<ValueIndex, bool> wanted(body.values.size());
  const auto want = [&](ValueIndex v) {
    if (v != kNone && is_index(body.value(v).spec)) wanted[v] = true;
  };
  const auto is = [&](ValueIndex v) { return v != kNone && wanted[v]; };
  for (size_t n = body.nodes.size(); n-- > 0;) {
    const Node& node = body.nodes[NodeId(n)];
    if (computes_entry(node)) want(node.inputs.back());
    if (is_index_arithmetic(node) && is(node.outputs[0])) {
      for (const ValueIndex v : node.inputs) want(v);
    }
    const auto* call = node.call();
    if (call == nullptr) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool counts = i < node.carried() && is(node.outputs[i]);
      if (counts || is_wanted(call->callee, i)) want(node.inputs[i]);
    }
    for (size_t r = 0; node.is<Node::Call>() && r < result_count(call->callee); ++r) {
      const auto inner = result(call->callee, r);
      if (inner && is(node.outputs[r])) want(node.inputs[inner->param]);
    }
  }
  for (const BodyParam& p : body.params) facts.wanted.push_back(wanted[p.in]);
}

// --- entries ---

bool computes_entry(const Node& node) {
  const auto* t = node.as<Node::Transfer>();
  return t != nullptr && t->effect.entry < 0 && !t->entry &&
         (t->effect.kind == Effect::Action::kRemoteLoad ||
          t->effect.kind == Effect::Action::kRemoteStore);
}

std::optional<IndexExpr> entry_of(const Node::Transfer& transfer) {
  if (transfer.effect.entry >= 0) return IndexExpr(transfer.effect.entry);
  return transfer.entry;
}

bool differ(const IndexExpr& a, const IndexExpr& b) {
  using Opcode = IndexExpr::Opcode;
  // Splits an expression into a prefix and an added constant. Returns the number of nodes of the
  // prefix, and the constant.
  const auto split = [](const IndexExpr& x) -> std::pair<size_t, int64_t> {
    const auto& nodes = x.nodes();
    if (x.is_constant()) return {0, x.constant()};
    const Opcode last = nodes.back().kind;
    if ((last != Opcode::kAdd && last != Opcode::kSub) || nodes.end()[-2].kind != Opcode::kConstant)
      return {nodes.size(), 0};
    const int64_t number = nodes.end()[-2].value;
    return {nodes.size() - 2, last == Opcode::kAdd ? number : -number};
  };
  const auto [a_size, a_add] = split(a);
  const auto [b_size, b_add] = split(b);
  return a_size == b_size && a_add != b_add &&
         std::equal(a.nodes().begin(), a.nodes().begin() + static_cast<std::ptrdiff_t>(a_size),
                    b.nodes().begin());
}

}  // namespace sluice::compiler
