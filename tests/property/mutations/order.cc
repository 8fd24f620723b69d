#include <array>
#include <optional>

#include "mutations.h"

namespace sluice::property {
namespace {

/// Returns the value that the steps before `s` wrote last at the operand's address, or nothing if
/// none of them wrote there.
std::optional<ValueId> last_written(const Function& f, size_t s, const Operand& o) {
  if (o.at.depth != 0) return std::nullopt;
  for (size_t i = s; i-- > 0;) {
    std::optional<ValueId> found;
    every_operand(f.steps[i], [&](const Operand& w) {
      if (w.access == Access::kRead || w.at.base != o.at.base || w.at.index != o.at.index ||
          w.at.depth != 0)
        return;
      if (w.at.offset == o.at.offset && w.bytes == o.bytes)
        found = w.access == Access::kWrite ? w.value : w.made;
    });
    if (found) return found;
  }
  return std::nullopt;
}

/// Whether a load expects the value of the store. Other loads do not show that the store is
/// missing.
bool is_missed(const Executable& e, const Issue& store) {
  bool missed = false;
  for_each_step(e, [&](size_t, size_t, const Step& s) {
    const auto* i = std::get_if<Issue>(&s.body);
    missed |= i != nullptr && i->found != kNoValue && i->object == store.object &&
              i->found == store.memory.value;
  });
  return missed;
}

}  // namespace

std::vector<Candidate> steps_dropped(const Executable& e,
                                     const std::function<bool(const Step&)>& which) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!which(step)) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[exe::FunctionId(f)].steps;
                     // The barrier stays at its position.
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
    if (s + 1 >= e.functions[exe::FunctionId(f)].steps.size()) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[exe::FunctionId(f)].steps;
                     const bool sync = steps[s].sync;
                     std::swap(steps[s], steps[s + 1]);
                     // Keep the barriers and add one after the first step, so that only the order
                     // of the steps changes.
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
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     step_of(m, f, s).sync = false;
                     return std::string();
                   }});
  });
  return out;
}

std::vector<Candidate> rotation_off_by_one(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.at.depth > 1) {
        out.push_back({step_name(e, f, s), [f, s, n](Executable& m) {
                         Address& at = operand_at(step_of(m, f, s), n)->at;
                         at.slot = at.slot + IndexExpr(1);
                         return std::string();
                       }});
        out.push_back({step_name(e, f, s), [f, s, n](Executable& m) {
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
      out.push_back({step_name(e, f, s), [f, s, by](Executable& m) {
                       std::get<Loop>(step_of(m, f, s).body).trips += by;
                       return std::string();
                     }});
    }
  });
  return out;
}

/// An index argument or a ring slot of a loop is another one in its last iteration only: the start
/// offset, the stride or the modulus differs there.
std::vector<Candidate> late_iteration_changed(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* l = std::get_if<Loop>(&step.body);
    if (l == nullptr || l->trips < 3) return;
    const IndexExpr last(l->trips - 1);
    const IndexExpr is_last = IndexExpr::iteration() / last;
    const auto changes = [=](const IndexExpr& x) {
      return std::array{x + is_last, x * (is_last + IndexExpr(1)), x % last};
    };
    const Function& body = e.functions[l->body.function];
    for (size_t c = 0; c < 3; ++c) {
      for (size_t a = 0; a < l->body.index_args.size(); ++a) {
        if (is_data(e, body, static_cast<int64_t>(a))) continue;
        out.push_back({step_name(e, f, s), [=](Executable& m) {
                         IndexExpr& x = std::get<Loop>(step_of(m, f, s).body).body.index_args[a];
                         x = changes(x)[c];
                         return std::string();
                       }});
      }
      for (const ParamId a : l->body.args.ids()) {
        if (l->body.args[a].at.depth < 2) continue;
        out.push_back({step_name(e, f, s), [=](Executable& m) {
                         Address& at = std::get<Loop>(step_of(m, f, s).body).body.args[a].at;
                         at.slot = changes(at.slot)[c];
                         return std::string();
                       }});
      }
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
      const Carry& carry = l->carried[c];
      const Operand& in = l->body.args[carry.in];
      // A value that stays in its argument needs no carry.
      if (in.bytes == 0 || (carry.in == carry.out && in.access == Access::kRead)) continue;
      out.push_back({step_name(e, f, s), [f, s, c](Executable& m) {
                       auto& carried = std::get<Loop>(step_of(m, f, s).body).carried;
                       carried.erase(carried.begin() + static_cast<int64_t>(c));
                       return std::string(
                           "iteration 1 reads a value of iteration 0 without a carry");
                     }});
    }
  });
  return out;
}

std::vector<Candidate> carry_changed(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* l = std::get_if<Loop>(&step.body);
    if (l == nullptr || l->trips < 2) return;
    const Ids<ParamId, Operand>& args = l->body.args;
    for (size_t c = 0; c < l->carried.size(); ++c) {
      const Carry& right = l->carried[c];
      for (const ParamId arg : args.ids()) {
        const bool alike =
            args[arg].spec == args[right.out].spec && args[arg].layout == args[right.out].layout;
        if (arg == right.out || !alike || args[arg].bytes == 0) continue;
        out.push_back({step_name(e, f, s), [f, s, c, arg](Executable& m) {
                         std::get<Loop>(step_of(m, f, s).body).carried[c].out = arg;
                         return std::string("iteration 1 reads another argument's value");
                       }});
      }
    }
  });
  return out;
}

std::vector<Candidate> value_renamed(const Executable& e) {
  std::vector<Candidate> out;
  const ValueId values = e.values.end_id();
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      const std::optional<ValueId> there = last_written(e.functions[exe::FunctionId(f)], s, o);
      if (o.access == Access::kRead && values > 1 && o.bytes > 0 && there == o.value) {
        out.push_back({step_name(e, f, s), [f, s, n, values, was = o.value](Executable& m) {
                         operand_at(step_of(m, f, s), n)->value = ValueId((was + 1) % values);
                         return fmt::format(
                             "value {} was written there last, but the operand names {}", was,
                             (was + 1) % values);
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
        out.push_back({step_name(e, f, s), [f, s, n](Executable& m) {
                         Operand* const read = operand_at(step_of(m, f, s), n);
                         read->layout += "'";
                         return fmt::format("layout '{}' is never written", read->layout);
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
    return i != nullptr &&
           (i->kind == TransferKind::kStreamIn || i->kind == TransferKind::kStreamOut);
  };
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!is_stream(step)) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& i = std::get<Issue>(step_of(m, f, s).body);
                     i.entry = i.entry + IndexExpr(1);
                     return fmt::format("entry 0 of stream {} is never moved, or not first",
                                        i.object);
                   }});
  });
  return out;
}

std::vector<Candidate> transfer_dropped(const Executable& e) {
  return steps_dropped(e, [&](const Step& s) {
    const auto* i = std::get_if<Issue>(&s.body);
    return i != nullptr && i->queue == 0 &&
           (i->kind != TransferKind::kRemoteStore || is_missed(e, *i));
  });
}

std::vector<Candidate> final_damaged(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t p = 0; p < e.programs.size(); ++p) {
    for (size_t i = 0; i < e.programs[p].finals.size(); ++i) {
      const Final& f = e.programs[p].finals[i];
      const VariablePlan& v = e.variables[f.variable];
      if (f.value == v.value || v.bytes == 0) continue;
      out.push_back({v.path, [p, i](Executable& m) {
                       auto& finals = m.programs[p].finals;
                       finals.erase(finals.begin() + static_cast<int64_t>(i));
                       return std::string(
                           "the program updates the variable but does not declare it");
                     }});
      out.push_back({v.path, [p, i, was = v.value](Executable& m) {
                       m.programs[p].finals[i].value = was;
                       return std::string(
                           "the program updates the variable but declares its old value");
                     }});
    }
  }
  return out;
}

std::vector<Candidate> remote_entry_beyond(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* i = std::get_if<Issue>(&step.body);
    if (i == nullptr || i->kind == TransferKind::kStreamIn || i->kind == TransferKind::kStreamOut)
      return;
    const int64_t entries = e.remote_buffers[exe::BufferId(i->object)].entries;
    out.push_back({step_name(e, f, s), [f, s, entries](Executable& m) {
                     auto& issue = std::get<Issue>(step_of(m, f, s).body);
                     issue.entry = issue.entry + IndexExpr(entries);
                     return std::string();
                   }});
  });
  return out;
}

std::vector<Candidate> collective_dropped(const Executable& e) {
  return steps_dropped(e, [](const Step& s) { return std::holds_alternative<Collective>(s.body); });
}

std::vector<Candidate> collectives_swapped(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!std::holds_alternative<Collective>(step.body)) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& c = std::get<Collective>(step_of(m, f, s).body);
                     c.sequence = c.sequence + IndexExpr(1);
                     return std::string("it has the sequence number of the next collective");
                   }});
    for (size_t t = s + 1; t < e.functions[exe::FunctionId(f)].steps.size(); ++t) {
      if (!std::holds_alternative<Collective>(e.functions[exe::FunctionId(f)].steps[t].body))
        continue;
      out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                       auto& a = std::get<Collective>(step_of(m, f, s).body);
                       auto& b = std::get<Collective>(step_of(m, f, t).body);
                       std::swap(a.sequence, b.sequence);
                       return std::string(a.group == b.group
                                              ? "two collectives have exchanged sequence numbers"
                                              : "");
                     }});
      return;
    }
  });
  return out;
}

/// Two collectives of one function are swapped.
std::vector<Candidate> collectives_exchanged(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* first = std::get_if<Collective>(&step.body);
    for (size_t t = s + 1; first != nullptr && t < e.functions[exe::FunctionId(f)].steps.size();
         ++t) {
      const auto* second = std::get_if<Collective>(&e.functions[exe::FunctionId(f)].steps[t].body);
      if (second == nullptr || second->group != first->group) continue;
      out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                       std::swap(step_of(m, f, s).body, step_of(m, f, t).body);
                       return std::string("the second collective runs before the first one");
                     }});
      return;
    }
  });
  return out;
}

std::vector<Candidate> collective_at_one_replica(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!std::holds_alternative<Collective>(step.body)) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& c = std::get<Collective>(step_of(m, f, s).body);
                     c.sequence = c.sequence + IndexExpr::replica() / IndexExpr(m.replicas - 1);
                     return std::string("the last replica uses the next sequence number");
                   }});
  });
  return out;
}

std::vector<Candidate> collective_of_other_group(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!std::holds_alternative<Collective>(step.body)) return;
    for (const GroupId g : e.groups.ids()) {
      if (g == std::get<Collective>(step.body).group) continue;
      out.push_back({step_name(e, f, s), [f, s, g](Executable& m) {
                       std::get<Collective>(step_of(m, f, s).body).group = g;
                       return std::string();
                     }});
    }
  });
  return out;
}

}  // namespace sluice::property
