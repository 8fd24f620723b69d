#include "sluice/compiler/program.h"

#include <algorithm>
#include <functional>

#include "sluice/base/error.h"

namespace sluice::compiler {

BodyId Program::add(Body body) {
  bodies.push_back(std::move(body));
  return static_cast<BodyId>(bodies.size() - 1);
}

int32_t Program::variable(const TensorInfo& info) {
  const auto [place, fresh] =
      variable_index.try_emplace(info.variable.get(), static_cast<int32_t>(variables.size()));
  if (fresh) variables.push_back({info.variable, info.spec, info.name, 0, {}});
  return place->second;
}

int32_t Program::constant(const TensorInfo& info) {
  const auto [place, fresh] =
      constant_index.try_emplace(info.constant.get(), static_cast<int32_t>(constants.size()));
  if (fresh) constants.push_back({info.name, info.constant});
  return place->second;
}

const Target& Context::target(int32_t device) const {
  require(device >= 0 && device < static_cast<int32_t>(options.devices.size()),
          "compile: there is no device {}, the program has {}", device, options.devices.size());
  return *options.devices[static_cast<size_t>(device)].target;
}

std::vector<BodyId> callees_first(const Program& program) {
  std::vector<BodyId> order;
  std::vector<bool> seen(program.bodies.size(), false);
  const std::function<void(BodyId)> visit = [&](BodyId id) {
    if (seen[static_cast<size_t>(id)]) return;
    seen[static_cast<size_t>(id)] = true;
    for (const Node& node : program.body(id).nodes) for_each_callee(node, visit);
    order.push_back(id);
  };
  for (const EntryBodies& entry : program.entries) {
    for (const BodyId id : entry.bodies) visit(id);
  }
  return order;
}

std::vector<BodyId> callers_first(const Program& program) {
  std::vector<BodyId> order = callees_first(program);
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace sluice::compiler
