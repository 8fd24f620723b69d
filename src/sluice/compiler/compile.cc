#include "sluice/compiler/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "sluice/base/sys.h"
#include "sluice/compiler/analysis/feed_slots.h"
#include "sluice/compiler/analysis/remote_variables.h"
#include "sluice/compiler/body_text.h"
#include "sluice/compiler/lower/announce_remote.h"
#include "sluice/compiler/lower/emit.h"
#include "sluice/compiler/lower/entry_bounds.h"
#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/lower/ring_slots.h"
#include "sluice/compiler/lower/synchronise.h"
#include "sluice/compiler/lower/tables.h"
#include "sluice/compiler/passes/assign_devices.h"
#include "sluice/compiler/passes/dead_code.h"
#include "sluice/compiler/passes/entries.h"
#include "sluice/compiler/passes/functionalise.h"
#include "sluice/compiler/passes/fusion/conversions.h"
#include "sluice/compiler/passes/fusion/fuse.h"
#include "sluice/compiler/passes/fusion/layouts.h"
#include "sluice/compiler/passes/fusion/share_work.h"
#include "sluice/compiler/passes/fusion/split_ops.h"
#include "sluice/compiler/passes/fusion/strided_products.h"
#include "sluice/compiler/passes/inline_calls.h"
#include "sluice/compiler/passes/project.h"
#include "sluice/compiler/passes/rotations.h"
#include "sluice/compiler/passes/transfers.h"
#include "sluice/compiler/verify_body.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace compiler {
namespace {

/// A pass of the compiler. Only the passes in kPasses change a program.
struct CompilerPass {
  const char* name;
  const char* reason;
  bool optional;
  int64_t (*run)(Program&, const Context&);  ///< Returns the number of changes.
};

// Runs a pass over one body on all bodies of the program.
template <auto kPass>
int64_t on_bodies(Program& program, const Context& context) {
  return for_each_body(program, [&](Body& b) { return kPass(b, context.target(b)); });
}

template <typename F>
int64_t on_lowered(Program& program, F&& f) {
  int64_t changes = 0;
  for (const BodyId id : callees_first(program))
    changes += f(program.body(id), program.lowered[id]);
  return changes;
}

const CompilerPass kPasses[] = {
    {"functionalise", "Graphs become bodies, in which each version of a tensor is a value.", false,
     [](Program& p, const Context& c) {
       const int64_t bodies = functionalise(p, c);
       check_remote_variables(p);
       return bodies;
     }},
    {"place", "Every op gets a device; before all passes that ask the target of a device.", false,
     assign_devices},
    {"inline",
     "A graph with one call site becomes part of its caller, without copies of its arguments.",
     true, inline_calls},
    {"dead-code", "Nodes that compute unused values are removed; later passes need not visit them.",
     true, remove_dead_code},
    {"entries",
     "Entries that depend only on constants, counters and arguments become index expressions, "
     "which every device evaluates; before project, which then sends no scalars for them.",
     true, fold_entries},
    {"project", "Each device gets a body, with messages between them; later passes see one device.",
     false,
     [](Program& p, const Context& c) {
       p.feed_slots = feed_slots(p);
       return project(p, c);
     }},
    {"strides",
     "Products read transposed, sliced and split operands in place and write transposed results, "
     "and what nobody reads is removed; before layouts and fusion, which ask for products.",
     true, on_bodies<strided_products>},
    {"layouts",
     "Weights get the layout that matrix products read fastest; before fusion, which needs the "
     "layout of an update's target.",
     true, choose_layouts},
    {"share-work",
     "An activation also computes its derivative, which is kept instead of its operand; before "
     "fusion, which makes one kernel of both.",
     true, on_bodies<share_work>},
    {"split",
     "A loss becomes the losses of its samples, their total and their gradient, if the target "
     "fuses the sample losses with the softmax; a large reduction becomes tasks and their sum; "
     "before fusion, which joins the parts.",
     true, on_bodies<split_ops>},
    {"fuse", "Ops become one kernel if the target can run them as one.", true,
     [](Program& p, const Context& c) {
       return for_each_body(p, [&](Body& b) { return fuse(b, c.target(b), p.fusions); });
     }},
    {"conversions",
     "A value is copied if a reader needs another layout; after fusion, which removes values.",
     false,
     [](Program& p, const Context& c) {
       return for_each_body(p, [&](Body& b) { return convert_layouts(b, p, c.target(b)); });
     }},
    {"transfers",
     "Transfers run on the io queues that they ask for, overlapped ones during the previous or "
     "the next segment; before storage, which keeps their bytes until they have ended.",
     true,
     [](Program& p, const Context& c) {
       const FactTable facts(p);
       return for_each_body(
           p, [&](Body& b) { return schedule_transfers(b, facts, c.options.io_queues); });
     }},
    {"kernels",
     "Each op gets the first kernel of the target's list that supports it; before storage, which "
     "asks which operands may coincide.",
     false,
     [](Program& p, const Context& c) {
       return on_lowered(
           p, [&](Body& b, LoweredBody& l) { return choose_kernels(b, c.target(b), l); });
     }},
    {"rotations",
     "Carried values that only rotate share a ring, and no iteration copies them; "
     "after kernels, which may write a new value over an old one that they read.",
     true, find_rotations},
    {"storage",
     "Values share bytes: views, updates, carried values; results are at the caller's address.",
     false,
     [](Program& p, const Context& c) {
       return on_lowered(p, [&](Body& b, LoweredBody& l) {
         const size_t before = b.nodes.size();
         l.storage = assign_storage(b, l.choices, c.target(b));
         return static_cast<int64_t>(b.nodes.size() - before);
       });
     }},
    {"aliasing",
     "An output overwrites in place an operand that no later node reads, and values of a ramp "
     "use free slots of a ring.",
     true,
     [](Program& p, const Context&) {
       return on_lowered(p, [](Body& b, LoweredBody& l) {
         const int64_t reused = reuse_dying_operands(b, l.choices, l.storage);
         return reused + fill_ring_slots(b, l.storage);
       });
     }},
    {"copies", "The copies that storage added get their kernels.", false,
     [](Program& p, const Context& c) {
       return on_lowered(p,
                         [&](Body& b, LoweredBody& l) { return choose_copies(b, c.target(b), l); });
     }},
    {"offsets", "Buffers get offsets in their frames; bodies become functions.", false,
     emit_executable},
    {"synchronise", "A step gets a barrier only if it conflicts with an earlier step.", false,
     [](Program& p, const Context&) {
       int64_t barriers = 0;
       for (exe::Function& f : p.executable.functions) barriers += synchronise(f);
       return barriers;
     }},
    {"announce",
     "The plan records which store each load of a remote buffer finds; before that, all entries "
     "are checked to be inside their buffers.",
     false,
     [](Program& p, const Context&) {
       check_entries(p.executable);
       announce_remote(p);
       return static_cast<int64_t>(p.executable.remote_buffers.size());
     }},
};

void check_names(const CompileOptions& options) {
  std::vector<std::string_view> optional, all;
  for (const CompilerPass& pass : kPasses) {
    if (pass.optional) optional.push_back(pass.name);
    all.push_back(pass.name);
  }
  for (const std::string& name : options.disable) {
    require(std::find(optional.begin(), optional.end(), name) != optional.end(),
            "disable: must be optional passes of {}, got '{}'", fmt::join(optional, ", "), name);
  }
  const std::string& print = options.print_after;
  require(print.empty() || print == "all" || std::find(all.begin(), all.end(), print) != all.end(),
          "print-after: must be all or one of {}, got '{}'", fmt::join(all, ", "), print);
}

PassRecord run_pass(const CompilerPass& pass, Program& program, const Context& context) {
  const CompileOptions& options = context.options;
  PassRecord record{pass.name, pass.reason};
  record.enabled =
      std::find(options.disable.begin(), options.disable.end(), pass.name) == options.disable.end();
  if (!record.enabled) return record;
  const auto begin = std::chrono::steady_clock::now();
  record.changes = pass.run(program, context);
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
#ifdef NDEBUG
  if (options.verify) verify(program, pass.name);
#else
  verify(program, pass.name);
#endif
  if (options.print_after == pass.name || options.print_after == "all") {
    sys::print_stderr("--- after {} ({} changes)\n{}", pass.name, record.changes, to_text(program));
  }
  return record;
}

}  // namespace
}  // namespace compiler

std::vector<PassDoc> compiler_passes() {
  std::vector<PassDoc> docs;
  for (const compiler::CompilerPass& pass : compiler::kPasses)
    docs.push_back({pass.name, pass.reason, pass.optional});
  return docs;
}

Compiled compile(const Ir& ir, const CompileOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
#ifndef NDEBUG
  verify(ir);
#endif
  compiler::check_names(options);
  require(!options.devices.empty(), "compile: options.devices must have at least 1 device, got 0");
  compiler::queue_names(options.io_queues);
  compiler::Program program(ir);
  const compiler::Context context{options};
  Compiled compiled;
  for (const compiler::CompilerPass& pass : compiler::kPasses)
    compiled.passes.push_back(compiler::run_pass(pass, program, context));
  for (const compiler::Variable& v : program.variables) compiled.variables.push_back(v.info);
  compiled.variable_index = std::move(program.variable_index);
  compiled.executable = std::move(program.executable);
  compiled.fusions = std::move(program.fusions);
  compiled.memories = exe::memory_needs(compiled.executable);
  compiled.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return compiled;
}

}  // namespace sluice
