#include "mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "sluice/base/rng.h"
#include "sluice/exe/text.h"
#include "sluice/exe/visit_step.h"

namespace sluice::property {
namespace {

using namespace exe;  // NOLINT: everything here is about executables

using Damage = std::function<std::string(Executable&)>;  ///< Returns why it is a defect, or nothing.

struct Candidate {
  std::string about;
  Damage damage;
};

struct Kind {
  std::string name;
  std::vector<std::string> rules;
  std::vector<Candidate> (*find)(const Executable&);
};

std::string place(const Executable& e, size_t f, size_t s) {
  return fmt::format("'{}' step {} ({})", e.functions[f].name, s, step_title(e.functions[f].steps[s]));
}

template <typename F>
void for_each_step(const Executable& e, F&& visit) {
  for (size_t f = 0; f < e.functions.size(); ++f) {
    for (size_t s = 0; s < e.functions[f].steps.size(); ++s) visit(f, s, e.functions[f].steps[s]);
  }
}

Step& step_of(Executable& e, size_t f, size_t s) { return e.functions[f].steps[s]; }

/// All operands of a step, those of calls too, in a fixed order.
template <typename StepType, typename F>
void every_operand(StepType& step, F&& f) {
  for_each_operand(step, f);
  for_each_call(step, [&](auto& c) {
    for (auto& o : c.args) f(o);
  });
}

Operand* operand_at(Step& step, size_t n) {
  Operand* found = nullptr;
  size_t i = 0;
  every_operand(step, [&](Operand& o) {
    if (i++ == n) found = &o;
  });
  return found;
}

bool same_place(const Address& a, const Address& b) {
  return a.base == b.base && a.index == b.index && a.offset == b.offset && a.depth == b.depth;
}

bool disjoint(const Operand& a, const Operand& b) {
  return a.at.base != b.at.base || a.at.index != b.at.index || a.at.offset + a.bytes <= b.at.offset ||
         b.at.offset + b.bytes <= a.at.offset;
}

std::vector<Candidate> steps_dropped(const Executable& e, const std::function<bool(const Step&)>& which) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!which(step)) return;
    out.push_back({place(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[f].steps;
                     // The barrier stays where it was.
                     if (s + 1 < steps.size()) steps[s + 1].sync |= steps[s].sync;
                     steps.erase(steps.begin() + static_cast<int64_t>(s));
                     return std::string();
                   }});
  });
  return out;
}

std::vector<Candidate> wait_dropped(const Executable& e) {
  return steps_dropped(e, [](const Step& s) { return std::holds_alternative<Wait>(s.body); });
}

std::vector<Candidate> step_dropped(const Executable& e) {
  return steps_dropped(e, [](const Step& s) { return std::holds_alternative<Kernel>(s.body); });
}

std::vector<Candidate> steps_swapped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step&) {
    if (s + 1 >= e.functions[f].steps.size()) return;
    out.push_back({place(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[f].steps;
                     const bool sync = steps[s].sync;
                     std::swap(steps[s], steps[s + 1]);
                     // Barriers stay at their places and after: the order of the steps is all that changes.
                     steps[s].sync |= sync;
                     steps[s + 1].sync = true;
                     return std::string();
                   }});
  });
  return out;
}

std::vector<Candidate> sync_dropped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!step.sync) return;
    out.push_back({place(e, f, s), [f, s](Executable& m) {
                     step_of(m, f, s).sync = false;
                     return std::string();
                   }});
  });
  return out;
}

/// A write goes elsewhere: readers find something else, or it lands on something else.
std::vector<Candidate> buffer_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.access == Access::kWrite && o.bytes > 0 && o.at.base != Address::Base::kParam) {
        for (const int64_t by : {int64_t{64}, -o.bytes, o.bytes}) {
          if (o.at.offset + by < 0) continue;
          out.push_back({place(e, f, s), [f, s, n, by](Executable& m) {
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

/// Everything in one buffer of a frame goes to the place of another that may still be needed.
std::vector<Candidate> released_early(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t f = 0; f < e.functions.size(); ++f) {
    std::vector<Operand> buffers;
    for (const Step& step : e.functions[f].steps) {
      every_operand(step, [&](const Operand& o) {
        if (o.access != Access::kWrite || o.at.base != Address::Base::kFrame || o.bytes == 0) return;
        const auto known = [&](const Operand& b) { return same_place(b.at, o.at) && b.bytes == o.bytes; };
        if (std::none_of(buffers.begin(), buffers.end(), known)) buffers.push_back(o);
      });
    }
    for (const Operand& from : buffers) {
      for (const Operand& to : buffers) {
        if (!disjoint(from, to) || from.bytes > to.bytes) continue;
        out.push_back({fmt::format("'{}': what lies at frame+{} goes to frame+{}", e.functions[f].name, from.at.offset,
                                   to.at.offset),
                       [f, from, to](Executable& m) {
                         for (Step& step : m.functions[f].steps) {
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
        out.push_back({place(e, f, s), [f, s, n](Executable& m) {
                         Operand* const small = operand_at(step_of(m, f, s), n);
                         small->bytes /= 2;
                         return fmt::format("{} bytes for a tensor of {}", small->bytes, small->spec.bytes());
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
    for (const Step& step : e.functions[f].steps) {
      every_operand(step, [&](const Operand& o) {
        if (o.at.base == Address::Base::kFrame && o.at.depth == 0) used = std::max(used, o.at.offset + o.bytes);
      });
    }
    if (used == 0) continue;
    out.push_back({e.functions[f].name, [f, used](Executable& m) {
                     m.functions[f].frame_bytes = used - 1;
                     return std::string();
                   }});
  }
  return out;
}

std::vector<Candidate> arena_shrunk(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.arenas.size(); ++a) {
    if (e.arenas[a].bytes < 2 || e.arenas[a].kind == ArenaKind::kWorkspace) continue;
    out.push_back({e.arenas[a].name, [a](Executable& m) {
                     m.arenas[a].bytes /= 2;
                     return std::string();
                   }});
  }
  return out;
}

/// Two variables at one place, with every operand that names their bytes.
std::vector<Candidate> arenas_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.variables.size(); ++a) {
    for (size_t b = 0; b < e.variables.size(); ++b) {
      const VariablePlan& from = e.variables[a];
      const VariablePlan& to = e.variables[b];
      if (a == b || from.buffer >= 0 || to.buffer >= 0 || from.arena != to.arena || from.bytes > to.bytes) continue;
      out.push_back({fmt::format("'{}' onto '{}'", from.path, to.path), [a, from, to](Executable& m) {
                       m.variables[a].offset = to.offset;
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
                       return fmt::format("two variables have bytes from {}", to.offset);
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
        if (a == b || args[a].bytes != args[b].bytes || args[a].bytes == 0 || same_place(args[a].at, args[b].at)) continue;
        out.push_back({place(e, f, s), [f, s, number = numbers[a], to = args[b].at](Executable& m) {
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
    const Arena& arena = e.arenas[a];
    if (arena.kind != ArenaKind::kWorkspace || arena.device < 0 || arena.stride == 0) continue;
    const int32_t workers = e.devices[static_cast<size_t>(arena.device)].workers;
    if (workers > 1) {
      out.push_back({"all workers in one slice", [a, workers](Executable& m) {
                       m.arenas[a].bytes = m.arenas[a].stride;
                       return fmt::format("worker {} begins where the arena ends", workers - 1);
                     }});
    }
    out.push_back({"slices closer together", [a](Executable& m) {
                     m.arenas[a].stride /= 2;
                     return std::string();
                   }});
    out.push_back({"one worker more", [a](Executable& m) {
                     const Arena& w = m.arenas[a];
                     Device& d = m.devices[static_cast<size_t>(w.device)];
                     d.workers = static_cast<int32_t>(w.bytes / w.stride) + 1;
                     return fmt::format("worker {} begins where the arena ends", d.workers - 1);
                   }});
  }
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* k = std::get_if<Kernel>(&step.body);
    if (k == nullptr) return;
    for (const Arena& a : e.arenas) {
      if (a.kind != ArenaKind::kWorkspace || a.device != e.functions[f].device) continue;
      out.push_back({place(e, f, s), [f, s, stride = a.stride](Executable& m) {
                       std::get<Kernel>(step_of(m, f, s).body).workspace_bytes = stride + 1;
                       return fmt::format("a worker has {} bytes, the kernel uses one more", stride);
                     }});
    }
  });
  return out;
}

std::vector<Candidate> message_swapped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    for (const int64_t by : {1, -1}) {
      if (std::holds_alternative<Send>(step.body)) {
        out.push_back({place(e, f, s), [f, s, by](Executable& m) {
                         auto& send = std::get<Send>(step_of(m, f, s).body);
                         send.message = send.message + IndexExpr(by);
                         return std::string();
                       }});
      } else if (std::holds_alternative<Receive>(step.body)) {
        out.push_back({place(e, f, s), [f, s, by](Executable& m) {
                         auto& receive = std::get<Receive>(step_of(m, f, s).body);
                         receive.message = receive.message + IndexExpr(by);
                         return std::string();
                       }});
      }
    }
  });
  return out;
}

std::vector<Candidate> rotation_off_by_one(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.at.depth > 1) {
        out.push_back({place(e, f, s), [f, s, n](Executable& m) {
                         Address& at = operand_at(step_of(m, f, s), n)->at;
                         at.slot = at.slot + IndexExpr(1);
                         return std::string();
                       }});
        out.push_back({place(e, f, s), [f, s, n](Executable& m) {
                         operand_at(step_of(m, f, s), n)->at.depth -= 1;
                         return std::string();
                       }});
      }
      ++n;
    });
  });
  return out;
}

std::vector<Candidate> trips_off_by_one(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* l = std::get_if<Loop>(&step.body);
    for (const int64_t by : {1, -1}) {
      if (l == nullptr || l->trips < 2) continue;
      out.push_back({place(e, f, s), [f, s, by](Executable& m) {
                       std::get<Loop>(step_of(m, f, s).body).trips += by;
                       return std::string();
                     }});
    }
  });
  return out;
}

std::vector<Candidate> carry_dropped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* l = std::get_if<Loop>(&step.body);
    if (l == nullptr || l->trips < 2) return;
    for (size_t c = 0; c < l->carried.size(); ++c) {
      out.push_back({place(e, f, s), [f, s, c](Executable& m) {
                       auto& carried = std::get<Loop>(step_of(m, f, s).body).carried;
                       carried.erase(carried.begin() + static_cast<int64_t>(c));
                       return std::string("iteration 1 finds what iteration 0 made, and nothing says so");
                     }});
    }
  });
  return out;
}

/// The value that lies where the operand looks, from the straight line of steps before it.
std::optional<ValueId> last_written(const Function& f, size_t s, const Operand& o) {
  if (o.at.depth != 0) return std::nullopt;
  for (size_t i = s; i-- > 0;) {
    std::optional<ValueId> found;
    every_operand(f.steps[i], [&](const Operand& w) {
      if (w.access == Access::kRead || w.at.base != o.at.base || w.at.index != o.at.index || w.at.depth != 0) return;
      if (w.at.offset == o.at.offset && w.bytes == o.bytes) found = w.access == Access::kWrite ? w.value : w.made;
    });
    if (found) return found;
  }
  return std::nullopt;
}

std::vector<Candidate> value_renamed(const Executable& e) {
  std::vector<Candidate> out;
  const auto values = static_cast<ValueId>(e.values.size());
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      const std::optional<ValueId> there = last_written(e.functions[f], s, o);
      if (o.access == Access::kRead && values > 1 && o.bytes > 0 && there == o.value) {
        out.push_back({place(e, f, s), [f, s, n, values, was = o.value](Executable& m) {
                         operand_at(step_of(m, f, s), n)->value = (was + 1) % values;
                         return fmt::format("value {} was written there last, it is called {}", was, (was + 1) % values);
                       }});
      }
      ++n;
    });
  });
  return out;
}

std::vector<Candidate> layout_renamed(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.access == Access::kRead && o.bytes > 0) {
        out.push_back({place(e, f, s), [f, s, n](Executable& m) {
                         Operand* const read = operand_at(step_of(m, f, s), n);
                         read->layout += "'";
                         return fmt::format("nothing is made as '{}'", read->layout);
                       }});
      }
      ++n;
    });
  });
  return out;
}

std::vector<Candidate> stream_entries_swapped(const Executable& e) {
  std::vector<Candidate> out;
  const auto is_stream = [](const Step& s) {
    const auto* i = std::get_if<Issue>(&s.body);
    return i != nullptr && (i->kind == TransferKind::kStreamIn || i->kind == TransferKind::kStreamOut);
  };
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!is_stream(step)) return;
    out.push_back({place(e, f, s), [f, s](Executable& m) {
                     auto& i = std::get<Issue>(step_of(m, f, s).body);
                     i.entry = i.entry + IndexExpr(1);
                     return fmt::format("entry 0 of stream {} is never moved, or not first", i.object);
                   }});
  });
  return out;
}

std::vector<Candidate> transfer_dropped(const Executable& e) {
  return steps_dropped(e, [](const Step& s) {
    const auto* i = std::get_if<Issue>(&s.body);
    return i != nullptr && i->queue == 0;
  });
}

std::vector<Candidate> final_damaged(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t p = 0; p < e.programs.size(); ++p) {
    for (size_t i = 0; i < e.programs[p].finals.size(); ++i) {
      const Final& f = e.programs[p].finals[i];
      const VariablePlan& v = e.variables[static_cast<size_t>(f.variable)];
      if (f.value == v.value) continue;
      out.push_back({v.path, [p, i](Executable& m) {
                       auto& finals = m.programs[p].finals;
                       finals.erase(finals.begin() + static_cast<int64_t>(i));
                       return std::string("the program updates the variable, and nothing says so");
                     }});
      out.push_back({v.path, [p, i, was = v.value](Executable& m) {
                       m.programs[p].finals[i].value = was;
                       return std::string("the program updates the variable, which is said to stay as it was");
                     }});
    }
  }
  return out;
}

std::vector<Candidate> budget_cut(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t d = 0; d < e.devices.size(); ++d) {
    const int64_t bytes = planned_bytes(e, static_cast<int32_t>(d), Space::kDevice);
    if (bytes == 0) continue;
    out.push_back({fmt::format("device {}", d), [d, bytes](Executable& m) {
                     m.devices[d].memory_budget = bytes - 1;
                     return fmt::format("{} bytes are planned, one more than there are", bytes);
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
      out.push_back({place(e, f, s), [f, s, c](Executable& m) {
                       auto& pairs = std::get<Kernel>(step_of(m, f, s).body).may_coincide;
                       pairs.erase(pairs.begin() + static_cast<int64_t>(c));
                       return std::string("the kernel may not work in place, and must");
                     }});
    }
  });
  return out;
}

/// Every task writes all of an output that they used to share out.
std::vector<Candidate> tasks_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* k = std::get_if<Kernel>(&step.body);
    for (size_t i = 0; k != nullptr && k->tasks > 1 && i < k->operands.size(); ++i) {
      const Operand& o = k->operands[i];
      if (o.access == Access::kRead || o.task_stride == 0 || o.bytes == 0) continue;
      out.push_back({place(e, f, s), [f, s, i](Executable& m) {
                       auto& kernel = std::get<Kernel>(step_of(m, f, s).body);
                       kernel.operands[i].task_stride = 0;
                       return fmt::format("{} tasks write the same bytes", kernel.tasks);
                     }});
      out.push_back({place(e, f, s), [f, s, i](Executable& m) {
                       auto& kernel = std::get<Kernel>(step_of(m, f, s).body);
                       Operand& part = kernel.operands[i];
                       part.task_stride = (part.bytes - 1) / kernel.tasks;
                       return part.task_stride == 0 ? fmt::format("{} tasks write the same bytes", kernel.tasks)
                                                    : std::string("the last byte is written by no task");
                     }});
    }
  });
  return out;
}

std::vector<Candidate> remote_entry_beyond(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* i = std::get_if<Issue>(&step.body);
    if (i == nullptr || i->kind == TransferKind::kStreamIn || i->kind == TransferKind::kStreamOut) return;
    const int64_t entries = e.remote_buffers[static_cast<size_t>(i->object)].entries;
    out.push_back({place(e, f, s), [f, s, entries](Executable& m) {
                     auto& issue = std::get<Issue>(step_of(m, f, s).body);
                     issue.entry = issue.entry + IndexExpr(entries);
                     return std::string();
                   }});
  });
  return out;
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"wait dropped", {"race", "wait"}, wait_dropped},
      {"step dropped", {"value", "final", "remote"}, step_dropped},
      {"transfer dropped", {"value", "stream", "remote", "final"}, transfer_dropped},
      {"steps swapped", {"value", "race", "wait", "channel", "deadlock", "stream", "final", "remote"}, steps_swapped},
      {"sync dropped", {"sync"}, sync_dropped},
      {"buffer moved", {"value", "overlap", "bounds", "final", "sync", "race"}, buffer_moved},
      {"released early", {"value", "overlap", "race"}, released_early},
      {"buffer shrunk", {"bounds"}, buffer_shrunk},
      {"frame shrunk", {"bounds"}, frame_shrunk},
      {"arena shrunk", {"bounds"}, arena_shrunk},
      {"arenas overlapped", {"overlap"}, arenas_overlapped},
      {"argument rebound", {"value", "overlap"}, argument_rebound},
      {"workspace shared", {"workspace"}, workspace_shared},
      {"message swapped", {"channel"}, message_swapped},
      {"rotation off by one", {"value", "overlap", "race"}, rotation_off_by_one},
      {"trips off by one", {"value", "stream", "channel", "deadlock", "remote", "final"}, trips_off_by_one},
      {"carry dropped", {"value"}, carry_dropped},
      {"value renamed", {"value"}, value_renamed},
      {"layout renamed", {"layout"}, layout_renamed},
      {"stream entries swapped", {"stream"}, stream_entries_swapped},
      {"final damaged", {"final"}, final_damaged},
      {"budget cut", {"budget"}, budget_cut},
      {"coincidence forbidden", {"overlap"}, coincidence_forbidden},
      {"tasks overlapped", {"tasks"}, tasks_overlapped},
      {"remote entry beyond", {"remote"}, remote_entry_beyond},
  };
  return all;
}

}  // namespace

std::vector<std::string> mutation_kinds() {
  std::vector<std::string> names;
  for (const Kind& k : kinds()) names.push_back(k.name);
  return names;
}

std::vector<Mutant> mutate(const Executable& right, uint64_t seed, int per_kind) {
  std::vector<Mutant> out;
  for (const Kind& kind : kinds()) {
    std::vector<Candidate> all = kind.find(right);
    // A shuffle by the seed, so that few candidates are still spread over the plan.
    const Seed key = fold(Seed{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}, kind.name);
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random_bits(key, i) % i]);
    if (all.size() > static_cast<size_t>(per_kind)) all.resize(static_cast<size_t>(per_kind));
    for (const Candidate& c : all) {
      Mutant m{kind.name, c.about, kind.rules, right, ""};
      m.shown = c.damage(m.plan);
      out.push_back(std::move(m));
    }
  }
  return out;
}

}  // namespace sluice::property
