#include "sluice/compiler/analysis/homes.h"

#include "sluice/base/error.h"

namespace sluice::compiler {
namespace {

void check_readers(const Program& program, const Body& body) {
  const auto check = [&](const Node& node, ValueIndex v) {
    const BodyValue& value = body.value(v);
    if (value.source != BodyValue::Source::kVariable) return;
    const Variable& variable = program.variables[static_cast<size_t>(value.index)];
    const Home& home = variable.info->home;
    if (home.buffer <= 0) return;
    fail(ErrorKind::kUsage,
         "{}.{}: variable '{}' lives in entry {} of remote buffer {} and must be read with "
         "remote_load",
         name_of(node), node.origin, variable.name, home.entry, home.buffer);
  };
  for (const Node& node : body.nodes) {
    for (const ValueIndex v : node.inputs) check(node, v);
    for (const Tie& t : node.ties) check(node, t.into);
  }
}

void check_home(const Program& program, const Variable& variable) {
  const Home& home = variable.info->home;
  if (!home.remote()) return;
  require(home.buffer > 0 && home.buffer <= program.ir.remote_buffer_count(),
          "variable '{}': there is no remote buffer {}, the program has {}", variable.name,
          home.buffer, program.ir.remote_buffer_count());
  const RemoteBufferInfo& buffer = program.ir.remote_buffer_info(home.buffer);
  require(home.entry >= 0 && home.entry < buffer.entries,
          "variable '{}': entry {} is outside the {} entries of remote buffer {}", variable.name,
          home.entry, buffer.entries, home.buffer);
  require(variable.spec == buffer.spec,
          "variable '{}': must be {} like the entries of remote buffer {}, got {}", variable.name,
          to_string(buffer.spec), home.buffer, to_string(variable.spec));
}

}  // namespace

void check_homes(const Program& program) {
  for (const EntryBodies& entry : program.entries) {
    for (const BodyId id : entry.bodies) check_readers(program, program.body(id));
  }
  std::map<std::pair<int32_t, int64_t>, std::string> names;  // By buffer and entry.
  for (const Variable& variable : program.variables) {
    check_home(program, variable);
    const Home& home = variable.info->home;
    if (!home.remote()) continue;
    const auto [other, fresh] = names.try_emplace({home.buffer, home.entry}, variable.name);
    require(fresh, "variables '{}' and '{}' both live in entry {} of remote buffer {}",
            other->second, variable.name, home.entry, home.buffer);
  }
}

}  // namespace sluice::compiler
