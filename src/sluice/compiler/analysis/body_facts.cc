#include "sluice/compiler/analysis/body_facts.h"

#include <algorithm>
#include <map>

#include "sluice/exe/validate.h"

namespace sluice::compiler {
namespace {

std::string name_of(const Sequence& s, const Program& program) {
  switch (s.of) {
    case Sequence::Of::kStream:
      return "stream '" + program.ir.stream(s.id).name + "'";
    case Sequence::Of::kGroup:
      return "a collective";
    case Sequence::Of::kChannel:
      return "a message between devices";
  }
  return "";
}

std::string label(const Node& node) { return fmt::format("{}.{}", name_of(node), node.origin); }

void join(const BodyFacts& callee, BodyFacts& facts) {
  facts.has_effects = facts.has_effects || callee.has_effects;
  facts.stores_to.insert(callee.stores_to.begin(), callee.stores_to.end());
  facts.loads_from.insert(callee.loads_from.begin(), callee.loads_from.end());
}

}  // namespace

std::optional<Sequence> sequence_of(const Node& node) {
  if (const auto* t = node.as<Node::Transfer>()) {
    const auto kind = t->effect.kind;
    if (kind == Effect::Action::kStreamRead || kind == Effect::Action::kStreamWrite)
      return Sequence{Sequence::Of::kStream, t->effect.id};
  }
  if (const auto* c = node.as<Node::Collective>()) return Sequence{Sequence::Of::kGroup, c->group};
  if (const auto* s = node.as<Node::Send>()) return Sequence{Sequence::Of::kChannel, s->channel};
  if (const auto* r = node.as<Node::Receive>()) return Sequence{Sequence::Of::kChannel, r->channel};
  return std::nullopt;
}

FactTable::FactTable(const Program& program) : facts_(program.bodies.size()) {
  for (const BodyId id : callees_first(program)) facts_[id] = facts_of(program, program.body(id));
}

BodyFacts FactTable::facts_of(const Program& program, const Body& body) const {
  BodyFacts facts;
  std::map<Sequence, int64_t> sequences;
  const auto use = [&](const Sequence& sequence, int64_t times, int64_t count) {
    int64_t uses = 0;
    int64_t& sum = sequences[sequence];
    require(!__builtin_mul_overflow(times, count, &uses) &&
                !__builtin_add_overflow(sum, uses, &sum) && sum <= exe::kMaxSize,
            "graph {}: must use {} at most {} times, got more", body.name,
            name_of(sequence, program), exe::kMaxSize);
  };
  for (const Node& node : body.nodes) {
    if (const auto sequence = sequence_of(node)) {
      facts.has_effects = true;
      use(*sequence, 1, 1);
    }
    if (const auto* kernel = node.as<Node::Kernel>()) facts.has_effects |= kernel->prints;
    if (const auto* t = node.as<Node::Transfer>()) {
      facts.has_effects = true;
      if (t->effect.kind == Effect::Action::kRemoteStore) facts.stores_to.insert(t->effect.id);
      if (t->effect.kind == Effect::Action::kRemoteLoad) facts.loads_from.insert(t->effect.id);
    }
    for_each_callee(node, [&](BodyId callee) { join((*this)[callee], facts); });
    if (const auto* branch = node.as<Node::Branch>()) {
      for (const BodyId callee : branch->callees) {
        for (const SequenceUse& u : (*this)[callee].sequences) {
          fail(ErrorKind::kUsage,
               "{} in graph {}: its branch {} uses {}; a conditional may not communicate",
               label(node), body.name, program.body(callee).name, name_of(u.sequence, program));
        }
      }
    }
    if (const auto* loop = node.as<Node::Loop>(); loop && !loop->conditions.empty()) {
      for (const SequenceUse& u : (*this)[loop->callee].sequences) {
        require(
            u.sequence.of != Sequence::Of::kStream || program.ir.stream(u.sequence.id).feed >= 0,
            "{} in graph {}: a loop with a condition must use feeds, got {}, which has a fixed "
            "number of entries; use an infeed or an outfeed",
            label(node), body.name, name_of(u.sequence, program));
      }
    }
    if (const auto* call = node.call()) {
      const int64_t times = node.is<Node::Loop>() ? node.as<Node::Loop>()->trips : 1;
      for (const SequenceUse& u : (*this)[call->callee].sequences) use(u.sequence, times, u.count);
    }
  }
  for (const auto& [sequence, count] : sequences) facts.sequences.push_back({sequence, count});
  return facts;
}

bool has_effect(const Node& node, const FactTable& facts) {
  if (sequence_of(node) || node.is<Node::Transfer>()) return true;
  if (const auto* kernel = node.as<Node::Kernel>()) return kernel->prints;
  bool found = false;
  for_each_callee(node, [&](BodyId callee) { found |= facts[callee].has_effects; });
  return found;
}

}  // namespace sluice::compiler
