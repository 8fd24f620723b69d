#include "sluice/compiler/analysis/remote_variables.h"

#include "sluice/base/error.h"

namespace sluice::compiler {
namespace {

void check_readers(const Program& program, const Body& body) {
  const auto check = [&](const Node& node, ValueIndex v) {
    const BodyValue& value = body.value(v);
    if (value.source != BodyValue::Source::kVariable) return;
    const Variable& variable = program.variables[exe::VariableId(value.index)];
    const VariableLocation& location = variable.info->location;
    if (location.buffer <= 0) return;
    fail(ErrorKind::kUsage,
         "{}.{}: variable '{}' lives in entry {} of remote buffer {} and must be read with "
         "remote_load",
         name_of(node), node.origin, variable.name, location.entry, location.buffer);
  };
  for (const Node& node : body.nodes) {
    for (const ValueIndex v : node.inputs) check(node, v);
    for (const Tie& t : node.ties) check(node, t.into);
  }
}

void check_location(const Program& program, const Variable& variable) {
  const VariableLocation& location = variable.info->location;
  if (!location.remote()) return;
  require(location.buffer > 0 && location.buffer <= program.ir.remote_buffer_count(),
          "variable '{}': there is no remote buffer {}, the program has {}", variable.name,
          location.buffer, program.ir.remote_buffer_count());
  const RemoteBufferInfo& buffer = program.ir.remote_buffer_info(location.buffer);
  require(location.entry >= 0 && location.entry < buffer.entries,
          "variable '{}': entry {} is outside the {} entries of remote buffer {}", variable.name,
          location.entry, buffer.entries, location.buffer);
  require(variable.spec == buffer.spec,
          "variable '{}': must be {} like the entries of remote buffer {}, got {}", variable.name,
          to_string(buffer.spec), location.buffer, to_string(variable.spec));
}

}  // namespace

void check_remote_variables(const Program& program) {
  for (const EntryBodies& entry : program.entries) {
    for (const BodyId id : entry.bodies) check_readers(program, program.body(id));
  }
  std::map<std::pair<int32_t, int64_t>, std::string> names;  // Indexed by buffer and entry.
  for (const Variable& variable : program.variables) {
    check_location(program, variable);
    const VariableLocation& location = variable.info->location;
    if (!location.remote()) continue;
    const auto [other, fresh] = names.try_emplace({location.buffer, location.entry}, variable.name);
    require(fresh, "variables '{}' and '{}' both live in entry {} of remote buffer {}",
            other->second, variable.name, location.entry, location.buffer);
  }
}

}  // namespace sluice::compiler
