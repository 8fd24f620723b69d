#pragma once
#include "sluice/ir/op_def.h"

namespace sluice {

/// Definitions of the ops that are part of the IR itself.
namespace builtin {

struct InitOptions {
  Shape shape = {};
  DType dtype = f32;
  double value = 0;
  bool undefined = false;  ///< Contents are undefined and must be overwritten.
  static auto fields(auto&& use) {
    return use(field("shape", &InitOptions::shape), field("dtype", &InitOptions::dtype),
               field("value", &InitOptions::value), field("undefined", &InitOptions::undefined));
  }
};

/// Options of Loop: the trip count, the number of carried inputs of the wrapper graph, and the
/// operand that is the condition of another iteration (-1: all iterations run).
struct LoopOptions {
  int64_t trips = 0;
  int64_t carried = 0;
  int64_t condition = -1;
  static auto fields(auto&& use) {
    return use(field("trips", &LoopOptions::trips), field("carried", &LoopOptions::carried),
               field("condition", &LoopOptions::condition));
  }
};

/// Options of If: the number of its inputs that belong to the then branch. They are after the
/// condition; the remaining inputs belong to the else branch.
struct IfOptions {
  int64_t then_inputs = 0;
  static auto fields(auto&& use) { return use(field("then_inputs", &IfOptions::then_inputs)); }
};

const OpDef& init();
const OpDef& host_load();
const OpDef& host_store();
const OpDef& remote_load();
const OpDef& remote_store();
const OpDef& call();
const OpDef& loop();
const OpDef& branch();

/// LoopOptions::carried of a loop.
size_t carried(const Op& loop);
/// IfOptions::then_inputs of a branch.
size_t then_inputs(const Op& branch);

}  // namespace builtin
}  // namespace sluice
