#include "sluice/compiler/lower/provenance.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

class Carrier {
 public:
  explicit Carrier(exe::Executable& e) : e_(e), sources_(e.values.size(), exe::kNoValue) {}

  void run() {
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& step : f.steps) {
        if (const auto* send = std::get_if<exe::Send>(&step.body))
          sent_.try_emplace(message_of(send->operand), send->operand.value);
      }
    }
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& step : f.steps) link(step);
    }
    for (const exe::ValueId v : sources_.ids()) resolve(v);
    for (exe::Function& f : e_.functions) give(f);
  }

 private:
  int32_t& row(exe::ValueId v) { return e_.origins.values[v]; }

  int32_t message_of(const exe::Operand& o) const {
    return o.value < 0 ? -1 : e_.values[o.value].message;
  }

  void link(exe::ValueId value, exe::ValueId source) {
    if (value < 0 || source < 0) return;
    exe::ValueId& known = sources_[value];
    if (known == exe::kNoValue) known = source;
  }

  void link(const exe::Step& step) {
    const auto* kernel = std::get_if<exe::Kernel>(&step.body);
    if (kernel != nullptr && step.provenance < 0)
      link(kernel->operands.back().value, kernel->operands.front().value);
    if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      const auto sent = sent_.find(message_of(receive->operand));
      if (sent != sent_.end()) link(receive->operand.value, sent->second);
    }
    exe::for_each_call(step, [&](const exe::Call& call) {
      const Ids<exe::ParamId, exe::Param>& params = e_.functions[call.function].params;
      for (const exe::ParamId a : call.args.ids()) {
        const exe::Operand& arg = call.args[a];
        const bool result = params[a].access == exe::Access::kWrite;
        link(result ? arg.value : params[a].value, result ? params[a].value : arg.value);
        link(arg.made, params[a].made);
      }
    });
  }

  // Follows the sources of a value. They may form a cycle through the parameters of a loop.
  void resolve(exe::ValueId v) {
    std::vector<exe::ValueId> path;
    exe::ValueId at = v;
    while (at >= 0 && row(at) < 0 && path.size() <= sources_.size()) {
      path.push_back(at);
      at = std::exchange(sources_[at], exe::kNoValue);
    }
    if (at < 0) return;
    for (const exe::ValueId other : path) row(other) = row(at);
  }

  void give(exe::Function& f) {
    std::map<int32_t, int32_t> transfers;  // Keyed by token.
    for (exe::Step& step : f.steps) {
      if (const auto* wait = std::get_if<exe::Wait>(&step.body)) {
        const auto issued = transfers.find(wait->token);
        if (issued != transfers.end()) step.provenance = issued->second;
        continue;
      }
      const auto* branch = std::get_if<exe::Branch>(&step.body);
      if (step.provenance < 0 && branch == nullptr) {
        exe::for_each_operand(step, [&](const exe::Operand& o) {
          if (step.provenance < 0 && o.value >= 0) step.provenance = row(o.value);
        });
      }
      if (const auto* issue = std::get_if<exe::Issue>(&step.body))
        transfers[issue->token] = step.provenance;
    }
  }

  exe::Executable& e_;
  Ids<exe::ValueId, exe::ValueId> sources_;
  std::map<int32_t, exe::ValueId> sent_;  // Indexed by number of the message.
};

}  // namespace

void carry_provenances(exe::Executable& executable) { Carrier(executable).run(); }

ValueIndex first_held(const Storage& storage, const Block& block) {
  const auto begins_earlier = [&](TenantId a, TenantId b) {
    return storage.tenants[a].begin < storage.tenants[b].begin;
  };
  const auto first = std::min_element(block.tenants.begin(), block.tenants.end(), begins_earlier);
  return storage.tenants[*first].root;
}

bool has_provenance(const Node& node) {
  const auto* transfer = node.as<Node::Transfer>();
  const bool stores = transfer != nullptr && node.outputs.empty();
  return !stores && !node.is<Node::Copy>() && !node.is<Node::Send>() && !node.is<Node::Receive>() &&
         !node.is<Node::Wait>();
}

std::vector<SharedProvenance> provenances_of(const Node& node) {
  const auto* kernel = node.as<Node::Kernel>();
  if (kernel != nullptr && !kernel->origins.empty()) return kernel->origins;
  const size_t stages = kernel != nullptr ? kernel->stages.size() : 0;
  return std::vector<SharedProvenance>(std::max<size_t>(stages, 1), node.provenance);
}

Ids<ValueIndex, int32_t> provenances_of(const Body& body, Tables& tables) {
  Ids<ValueIndex, int32_t> rows(body.values.size(), -1);
  for (const Node& node : body.nodes) {
    if (!has_provenance(node) || has_callees(node) || node.is<Node::View>()) continue;
    const auto* kernel = node.as<Node::Kernel>();
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNone) continue;
      const SharedProvenance* own = &node.provenance;
      for (size_t s = 0; kernel != nullptr && s < kernel->origins.size(); ++s) {
        if (kernel->stages[s].output == static_cast<int32_t>(node.inputs.size() + o))
          own = &kernel->origins[s];
      }
      rows[node.outputs[o]] = tables.row_of(*own);
    }
  }
  return rows;
}

}  // namespace sluice::compiler
