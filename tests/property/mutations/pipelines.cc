#include <algorithm>
#include <utility>

#include "mutations.h"

namespace sluice::property {
namespace {

bool is_run(const Step& step) {
  return std::holds_alternative<Kernel>(step.body) || std::holds_alternative<Call>(step.body);
}

bool is_loop(const Step& step) { return std::holds_alternative<Loop>(step.body); }

template <typename F>
void for_each_entry(const Executable& e, F&& visit) {
  for (const Program& p : e.programs) {
    for (const Start& start : p.starts) visit(static_cast<size_t>(start.function));
  }
}

/// Whether the step writes bytes of a variable in device memory.
bool updates_variable(const Executable& e, const Step& step) {
  bool found = false;
  every_operand(step, [&](const Operand& o) {
    if (o.access == Access::kRead || o.bytes == 0 || o.at.base != Address::Base::kArena) return;
    for (const VariablePlan& v : e.variables)
      found |= v.buffer < 0 && v.arena == o.at.index && v.offset == o.at.offset;
  });
  return found;
}

/// Whether a step reads bytes that an earlier one writes, or the reverse.
bool conflict(const Step& a, const Step& b) {
  bool found = false;
  every_operand(a, [&](const Operand& x) {
    every_operand(b, [&](const Operand& y) {
      found |= (x.access != Access::kRead || y.access != Access::kRead) && x.bytes > 0 &&
               y.bytes > 0 && !disjoint(x, y);
    });
  });
  return found;
}

/// A message whose number is a constant, as those outside of loops are.
struct Single {
  size_t function;
  size_t step;
  int64_t number;
  bool sent;
};

/// Returns the messages of a channel if the last of them are outside of loops. Their numbers are
/// constants.
std::vector<Single> singles_of(const Executable& e, int32_t channel) {
  std::vector<Single> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto add = [&](int32_t c, const IndexExpr& number, bool sent) {
      if (c == channel && number.is_constant()) out.push_back({f, s, number.constant(), sent});
    };
    if (const auto* m = std::get_if<Send>(&step.body)) add(m->channel, m->message, true);
    if (const auto* m = std::get_if<Receive>(&step.body)) add(m->channel, m->message, false);
  });
  return out;
}

/// Whether a loop of an entry function stands after this step. Messages in it have later numbers.
bool loop_follows(const Executable& e, const Single& m) {
  const auto& steps = e.functions[exe::FunctionId(m.function)].steps;
  return std::any_of(steps.begin() + static_cast<int64_t>(m.step), steps.end(), is_loop);
}

void shift_later(Executable& m, int32_t channel, int64_t number, int64_t by) {
  for (Function& f : m.functions) {
    for (Step& step : f.steps) {
      const auto shift = [&](int32_t c, IndexExpr& x) {
        if (c == channel && x.is_constant() && x.constant() > number)
          x = IndexExpr(x.constant() + by);
      };
      if (auto* s = std::get_if<Send>(&step.body)) shift(s->channel, s->message);
      if (auto* r = std::get_if<Receive>(&step.body)) shift(r->channel, r->message);
    }
  }
}

/// Changes both ends of a message after the last loop, and the numbers of the later messages.
std::vector<Candidate> whole_messages(const Executable& e, int64_t by,
                                      void (*change)(Function&, size_t)) {
  std::vector<Candidate> out;
  for (int32_t c = 0; c < static_cast<int32_t>(e.channels.size()); ++c) {
    const std::vector<Single> all = singles_of(e, c);
    for (const Single& sent : all) {
      if (!sent.sent || loop_follows(e, sent)) continue;
      for (const Single& got : all) {
        if (got.sent || got.number != sent.number || got.function == sent.function) continue;
        out.push_back({step_name(e, sent.function, sent.step), [=](Executable& m) {
                         shift_later(m, c, sent.number, by);
                         change(m.functions[exe::FunctionId(sent.function)], sent.step);
                         change(m.functions[exe::FunctionId(got.function)], got.step);
                         return std::string();
                       }});
      }
    }
  }
  return out;
}

/// Changes the address of one operand that reads from a ring of several slots.
std::vector<Candidate> ring_reads(const Executable& e, void (*change)(Address&)) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    size_t n = 0;
    every_operand(step, [&](const Operand& o) {
      if (o.access == Access::kRead && o.at.depth > 1 && o.bytes > 0) {
        out.push_back({step_name(e, f, s), [f, s, n, change](Executable& m) {
                         change(operand_at(step_of(m, f, s), n)->at);
                         return std::string();
                       }});
      }
      ++n;
    });
  });
  return out;
}

void erase_at(Function& f, size_t s) {
  // The barrier stays at its position.
  if (s + 1 < f.steps.size()) f.steps[s + 1].sync |= f.steps[s].sync;
  f.steps.erase(f.steps.begin() + static_cast<int64_t>(s));
}

void repeat_at(Function& f, size_t s) {
  const Step again = f.steps[s];
  f.steps.insert(f.steps.begin() + static_cast<int64_t>(s) + 1, again);
  const auto next = [](IndexExpr& x) { x = x + IndexExpr(1); };
  if (auto* m = std::get_if<Send>(&f.steps[s + 1].body)) next(m->message);
  if (auto* m = std::get_if<Receive>(&f.steps[s + 1].body)) next(m->message);
}

}  // namespace

/// A variable is updated before an earlier step that makes an operand of the update, or that still
/// reads the old value.
std::vector<Candidate> updated_before_drain(const Executable& e) {
  std::vector<Candidate> out;
  for_each_entry(e, [&](size_t f) {
    const auto& steps = e.functions[exe::FunctionId(f)].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      if (!std::holds_alternative<Kernel>(steps[s].body) || !updates_variable(e, steps[s]))
        continue;
      for (size_t t = 0; t < s; ++t) {
        if (!conflict(steps[t], steps[s])) continue;
        out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                         move_step(m.functions[exe::FunctionId(f)], s, t);
                         return std::string();
                       }});
      }
    }
  });
  return out;
}

/// A step of the ramp moves past the loop.
std::vector<Candidate> ramp_step_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_entry(e, [&](size_t f) {
    const auto& steps = e.functions[exe::FunctionId(f)].steps;
    for (size_t l = 0; l < steps.size(); ++l) {
      if (!is_loop(steps[l])) continue;
      for (size_t s = 0; s < steps.size(); ++s) {
        if (!is_run(steps[s])) continue;
        out.push_back({step_name(e, f, s), [f, s, l](Executable& m) {
                         move_step(m.functions[exe::FunctionId(f)], s, l);
                         return std::string();
                       }});
      }
    }
  });
  return out;
}

/// A call or a kernel runs twice. An addition then adds twice.
std::vector<Candidate> step_repeated(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!is_run(step)) return;
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[exe::FunctionId(f)].steps;
                     const Step again = steps[s];
                     steps.insert(steps.begin() + static_cast<int64_t>(s) + 1, again);
                     steps[s + 1].sync = true;
                     return std::string();
                   }});
  });
  return out;
}

/// All arguments of a loop that share a ring use one slot less, so that a value is overwritten
/// while it is still read.
std::vector<Candidate> ring_short(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* loop = std::get_if<Loop>(&step.body);
    if (loop == nullptr) return;
    std::vector<Address> rings;
    for (const Operand& o : loop->body.args) {
      const auto known = [&](const Address& a) { return same_place(a, o.at); };
      if (o.at.depth < 2 || std::any_of(rings.begin(), rings.end(), known)) continue;
      rings.push_back(o.at);
      out.push_back({step_name(e, f, s), [f, s, ring = o.at](Executable& m) {
                       every_operand(step_of(m, f, s), [&](Operand& x) {
                         if (same_place(x.at, ring)) --x.at.depth;
                       });
                       return std::string();
                     }});
    }
  });
  return out;
}

/// An argument reads the first slot of its ring in every iteration.
std::vector<Candidate> ring_slot_ignored(const Executable& e) {
  return ring_reads(e, [](Address& at) { at.depth = at.stride = 0, at.slot = IndexExpr(0); });
}

/// An argument reads from `depth` slots before its slot. Modulo the depth that is the right slot,
/// but it is below 0 in some iterations.
std::vector<Candidate> ring_slot_below_0(const Executable& e) {
  return ring_reads(e, [](Address& at) { at.slot = at.slot - IndexExpr(at.depth); });
}

/// Both ends of a message after the loop are removed: the reader finds what was there before, such
/// as a gradient of another step.
std::vector<Candidate> exchange_dropped(const Executable& e) {
  return whole_messages(e, -1, erase_at);
}

/// Both ends of a message after the loop run twice.
std::vector<Candidate> exchange_repeated(const Executable& e) {
  return whole_messages(e, 1, repeat_at);
}

}  // namespace sluice::property
