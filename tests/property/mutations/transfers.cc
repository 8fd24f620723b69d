#include <algorithm>

#include "mutations.h"

namespace sluice::property {
namespace {

bool touches(const Step& step, const Operand& memory) {
  bool found = false;
  every_operand(step, [&](const Operand& o) { found |= !disjoint(o, memory); });
  return found;
}

/// Returns the issue that a wait of the same function waits for; null if there is none before it.
const Issue* issue_of(const Function& f, size_t wait) {
  const Wait& w = std::get<Wait>(f.steps[wait].body);
  for (size_t s = wait; s-- > 0;) {
    const auto* i = std::get_if<Issue>(&f.steps[s].body);
    if (i != nullptr && i->token == w.token && i->queue == w.queue) return i;
  }
  return nullptr;
}

/// Returns the index of the wait for an issue, after it in the same function; 0 if there is none.
size_t wait_of(const Function& f, size_t issue) {
  const Issue& i = std::get<Issue>(f.steps[issue].body);
  for (size_t s = issue + 1; s < f.steps.size(); ++s) {
    const auto* w = std::get_if<Wait>(&f.steps[s].body);
    if (w != nullptr && w->token == i.token && w->queue == i.queue) return s;
  }
  return 0;
}

void erase_step(Function& f, size_t s) {
  // The barrier stays at its position.
  if (s + 1 < f.steps.size()) f.steps[s + 1].sync |= f.steps[s].sync;
  f.steps.erase(f.steps.begin() + static_cast<int64_t>(s));
}

/// Removes a remote transfer together with its wait.
std::vector<Candidate> transfers_dropped(const Executable& e, TransferKind kind) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr || issue->kind != kind) return;
    const size_t wait = issue->queue == 0 ? 0 : wait_of(e.functions[exe::FunctionId(f)], s);
    out.push_back({step_name(e, f, s), [f, s, wait](Executable& m) {
                     if (wait > 0) erase_step(m.functions[exe::FunctionId(f)], wait);
                     erase_step(m.functions[exe::FunctionId(f)], s);
                     return std::string();
                   }});
  });
  return out;
}

}  // namespace

void move_step(Function& f, size_t from, size_t to) {
  std::vector<bool> sync;
  for (const Step& s : f.steps) sync.push_back(s.sync);
  const auto begin = f.steps.begin();
  const auto a = begin + static_cast<int64_t>(std::min(from, to));
  const auto b = begin + static_cast<int64_t>(std::max(from, to));
  if (from < to) {
    std::rotate(a, a + 1, b + 1);
  } else {
    std::rotate(a, b, b + 1);
  }
  for (size_t s = 0; s < sync.size(); ++s) f.steps[s].sync = sync[s];
}

std::vector<Candidate> load_dropped(const Executable& e) {
  return transfers_dropped(e, TransferKind::kRemoteLoad);
}
std::vector<Candidate> store_dropped(const Executable& e) {
  return transfers_dropped(e, TransferKind::kRemoteStore);
}

/// A load moves before the last earlier store to its buffer.
std::vector<Candidate> load_before_store(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* load = std::get_if<Issue>(&step.body);
    if (load == nullptr || load->kind != TransferKind::kRemoteLoad) return;
    for (size_t before = s; before-- > 0;) {
      const auto* store = std::get_if<Issue>(&e.functions[exe::FunctionId(f)].steps[before].body);
      if (store == nullptr || store->kind != TransferKind::kRemoteStore ||
          store->object != load->object)
        continue;
      out.push_back({step_name(e, f, s), [f, s, before](Executable& m) {
                       move_step(m.functions[exe::FunctionId(f)], s, before);
                       return std::string();
                     }});
      break;
    }
  });
  return out;
}

/// The caller waits for a transfer that its callee issued.
std::vector<Candidate> wait_past_border(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    for_each_call(step, [&](const Call& c) {
      const auto callee = static_cast<size_t>(c.function);
      for (size_t w = 0; w < e.functions[exe::FunctionId(callee)].steps.size(); ++w) {
        if (!std::holds_alternative<Wait>(e.functions[exe::FunctionId(callee)].steps[w].body))
          continue;
        out.push_back({step_name(e, callee, w), [f, s, callee, w](Executable& m) {
                         const Step wait = m.functions[exe::FunctionId(callee)].steps[w];
                         erase_step(m.functions[exe::FunctionId(callee)], w);
                         auto& steps = m.functions[exe::FunctionId(f)].steps;
                         steps.insert(steps.begin() + static_cast<int64_t>(s) + 1, wait);
                         steps[s + 1].sync = false;
                         return std::string("its transfer is in flight when the function ends");
                       }});
      }
    });
  });
  return out;
}

std::vector<Candidate> wait_for_other(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* wait = std::get_if<Wait>(&step.body);
    if (wait == nullptr) return;
    for (size_t t = s + 1; t < e.functions[exe::FunctionId(f)].steps.size(); ++t) {
      const auto* other = std::get_if<Wait>(&e.functions[exe::FunctionId(f)].steps[t].body);
      if (other == nullptr) continue;
      out.push_back({step_name(e, f, s), [f, s, token = other->token](Executable& m) {
                       std::get<Wait>(step_of(m, f, s).body).token = token;
                       return std::string("one transfer is waited for twice, another never");
                     }});
      break;
    }
  });
  return out;
}

std::vector<Candidate> wait_on_other_queue(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* wait = std::get_if<Wait>(&step.body);
    if (wait == nullptr) return;
    const auto queues = e.devices[e.functions[exe::FunctionId(f)].device].queues.size();
    for (int32_t q = 0; q < static_cast<int32_t>(queues); ++q) {
      if (q == wait->queue) continue;
      out.push_back({step_name(e, f, s), [f, s, q](Executable& m) {
                       std::get<Wait>(step_of(m, f, s).body).queue = q;
                       return std::string("the transfer runs on another queue");
                     }});
    }
  });
  return out;
}

/// A wait moves after the first step that touches the bytes in flight.
std::vector<Candidate> wait_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!std::holds_alternative<Wait>(step.body)) return;
    const Function& function = e.functions[exe::FunctionId(f)];
    const Issue* issue = issue_of(function, s);
    for (size_t later = s + 1; issue != nullptr && later < function.steps.size(); ++later) {
      if (!touches(function.steps[later], issue->memory)) continue;
      out.push_back({step_name(e, f, s), [f, s, later](Executable& m) {
                       move_step(m.functions[exe::FunctionId(f)], s, later);
                       return std::string();
                     }});
      break;
    }
  });
  return out;
}

/// The issue of a transfer moves before the last step that touches its bytes.
std::vector<Candidate> issue_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr) return;
    for (size_t before = s; before-- > 0;) {
      if (!touches(e.functions[exe::FunctionId(f)].steps[before], issue->memory)) continue;
      out.push_back({step_name(e, f, s), [f, s, before](Executable& m) {
                       move_step(m.functions[exe::FunctionId(f)], s, before);
                       return std::string();
                     }});
      break;
    }
  });
  return out;
}

/// A transfer runs on another queue than its wait.
std::vector<Candidate> queue_changed(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr || issue->queue == 0) return;
    const auto queues =
        static_cast<int32_t>(e.devices[e.functions[exe::FunctionId(f)].device].queues.size());
    for (int32_t other = 0; other < queues; ++other) {
      if (other == issue->queue) continue;
      out.push_back({step_name(e, f, s), [f, s, other](Executable& m) {
                       std::get<Issue>(step_of(m, f, s).body).queue = other;
                       return std::string("its wait names another queue");
                     }});
    }
  });
  return out;
}

/// Two loads in flight write to the same bytes.
std::vector<Candidate> buffer_shared(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t f = 0; f < e.functions.size(); ++f) {
    std::vector<std::pair<size_t, const Issue*>> flying;
    for (size_t s = 0; s < e.functions[exe::FunctionId(f)].steps.size(); ++s) {
      const Step& step = e.functions[exe::FunctionId(f)].steps[s];
      if (const auto* w = std::get_if<Wait>(&step.body)) {
        std::erase_if(flying, [&](const auto& i) {
          return i.second->queue == w->queue && i.second->token == w->token;
        });
      }
      const auto* issue = std::get_if<Issue>(&step.body);
      const bool load = issue != nullptr && issue->queue != 0 &&
                        issue->memory.access == Access::kWrite &&
                        issue->memory.at.base == Address::Base::kFrame;
      if (!load) continue;
      for (const auto& [first, other] : flying) {
        if (other->memory.bytes != issue->memory.bytes) continue;
        out.push_back({step_name(e, f, s), [f, from = issue->memory.at, to = other->memory.at,
                                            value = issue->memory.value](Executable& m) {
                         for (Step& changed : m.functions[exe::FunctionId(f)].steps) {
                           every_operand(changed, [&](Operand& o) {
                             if (o.value == value && same_place(o.at, from)) o.at = to;
                           });
                         }
                         return std::string();
                       }});
      }
      flying.emplace_back(s, issue);
    }
  }
  return out;
}

}  // namespace sluice::property
