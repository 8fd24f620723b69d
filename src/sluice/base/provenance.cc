#include "sluice/base/provenance.h"

namespace sluice {

Instance operator+(const Instance& a, const Instance& b) {
  return {a.micro_batch + b.micro_batch, a.row + b.row};
}

Instance operator*(int64_t count, const Instance& step) {
  return {count * step.micro_batch, count * step.row};
}

std::string Provenance::where() const {
  return module_path.empty() ? line : line.empty() ? module_path : module_path + " " + line;
}

const Provenance& SharedProvenance::none() {
  static const Provenance none;
  return none;
}

Provenance Provenance::inside(const Provenance& call) const {
  Provenance result = *this;
  if (role == OpRole::kForward) result.role = call.role;
  if (block.empty()) result.block = call.block;
  if (module_path.empty()) result.module_path = call.module_path;
  if (variable.empty()) result.variable = call.variable;
  result.at = call.at + at;
  return result;
}

}  // namespace sluice
