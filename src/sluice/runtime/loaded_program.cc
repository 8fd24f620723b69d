#include "sluice/runtime/loaded_program.h"

#include <algorithm>

#include "sluice/exe/ring_slots.h"
#include "sluice/exe/visit_step.h"
#include "sluice/runtime/queued/meeting.h"

namespace sluice::runtime {
namespace {

// Computes the stack needs of a function from the needs of its callees. Calls never recurse.
class NeedsOf {
 public:
  explicit NeedsOf(const exe::Executable& executable)
      : executable_(executable), known_(executable.functions.size()) {}

  const StackNeeds& operator()(exe::FunctionId id) {
    auto& entry = known_[id];
    if (entry.depth != 0) return entry;
    const exe::Function& f = executable_.functions[id];
    StackNeeds below;
    const auto visit = [&](const exe::Call& call) {
      const StackNeeds n = (*this)(call.function);
      below.depth = std::max(below.depth, n.depth);
      below.params = std::max(below.params, n.params);
      below.index_params = std::max(below.index_params, n.index_params);
      below.operands = std::max(below.operands, n.operands);
      below.scalars = std::max(below.scalars, n.scalars);
    };
    for (const exe::Step& step : f.steps) {
      if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
        below.operands = std::max(below.operands, kernel->operands.size());
        below.scalars = std::max(below.scalars, kernel->scalars.size());
      }
      exe::for_each_call(step, visit);
    }
    below.depth += 1;
    below.params += f.params.size();
    below.index_params += static_cast<size_t>(f.index_params);
    entry = below;
    return entry;
  }

 private:
  const exe::Executable& executable_;
  Ids<exe::FunctionId, StackNeeds> known_;
};

bool moves_bytes(const exe::Step& step) {
  return std::holds_alternative<exe::Issue>(step.body) ||
         std::holds_alternative<exe::Send>(step.body) ||
         std::holds_alternative<exe::Receive>(step.body) ||
         std::holds_alternative<exe::Collective>(step.body);
}

Argument argument_of(const exe::Address& at) {
  Argument a;
  a.offset = at.offset;
  if (at.depth > 0) a.ring = &at;
  switch (at.base) {
    case exe::Address::Base::kArena:
      a.base = ~at.index;
      break;
    case exe::Address::Base::kFrame:
      break;
    case exe::Address::Base::kParam:
      a.base = 1 + at.index;
      break;
  }
  return a;
}

// Finds the functions that programs start at one address and that no step calls.
void find_entry_frames(const exe::Executable& executable, LoadedProgram& program) {
  Ids<exe::FunctionId, bool> moves(executable.functions.size(), false);
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      exe::for_each_call(step, [&](const exe::Call& call) { moves[call.function] = true; });
    }
  }
  for (const exe::Program& p : executable.programs) {
    for (const exe::Start& start : p.starts) {
      const exe::FunctionId f = start.function;
      const exe::Address*& frame = program.functions[f].entry_frame;
      moves[f] = moves[f] || (frame != nullptr && *frame != start.frame);
      frame = &start.frame;
    }
  }
  for (const exe::FunctionId f : moves.ids()) {
    if (moves[f]) program.functions[f].entry_frame = nullptr;
  }
}

BoundKernel bound(Device& device, const exe::Kernel& kernel, const exe::Step& step) {
  try {
    return device.bind(kernel);
  } catch (Error& e) {
    throw e.note(fmt::format("binding {} ({}) made at {}", kernel.op, kernel.key, step.where));
  }
}

BoundCollective bound(Device& device, const exe::Collective& collective,
                      const exe::Executable& executable, const exe::Function& function,
                      const exe::Step& step) {
  try {
    const exe::ReplicaGroup& group = executable.groups[collective.group];
    BoundCollective bound = device.bind(collective, group);
    if (!executable.devices[function.device].queued) return bound;
    if (const int64_t room = room_bytes(bound, group.size); collective.workspace_bytes < room) {
      fail(ErrorKind::kBadFile,
           "executable: collective {}: workspace must be at least {} bytes, got {}", collective.op,
           room, collective.workspace_bytes);
    }
    return bound;
  } catch (Error& e) {
    throw e.note(fmt::format("binding {} made at {}", collective.op, step.where));
  }
}

}  // namespace

std::vector<std::string> refused_steps(const exe::Executable& executable,
                                       const Ids<exe::DeviceId, Device*>& devices, size_t max) {
  std::vector<std::string> refusals;
  for (const exe::Function& function : executable.functions) {
    Device* const device = devices[function.device];
    for (const exe::Step& step : function.steps) {
      if (device == nullptr || refusals.size() == max) break;
      try {
        if (const auto* kernel = std::get_if<exe::Kernel>(&step.body))
          bound(*device, *kernel, step);
        if (const auto* collective = std::get_if<exe::Collective>(&step.body))
          bound(*device, *collective, executable, function, step);
      } catch (const Error& e) {
        refusals.push_back(fmt::format("function '{}': {}", function.name, e.what()));
      }
    }
  }
  return refusals;
}

LoadedProgram load(const exe::Executable& executable, const Ids<exe::DeviceId, Device*>& devices) {
  // A walk computes addresses without a check of its own.
  if (const std::vector<exe::Problem> slots = exe::negative_slots(executable); !slots.empty()) {
    const exe::PlanPosition& position = slots.front().position;
    fail(ErrorKind::kBadFile, "executable: function '{}' step {}: {}",
         executable.functions[exe::FunctionId(position.index)].name, position.step,
         slots.front().message);
  }
  LoadedProgram program;
  for (const exe::Function& function : executable.functions) {
    LoadedFunction loaded;
    loaded.function = &function;
    for (const exe::Step& step : function.steps) {
      LoadedStep s{&step, step.sync};
      Device& device = *devices[function.device];
      if (moves_bytes(step)) {
        s.moved = static_cast<int32_t>(program.moves.size());
        program.moves.push_back(&step);
      }
      if (const auto* collective = std::get_if<exe::Collective>(&step.body)) {
        s.collective = static_cast<int32_t>(loaded.collectives.size());
        loaded.collectives.push_back(bound(device, *collective, executable, function, step));
      }
      if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
        s.kernel = static_cast<int32_t>(loaded.kernels.size());
        loaded.bound.push_back(bound(device, *kernel, step));
        LoadedKernel k;
        k.run = loaded.bound.back().run;
        k.step = &step;
        k.state = loaded.bound.back().state.get();
        k.first = loaded.arguments.size();
        k.arguments = kernel->operands.size();
        k.fixed = true;
        k.scalars = &kernel->scalars;
        k.tasks = kernel->tasks;
        k.flops = static_cast<double>(kernel->flops);
        for (const exe::Operand& o : kernel->operands) {
          loaded.arguments.push_back(argument_of(o.at));
          k.fixed = k.fixed && loaded.arguments.back().is_fixed();
          k.operand_bytes += o.bytes;
        }
        loaded.kernels.push_back(k);
      }
      loaded.steps.push_back(s);
    }
    program.functions.push_back(std::move(loaded));
  }
  find_entry_frames(executable, program);
  NeedsOf needs(executable);
  for (const exe::FunctionId id : executable.functions.ids()) {
    const StackNeeds n = needs(id);
    program.needs.depth = std::max(program.needs.depth, n.depth);
    program.needs.params = std::max(program.needs.params, n.params);
    program.needs.index_params = std::max(program.needs.index_params, n.index_params);
    program.needs.operands = std::max(program.needs.operands, n.operands);
    program.needs.scalars = std::max(program.needs.scalars, n.scalars);
  }
  return program;
}

}  // namespace sluice::runtime
