#include <algorithm>

#include "mutations.h"

namespace sluice::property {
namespace {

using Change = std::function<IndexExpr(const IndexExpr&)>;

/// Whether the function or a callee moves entries of remote buffers.
bool moves_entries(const Executable& e, const Function& f) {
  for (const Step& step : f.steps) {
    const auto* issue = std::get_if<Issue>(&step.body);
    bool found = issue != nullptr && is_remote(*issue);
    for_each_call(
        step, [&](const Call& c) { found = found || moves_entries(e, e.functions[c.function]); });
    if (found) return true;
  }
  return false;
}

/// Changes the numbers that select a row: entries, and numbers passed to callees that move entries.
std::vector<Candidate> rows_changed(const Executable& e, const std::vector<Change>& changes) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    for (const Change& change : changes) {
      if (issue != nullptr && is_remote(*issue) && !issue->entry_from &&
          !(change(issue->entry) == issue->entry)) {
        out.push_back({step_name(e, f, s), [f, s, change](Executable& m) {
                         auto& row = std::get<Issue>(step_of(m, f, s).body).entry;
                         row = change(row);
                         return std::string();
                       }});
      }
      size_t n = 0;
      for_each_call(step, [&](const Call& c) {
        const Function& callee = e.functions[c.function];
        if (!moves_entries(e, callee)) return;
        for (size_t a = 0; a < c.index_args.size(); ++a, ++n) {
          // A number that an operator computes with changes values: the tests of value programs
          // cover it.
          if (change(c.index_args[a]) == c.index_args[a] ||
              is_data(e, callee, static_cast<int64_t>(a)))
            continue;
          out.push_back({step_name(e, f, s), [f, s, n, change](Executable& m) {
                           size_t at = 0;
                           for_each_call(step_of(m, f, s), [&](Call& call) {
                             for (IndexExpr& x : call.index_args) {
                               if (at++ == n) x = change(x);
                             }
                           });
                           return std::string();
                         }});
        }
      });
    }
  });
  return out;
}

}  // namespace

bool is_data(const Executable& e, const Function& f, int64_t param) {
  const auto uses = [&](const IndexExpr& x) {
    const auto& nodes = x.nodes();
    return std::any_of(nodes.begin(), nodes.end(), [&](const IndexExpr::Node& n) {
      return n.kind == IndexExpr::Opcode::kParam && n.value == param;
    });
  };
  for (const Step& step : f.steps) {
    bool found = false;
    if (const auto* k = std::get_if<Kernel>(&step.body))
      found = std::any_of(k->scalars.begin(), k->scalars.end(), uses);
    for_each_call(step, [&](const Call& c) {
      for (size_t a = 0; a < c.index_args.size(); ++a) {
        found = found || (uses(c.index_args[a]) &&
                          is_data(e, e.functions[c.function], static_cast<int64_t>(a)));
      }
    });
    if (found) return true;
  }
  return false;
}

std::vector<Candidate> row_off_by_one(const Executable& e) {
  return rows_changed(e, {[](const IndexExpr& x) { return x + IndexExpr(1); },
                          [](const IndexExpr& x) { return x - IndexExpr(1); }});
}

/// Changes the coefficient of a counter, also to 0.
std::vector<Candidate> row_counted_differently(const Executable& e) {
  const auto counts = [](const IndexExpr& x) {
    return x.uses(IndexExpr::Opcode::kIteration) || x.uses(IndexExpr::Opcode::kParam);
  };
  return rows_changed(
      e, {[=](const IndexExpr& x) { return counts(x) ? x + x : x; },
          [=](const IndexExpr& x) { return counts(x) ? IndexExpr(0) : x; },
          [=](const IndexExpr& x) { return counts(x) ? (x + IndexExpr(1)) % IndexExpr(2) : x; }});
}

std::vector<Candidate> row_of_other_replica(const Executable& e) {
  if (e.replicas == 1) return {};
  return rows_changed(e, {[](const IndexExpr& x) { return x + IndexExpr::replica(); }});
}

/// A transfer uses another buffer whose entries have the same size.
std::vector<Candidate> buffer_exchanged(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* issue = std::get_if<Issue>(&step.body);
    if (issue == nullptr || !is_remote(*issue)) return;
    for (int32_t b = 0; b < static_cast<int32_t>(e.remote_buffers.size()); ++b) {
      if (b == issue->object || e.remote_buffers[exe::BufferId(b)].spec.bytes() !=
                                    e.remote_buffers[exe::BufferId(issue->object)].spec.bytes())
        continue;
      out.push_back({step_name(e, f, s), [f, s, b](Executable& m) {
                       std::get<Issue>(step_of(m, f, s).body).object = b;
                       return std::string();
                     }});
    }
  });
  return out;
}

std::vector<Candidate> entries_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t b = 0; b < e.remote_buffers.size(); ++b) {
    const RemoteBufferPlan& buffer = e.remote_buffers[exe::BufferId(b)];
    if (buffer.entries < 2 || buffer.spec.bytes() == 0) continue;
    out.push_back({buffer.name, [b](Executable& m) {
                     RemoteBufferPlan& r = m.remote_buffers[exe::BufferId(b)];
                     r.entry_stride = r.spec.bytes() - 1;
                     return fmt::format("entries of {} bytes are {} apart", r.spec.bytes(),
                                        r.entry_stride);
                   }});
  }
  return out;
}

std::vector<Candidate> remote_buffers_overlapped(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t b = 1; b < e.remote_buffers.size(); ++b) {
    out.push_back({e.remote_buffers[exe::BufferId(b)].name, [b](Executable& m) {
                     const RemoteBufferPlan& before = m.remote_buffers[exe::BufferId(b - 1)];
                     m.remote_buffers[exe::BufferId(b)].offset =
                         before.offset + before.entries * before.entry_stride - 1;
                     return fmt::format("it begins in the last byte of '{}'", before.name);
                   }});
  }
  return out;
}

/// Two variables exchange their entries.
std::vector<Candidate> locations_exchanged(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.variables.size(); ++a) {
    for (size_t b = a + 1; b < e.variables.size(); ++b) {
      const VariablePlan& v = e.variables[exe::VariableId(a)];
      if (v.buffer < 0 || v.buffer != e.variables[exe::VariableId(b)].buffer) continue;
      out.push_back({v.path, [a, b](Executable& m) {
                       std::swap(m.variables[exe::VariableId(a)].entry,
                                 m.variables[exe::VariableId(b)].entry);
                       std::swap(m.variables[exe::VariableId(a)].offset,
                                 m.variables[exe::VariableId(b)].offset);
                       return std::string();
                     }});
    }
  }
  return out;
}

std::vector<Candidate> tier_short(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t a = 0; a < e.arenas.size(); ++a) {
    int64_t used = 0;
    for (const RemoteBufferPlan& b : e.remote_buffers) {
      if (b.arena == static_cast<int32_t>(a))
        used = std::max(used, b.offset + b.entries * b.entry_stride);
    }
    if (used == 0) continue;
    out.push_back({e.arenas[exe::ArenaId(a)].name, [a, used](Executable& m) {
                     m.arenas[exe::ArenaId(a)].bytes = used - 1;
                     return std::string("the last byte of the last buffer is outside the arena");
                   }});
  }
  return out;
}

std::vector<Candidate> tier_budget_cut(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t t = 0; t < e.tiers.size(); ++t) {
    int64_t bytes = 0;
    for (const Arena& a : e.arenas) {
      if (a.space == e.tiers[t].space) bytes += a.bytes * e.replicas;
    }
    if (bytes == 0) continue;
    out.push_back({e.tiers[t].name, [t, bytes](Executable& m) {
                     m.tiers[t].budget = bytes - 1;
                     return fmt::format("{} bytes are planned, one more than the budget", bytes);
                   }});
  }
  return out;
}

}  // namespace sluice::property
