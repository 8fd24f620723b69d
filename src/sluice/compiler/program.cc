#include "sluice/compiler/program.h"

#include <algorithm>
#include <functional>

#include "sluice/base/error.h"

namespace sluice::compiler {

BodyId Program::add(Body body) {
  bodies.push_back(std::move(body));
  return BodyId(bodies.size() - 1);
}

exe::VariableId Program::variable(const TensorInfo& info) {
  const auto [found, fresh] =
      variable_index.try_emplace(info.variable.get(), static_cast<int32_t>(variables.size()));
  if (fresh) variables.push_back({info.variable, info.spec, info.name, 0, {}});
  return exe::VariableId(found->second);
}

ConstantIndex Program::constant(const TensorInfo& info) {
  const auto [found, fresh] = constant_index.try_emplace(info.constant.get(), constants.end_id());
  if (fresh) constants.push_back({info.name, info.constant});
  return found->second;
}

const Target& Context::target(int32_t device) const {
  require(device >= 0 && device < static_cast<int32_t>(options.devices.size()),
          "compile: there is no device {}, the program has {}", device, options.devices.size());
  return *at(options.devices, device).target;
}

namespace {

enum class Calls : uint8_t { kInOrder, kBackwards };

// Returns the bodies that the entries reach, each after its callees. kBackwards visits entries and
// calls in reverse order.
std::vector<BodyId> in_postorder(const Program& program, Calls calls) {
  std::vector<BodyId> order;
  Ids<BodyId, bool> seen(program.bodies.size());
  const auto reversed = [&](std::vector<BodyId> ids) {
    if (calls == Calls::kBackwards) std::reverse(ids.begin(), ids.end());
    return ids;
  };
  const std::function<void(BodyId)> visit = [&](BodyId id) {
    if (seen[id]) return;
    seen[id] = true;
    std::vector<BodyId> callees;
    for (const Node& node : program.body(id).nodes)
      for_each_callee(node, [&](BodyId callee) { callees.push_back(callee); });
    for (const BodyId callee : reversed(std::move(callees))) visit(callee);
    order.push_back(id);
  };
  std::vector<BodyId> entries;
  for (const EntryBodies& entry : program.entries)
    entries.insert(entries.end(), entry.bodies.begin(), entry.bodies.end());
  for (const BodyId id : reversed(std::move(entries))) visit(id);
  return order;
}

}  // namespace

std::vector<BodyId> callees_first(const Program& program) {
  return in_postorder(program, Calls::kInOrder);
}

std::vector<BodyId> callers_first(const Program& program) {
  std::vector<BodyId> order = in_postorder(program, Calls::kBackwards);
  std::reverse(order.begin(), order.end());
  return order;
}

int64_t merge_equal_bodies(Program& program) {
  std::map<std::pair<GraphId, Role>, std::vector<BodyId>> kept;
  std::map<BodyId, BodyId> merged;
  for (const BodyId id : callees_first(program)) {
    Body& body = program.body(id);
    for (Node& node : body.nodes) {
      for_each_callee(node, [&](BodyId& callee) {
        const auto other = merged.find(callee);
        if (other != merged.end()) callee = other->second;
      });
    }
    auto& alike = kept[{body.graph, body.role}];
    const auto equal = std::find_if(alike.begin(), alike.end(), [&](BodyId other) {
      return !body.is_entry() && program.body(other) == body;
    });
    if (equal == alike.end()) {
      alike.push_back(id);
    } else {
      merged[id] = *equal;
    }
  }
  return static_cast<int64_t>(merged.size());
}

}  // namespace sluice::compiler
