#pragma once
#include "sluice/compiler/lower/emit.h"
#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {

/// For tests: runs kernels, storage, aliasing and offsets on a program. Returns its executable.
inline exe::Executable& lower(TestProgram& p) {
  for (const BodyId id : callees_first(p.program)) {
    LoweredBody& lowered = p.program.lowered[id];
    choose_kernels(p.body(id), *p.target, lowered);
    lowered.storage = assign_storage(p.body(id), lowered.choices, *p.target);
    reuse_dying_operands(p.body(id), lowered.choices, lowered.storage);
    choose_copies(p.body(id), *p.target, lowered);
  }
  emit_executable(p.program, p.context);
  return p.program.executable;
}

}  // namespace sluice::compiler
