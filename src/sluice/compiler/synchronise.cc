#include "sluice/compiler/synchronise.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace sluice::compiler {
namespace {

// Beyond this many a barrier costs less than looking.
constexpr size_t kMostTouches = 256;

struct Touch {
  exe::Address::Base base;
  int32_t index;
  int64_t begin;
  int64_t end;
  bool write;
  bool single;  // By a single-task step.
};

void touch(const exe::Operand& o, bool single, std::vector<Touch>& out) {
  const int64_t span = o.at.depth > 0 ? (o.at.depth - 1) * o.at.stride + o.bytes : o.bytes;
  out.push_back({o.at.base, o.at.index, o.at.offset, o.at.offset + span,
                 o.access != exe::Access::kRead, single});
}

// Two parameters may be the same bytes only if both are read, so different bases never conflict; a parameter never
// lies in the callee's frame, and a persistent arena's bytes that a function names itself are not passed to it written.
bool conflict(const Touch& a, const Touch& b) {
  if (!a.write && !b.write) return false;
  if (a.single && b.single) return false;
  if (a.base != b.base)
    return a.base != exe::Address::Base::kFrame && b.base != exe::Address::Base::kFrame;
  return a.index == b.index && a.begin < b.end && b.begin < a.end;
}

}  // namespace

int64_t synchronise(exe::Function& function) {
  int64_t count = 0;
  std::vector<Touch> since;
  bool unknown = true;
  for (exe::Step& step : function.steps) {
    std::vector<Touch> now;
    bool leaves = false;
    if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
      for (const exe::Operand& o : kernel->operands) touch(o, kernel->tasks == 1, now);
    } else if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      touch(issue->memory, true, now);
      if (issue->entry_from) touch(*issue->entry_from, true, now);
    } else if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      touch(send->operand, true, now);
    } else if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      touch(receive->operand, true, now);
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      touch(branch->condition, false, now);  // Every worker reads the condition.
      leaves = true;
    } else {
      leaves = true;
    }
    const bool clash = std::any_of(now.begin(), now.end(), [&](const Touch& a) {
      return std::any_of(since.begin(), since.end(),
                         [&](const Touch& b) { return conflict(a, b); });
    });
    // A call needs no barrier of its own: its callee begins with one.
    step.sync = (unknown && !now.empty()) || clash || since.size() > kMostTouches;
    if (step.sync) {
      ++count;
      since.clear();
      unknown = false;
    }
    since.insert(since.end(), now.begin(), now.end());
    if (leaves) unknown = true;
  }
  return count;
}

}  // namespace sluice::compiler
