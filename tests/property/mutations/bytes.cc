#include <algorithm>

#include "mutations.h"

namespace sluice::property {

/// Moves the target of a write: readers find other bytes, or the write overwrites other data.
std::vector<Candidate> buffer_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.access == Access::kWrite && o.bytes > 0 && o.at.base != Address::Base::kParam) {
        for (const int64_t by : {int64_t{64}, -o.bytes, o.bytes}) {
          if (o.at.offset + by < 0) continue;
          out.push_back({step_name(e, f, s), [f, s, n, by](Executable& m) {
                           operand_at(step_of(m, f, s), n)->at.offset += by;
                           return std::string();
                         }});
        }
      }
      ++n;
    });
  });
  return out;
}

/// Moves one buffer of a frame to the offset of another buffer that may still be needed.
std::vector<Candidate> released_early(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t f = 0; f < e.functions.size(); ++f) {
    std::vector<Operand> buffers;
    for (const Step& step : e.functions[exe::FunctionId(f)].steps) {
      every_operand(step, [&](const Operand& o) {
        if (o.access != Access::kWrite || o.at.base != Address::Base::kFrame || o.bytes == 0)
          return;
        const auto known = [&](const Operand& b) {
          return same_place(b.at, o.at) && b.bytes == o.bytes;
        };
        if (std::none_of(buffers.begin(), buffers.end(), known)) buffers.push_back(o);
      });
    }
    for (const Operand& from : buffers) {
      for (const Operand& to : buffers) {
        if (!disjoint(from, to) || from.bytes > to.bytes) continue;
        out.push_back(
            {fmt::format("'{}': the buffer at frame+{} moves to frame+{}",
                         e.functions[exe::FunctionId(f)].name, from.at.offset, to.at.offset),
             [f, from, to](Executable& m) {
               for (Step& step : m.functions[exe::FunctionId(f)].steps) {
                 every_operand(step, [&](Operand& o) {
                   if (same_place(o.at, from.at)) o.at.offset = to.at.offset;
                 });
               }
               return std::string();
             }});
      }
    }
  }
  return out;
}

std::vector<Candidate> buffer_shrunk(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.bytes >= 2 && o.spec.bytes() == o.bytes && o.layout == "row") {
        out.push_back({step_name(e, f, s), [f, s, n](Executable& m) {
                         Operand* const small = operand_at(step_of(m, f, s), n);
                         small->bytes /= 2;
                         return fmt::format("{} bytes for a tensor of {}", small->bytes,
                                            small->spec.bytes());
                       }});
      }
      ++n;
    });
  });
  return out;
}

std::vector<Candidate> frame_shrunk(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t f = 0; f < e.functions.size(); ++f) {
    int64_t used = 0;
    for (const Step& step : e.functions[exe::FunctionId(f)].steps) {
      every_operand(step, [&](const Operand& o) {
        if (o.at.base == Address::Base::kFrame && o.at.depth == 0)
          used = std::max(used, o.at.offset + o.bytes);
      });
    }
    if (used == 0) continue;
    out.push_back({e.functions[exe::FunctionId(f)].name, [f, used](Executable& m) {
                     m.functions[exe::FunctionId(f)].frame_bytes = used - 1;
                     return std::string();
                   }});
  }
  return out;
}

std::vector<Candidate> arena_shrunk(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.arenas.size(); ++a) {
    if (e.arenas[exe::ArenaId(a)].bytes < 2 ||
        e.arenas[exe::ArenaId(a)].kind == ArenaKind::kWorkspace)
      continue;
    out.push_back({e.arenas[exe::ArenaId(a)].name, [a](Executable& m) {
                     m.arenas[exe::ArenaId(a)].bytes /= 2;
                     return std::string();
                   }});
  }
  return out;
}

/// Moves a variable, with every operand on its bytes, to the address of another variable.
std::vector<Candidate> arenas_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.variables.size(); ++a) {
    for (size_t b = 0; b < e.variables.size(); ++b) {
      const VariablePlan& from = e.variables[exe::VariableId(a)];
      const VariablePlan& to = e.variables[exe::VariableId(b)];
      if (a == b || from.buffer >= 0 || to.buffer >= 0 || from.arena != to.arena ||
          from.bytes > to.bytes)
        continue;
      out.push_back(
          {fmt::format("'{}' onto '{}'", from.path, to.path), [a, from, to](Executable& m) {
             m.variables[exe::VariableId(a)].offset = to.offset;
             for (Function& f : m.functions) {
               for (Step& step : f.steps) {
                 every_operand(step, [&](Operand& o) {
                   if (o.at.base == Address::Base::kArena && o.at.index == from.arena &&
                       o.at.offset == from.offset) {
                     o.at.offset = to.offset;
                   }
                 });
               }
             }
             return fmt::format("two variables begin at byte {}", to.offset);
           }});
    }
  }
  return out;
}

std::vector<Candidate> argument_rebound(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    std::vector<Operand> args;
    std::vector<size_t> numbers;
    size_t n = 0;
    for_each_operand(step, [&](const Operand&) { ++n; });
    for_each_call(step, [&](const Call& c) {
      for (const Operand& o : c.args) {
        args.push_back(o);
        numbers.push_back(n++);
      }
    });
    for (size_t a = 0; a < args.size(); ++a) {
      for (size_t b = 0; b < args.size(); ++b) {
        if (a == b || args[a].bytes != args[b].bytes || args[a].bytes == 0 ||
            same_place(args[a].at, args[b].at))
          continue;
        out.push_back(
            {step_name(e, f, s), [f, s, number = numbers[a], to = args[b].at](Executable& m) {
               operand_at(step_of(m, f, s), number)->at = to;
               return std::string();
             }});
      }
    }
  });
  return out;
}

std::vector<Candidate> workspace_shared(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.arenas.size(); ++a) {
    const Arena& arena = e.arenas[exe::ArenaId(a)];
    if (arena.kind != ArenaKind::kWorkspace || arena.device < 0 || arena.stride == 0) continue;
    const int32_t workers = e.devices[arena.device].workers;
    if (workers > 1) {
      out.push_back({"all workers in one slice", [a, workers](Executable& m) {
                       m.arenas[exe::ArenaId(a)].bytes = m.arenas[exe::ArenaId(a)].stride;
                       return fmt::format("worker {} begins where the arena ends", workers - 1);
                     }});
    }
    out.push_back({"slices closer together", [a](Executable& m) {
                     m.arenas[exe::ArenaId(a)].stride /= 2;
                     return std::string();
                   }});
    out.push_back({"one worker more", [a](Executable& m) {
                     const Arena& w = m.arenas[exe::ArenaId(a)];
                     Device& d = m.devices[w.device];
                     d.workers = static_cast<int32_t>(w.bytes / w.stride) + 1;
                     return fmt::format("worker {} begins where the arena ends", d.workers - 1);
                   }});
  }
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* k = std::get_if<Kernel>(&step.body);
    if (k == nullptr) return;
    for (const Arena& a : e.arenas) {
      if (a.kind != ArenaKind::kWorkspace || a.device != e.functions[exe::FunctionId(f)].device)
        continue;
      out.push_back({step_name(e, f, s), [f, s, stride = a.stride](Executable& m) {
                       std::get<Kernel>(step_of(m, f, s).body).workspace_bytes = stride + 1;
                       return fmt::format("a worker has {} bytes, the kernel uses one more",
                                          stride);
                     }});
    }
  });
  return out;
}

std::vector<Candidate> budget_cut(const Executable& e) {
  std::vector<Candidate> out;
  for (const exe::DeviceId d : e.devices.ids()) {
    const int64_t bytes = planned_bytes(e, d, Space::kDevice);
    if (bytes == 0) continue;
    out.push_back({fmt::format("device {}", d), [d, bytes](Executable& m) {
                     m.devices[d].memory_budget = bytes - 1;
                     return fmt::format("{} bytes are planned, one more than the budget", bytes);
                   }});
  }
  return out;
}

std::vector<Candidate> coincidence_forbidden(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* k = std::get_if<Kernel>(&step.body);
    for (size_t c = 0; k != nullptr && c < k->may_coincide.size(); ++c) {
      const Operand& in = k->operands[static_cast<size_t>(k->may_coincide[c].first)];
      const Operand& result = k->operands[static_cast<size_t>(k->may_coincide[c].second)];
      if (disjoint(in, result) || in.at.depth != 0 || result.at.depth != 0) continue;
      out.push_back({step_name(e, f, s), [f, s, c](Executable& m) {
                       auto& pairs = std::get<Kernel>(step_of(m, f, s).body).may_coincide;
                       pairs.erase(pairs.begin() + static_cast<int64_t>(c));
                       return std::string("the kernel must not work in place, but the plan does");
                     }});
    }
  });
  return out;
}

/// Makes every task write the whole of an output that was partitioned over the tasks.
std::vector<Candidate> tasks_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* k = std::get_if<Kernel>(&step.body);
    for (size_t i = 0; k != nullptr && k->tasks > 1 && i < k->operands.size(); ++i) {
      const Operand& o = k->operands[i];
      if (o.access == Access::kRead || o.task_stride == 0 || o.bytes == 0) continue;
      out.push_back({step_name(e, f, s), [f, s, i](Executable& m) {
                       auto& kernel = std::get<Kernel>(step_of(m, f, s).body);
                       kernel.operands[i].task_stride = 0;
                       return fmt::format("{} tasks write the same bytes", kernel.tasks);
                     }});
      out.push_back({step_name(e, f, s), [f, s, i](Executable& m) {
                       auto& kernel = std::get<Kernel>(step_of(m, f, s).body);
                       Operand& part = kernel.operands[i];
                       part.task_stride =
                           ((part.task_pitch != 0 ? part.task_pitch : part.bytes) - 1) /
                           kernel.tasks;
                       return part.task_stride == 0
                                  ? fmt::format("{} tasks write the same bytes", kernel.tasks)
                                  : std::string("no task writes the last byte");
                     }});
    }
  });
  return out;
}

}  // namespace sluice::property
