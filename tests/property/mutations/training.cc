#include <utility>

#include "mutations.h"

namespace sluice::property {
namespace {

/// Whether both steps modify the same bytes, as two additions to an accumulator do.
bool modify_alike(const Step& a, const Step& b) {
  bool found = false;
  every_operand(a, [&](const Operand& x) {
    if (x.access != Access::kUpdate || x.bytes == 0) return;
    every_operand(b, [&](const Operand& y) {
      found |= y.access == Access::kUpdate && same_place(x.at, y.at) && x.bytes == y.bytes;
    });
  });
  return found;
}

/// Whether step `b` modifies bytes, and reads others that step `a` writes.
bool updates_from(const Step& a, const Step& b) {
  bool modifies = false, reads = false;
  every_operand(b, [&](const Operand& y) {
    modifies |= y.access == Access::kUpdate && y.bytes > 0;
    every_operand(a, [&](const Operand& x) {
      reads |= y.access == Access::kRead && x.access != Access::kRead && x.bytes > 0 &&
               same_place(x.at, y.at);
    });
  });
  return modifies && reads;
}

/// Transfers of one kind access the row of an earlier transfer with the same buffer.
std::vector<Candidate> rows_of_others(const Executable& e, TransferKind kind) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto* own = std::get_if<Issue>(&step.body);
    if (own == nullptr || own->kind != kind || own->entry_from) return;
    for (size_t t = 0; t < s; ++t) {
      const auto* other = std::get_if<Issue>(&e.functions[exe::FunctionId(f)].steps[t].body);
      if (other == nullptr || !is_remote(*other) || other->object != own->object) continue;
      if (other->entry_from || other->entry == own->entry) continue;
      out.push_back({step_name(e, f, s), [f, s, row = other->entry](Executable& m) {
                       std::get<Issue>(step_of(m, f, s).body).entry = row;
                       return std::string();
                     }});
    }
  });
  return out;
}

}  // namespace

std::vector<Candidate> accumulations_exchanged(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    const auto& steps = e.functions[exe::FunctionId(f)].steps;
    for (size_t t = s + 1; t < steps.size(); ++t) {
      if (!modify_alike(step, steps[t])) continue;
      out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                       std::swap(step_of(m, f, s).body, step_of(m, f, t).body);
                       return std::string();
                     }});
      return;
    }
  });
  return out;
}

std::vector<Candidate> updated_early(const Executable& e) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    for (size_t t = s; t-- > 0;) {
      if (!updates_from(e.functions[exe::FunctionId(f)].steps[t], step)) continue;
      out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                       move_step(m.functions[exe::FunctionId(f)], s, t);
                       return std::string();
                     }});
      return;
    }
  });
  return out;
}

std::vector<Candidate> row_of_other_block(const Executable& e) {
  return rows_of_others(e, TransferKind::kRemoteLoad);
}

std::vector<Candidate> stored_value_overwritten(const Executable& e) {
  return rows_of_others(e, TransferKind::kRemoteStore);
}

}  // namespace sluice::property
