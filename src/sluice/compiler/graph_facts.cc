#include "sluice/compiler/graph_facts.h"

#include <algorithm>
#include <map>

#include "sluice/exe/validate.h"
#include "sluice/ir/builtin.h"
#include "sluice/ir/verify.h"
#include "sluice/ops/collectives.h"

namespace sluice::compiler {

namespace {

std::string name_of(const Sequence& s, const Ir& ir) {
  return s.of == Sequence::Of::kStream ? "stream '" + ir.stream(s.id).name + "'" : "a collective";
}

}  // namespace

FactTable::FactTable(const Ir& ir) : replicas_(ir.replication()) {
  check_calls(ir);
  for (const auto& [name, id] : ir.entries()) visit(ir, id);
}

// A call makes a version even if its callee only reads what it gets by reference.
bool FactTable::is_written(const Graph& graph, int32_t storage) const {
  const auto& writers = graph.storage(storage).writers;
  for (size_t v = 1; v < writers.size(); ++v) {
    const Op& op = graph.op(writers[v].op);
    if (op.callees.empty()) return true;
    const size_t skipped = op.def == &builtin::loop() ? 2 : 0;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const Operand& operand = op.inputs[i];
      if (operand.mode == Mode::kRead || graph.info(operand.tensor).storage != storage) continue;
      if (facts_.at(op.callees[0]).writes_input[i + skipped]) return true;
    }
  }
  return false;
}

void FactTable::add_group(const Op& collective, const Graph& graph) {
  try {
    const ReplicaGrouping group = ops::collective_group(collective.attrs, replicas_);
    if (std::find(groups_.begin(), groups_.end(), group) == groups_.end()) groups_.push_back(group);
  } catch (Error& e) {
    throw e.note(fmt::format("compiling {} of graph {}", collective.label(), graph.name()));
  }
}

int32_t FactTable::group_of(const Attrs& collective) const {
  const ReplicaGrouping group = ops::collective_group(collective, replicas_);
  return static_cast<int32_t>(std::find(groups_.begin(), groups_.end(), group) - groups_.begin());
}

void FactTable::visit(const Ir& ir, GraphId id) {
  if (visited_.contains(id)) return;
  visited_.insert(id);
  const Graph& graph = ir.graph(id);
  GraphFacts facts;
  std::map<Sequence, int64_t> sequences;
  for (const Op& op : graph.ops()) {
    for (const Effect& e : op.effects) {
      facts.has_effects = true;
      if (e.kind == Effect::Kind::kStreamRead || e.kind == Effect::Kind::kStreamWrite)
        ++sequences[{Sequence::Of::kStream, e.id}];
      if (e.kind == Effect::Kind::kRemoteStore) facts.stores_to.insert(e.id);
      if (e.kind == Effect::Kind::kRemoteLoad) facts.loads_from.insert(e.id);
    }
    if (op.def->has(Trait::kCollective)) {
      facts.has_effects = true;
      add_group(op, graph);
      ++sequences[{Sequence::Of::kGroup, group_of(op.attrs)}];
    }
    for (const GraphId callee : op.callees) {
      visit(ir, callee);
      facts.has_effects = facts.has_effects || facts_[callee].has_effects;
      facts.stores_to.insert(facts_[callee].stores_to.begin(), facts_[callee].stores_to.end());
      facts.loads_from.insert(facts_[callee].loads_from.begin(), facts_[callee].loads_from.end());
    }
    if (op.def == &builtin::call()) ++facts_[op.callees[0]].call_sites;
    if (op.callees.empty()) continue;
    const int64_t times =
        op.def == &builtin::loop() ? from_attrs<builtin::LoopOptions>(op.attrs).trips : 1;
    if (op.def == &builtin::branch()) {
      for (const GraphId callee : op.callees) {
        for (const SequenceUse& use : facts_[callee].sequences) {
          fail(ErrorKind::kUsage,
               "{} in graph {}: its branch {} uses {}; a conditional may not communicate",
               op.label(), graph.name(), ir.graph(callee).name(), name_of(use.sequence, ir));
        }
      }
      continue;
    }
    if (times == 0) continue;
    for (const SequenceUse& use : facts_[op.callees[0]].sequences) {
      int64_t uses = 0;
      int64_t& sum = sequences[use.sequence];
      require(!__builtin_mul_overflow(times, use.count, &uses) &&
                  !__builtin_add_overflow(sum, uses, &sum) && sum <= exe::kMaxSize,
              "{}: graph {} uses more than {} entries of it", name_of(use.sequence, ir),
              graph.name(), exe::kMaxSize);
    }
  }
  for (const auto& [sequence, count] : sequences) facts.sequences.push_back({sequence, count});
  for (const TensorId input : graph.input_ids()) {
    const TensorInfo& info = graph.info(input);
    facts.writes_input.push_back(info.pass == Pass::kByReference &&
                                 is_written(graph, info.storage));
  }
  facts.call_sites = facts_[id].call_sites;
  facts_[id] = std::move(facts);
}

}  // namespace sluice::compiler
