#include <algorithm>

#include "mutations.h"

namespace sluice::property {
namespace {

bool touches(const Step& step, const Operand& memory) {
  bool found = false;
  every_operand(step, [&](const Operand& o) { found |= !disjoint(o, memory); });
  return found;
}

/// The issue that a wait of the same straight line of steps waits for; null if there is none.
const Issue* issue_of(const Function& f, size_t wait) {
  const Wait& w = std::get<Wait>(f.steps[wait].body);
  for (size_t s = wait; s-- > 0;) {
    const auto* i = std::get_if<Issue>(&f.steps[s].body);
    if (i != nullptr && i->token == w.token && i->queue == w.queue) return i;
  }
  return nullptr;
}

/// Step `from` goes to place `to`; barriers stay where they were.
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

}  // namespace

/// A wait comes after the first step that touches the bytes in flight.
std::vector<Candidate> wait_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (!std::holds_alternative<Wait>(step.body)) return;
    const Function& function = e.functions[f];
    const Issue* issue = issue_of(function, s);
    for (size_t later = s + 1; issue != nullptr && later < function.steps.size(); ++later) {
      if (!touches(function.steps[later], issue->memory)) continue;
      out.push_back({place(e, f, s), [f, s, later](Executable& m) {
                       move_step(m.functions[f], s, later);
                       return std::string();
                     }});
      break;
    }
  });
  return out;
}

/// A transfer is issued before the step that made or last touched its bytes.
std::vector<Candidate> issue_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr) return;
    for (size_t before = s; before-- > 0;) {
      if (!touches(e.functions[f].steps[before], issue->memory)) continue;
      out.push_back({place(e, f, s), [f, s, before](Executable& m) {
                       move_step(m.functions[f], s, before);
                       return std::string();
                     }});
      break;
    }
  });
  return out;
}

/// A transfer runs on another queue than the one that is waited for.
std::vector<Candidate> queue_changed(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr || issue->queue == 0) return;
    const auto queues =
        static_cast<int32_t>(e.devices[static_cast<size_t>(e.functions[f].device)].queues.size());
    for (int32_t other = 0; other < queues; ++other) {
      if (other == issue->queue) continue;
      out.push_back({place(e, f, s), [f, s, other](Executable& m) {
                       std::get<Issue>(step_of(m, f, s).body).queue = other;
                       return std::string("its wait is for another queue, and finds nothing there");
                     }});
    }
  });
  return out;
}

/// What two transfers in flight load lies in the same bytes.
std::vector<Candidate> buffer_shared(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t f = 0; f < e.functions.size(); ++f) {
    std::vector<std::pair<size_t, const Issue*>> flying;
    for (size_t s = 0; s < e.functions[f].steps.size(); ++s) {
      const Step& step = e.functions[f].steps[s];
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
        out.push_back({place(e, f, s), [f, from = issue->memory.at, to = other->memory.at,
                                        value = issue->memory.value](Executable& m) {
                         for (Step& changed : m.functions[f].steps) {
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
