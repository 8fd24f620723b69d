#include "sluice/compiler/lower/synchronise.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace sluice::compiler {
namespace {

// With more accesses than this, a barrier costs less than the search for a conflict.
constexpr size_t kMaxTouches = 256;

// How tasks divide an operand. With equal cuts, task i of two kernels accesses the same bytes and
// runs on the same worker.
struct Cut {
  int64_t tasks = 1;
  int64_t stride = 0;
  int64_t pitch = 0;
  bool operator==(const Cut&) const = default;
};

// Every worker accesses all bytes.
constexpr Cut kEveryone{2, 0, 0};

struct Touch {
  exe::Address::Base base;
  int32_t index;
  int64_t begin;
  int64_t end;
  bool write;
  bool fixed;  // Not in a ring, so every iteration accesses the same bytes.
  Cut cut;
};

// A transfer on an I/O queue that is issued, but for which no step has waited.
struct Flight {
  int32_t queue;
  int32_t token;
  Touch touch;
};

void touch(const exe::Operand& o, int64_t tasks, std::vector<Touch>& out) {
  const int64_t span = o.at.depth > 0 ? (o.at.depth - 1) * o.at.stride + o.bytes : o.bytes;
  const Cut cut = tasks == 1 ? Cut{} : Cut{tasks, o.task_stride, o.task_pitch};
  out.push_back({o.at.base, o.at.index, o.at.offset, o.at.offset + span,
                 o.access != exe::Access::kRead, o.at.depth == 0, cut});
}

// Whether one worker makes both accesses to each byte that they share.
bool same_worker(const Touch& a, const Touch& b) {
  if (!(a.cut == b.cut)) return false;
  if (a.cut.tasks == 1) return true;
  return a.cut.stride > 0 && a.fixed && b.fixed && a.base == b.base && a.index == b.index &&
         a.begin == b.begin && a.end == b.end;
}

// Whether a barrier must separate two accesses. Two parameters share bytes only if both are read. A
// frame shares bytes with neither a parameter nor an arena, but a parameter may be in an arena.
bool conflict(const Touch& a, const Touch& b) {
  if (!a.write && !b.write) return false;
  if (same_worker(a, b)) return false;
  if (a.base != b.base)
    return a.base != exe::Address::Base::kFrame && b.base != exe::Address::Base::kFrame;
  return a.index == b.index && a.begin < b.end && b.begin < a.end;
}

}  // namespace

int64_t synchronise(exe::Function& function) {
  int64_t count = 0;
  std::vector<Touch> since;
  std::vector<Flight> flights;
  bool unknown = true;
  for (exe::Step& step : function.steps) {
    std::vector<Touch> now;
    bool leaves = false;
    if (const auto* wait = std::get_if<exe::Wait>(&step.body)) {
      // Worker 0 has waited for this transfer and the earlier ones of its queue. For the other
      // workers, their accesses happen now.
      const auto last = std::find_if(flights.begin(), flights.end(), [&](const Flight& f) {
        return f.queue == wait->queue && f.token == wait->token;
      });
      if (last == flights.end()) continue;
      const auto ended = std::stable_partition(
          flights.begin(), last + 1, [&](const Flight& f) { return f.queue != wait->queue; });
      for (auto f = ended; f != last + 1; ++f) since.push_back(f->touch);
      flights.erase(ended, last + 1);
      continue;
    }
    if (const auto* kernel = std::get_if<exe::Kernel>(&step.body)) {
      for (const exe::Operand& o : kernel->operands) touch(o, kernel->tasks, now);
    } else if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      touch(issue->memory, 1, now);
      if (issue->queue != 0) flights.push_back({issue->queue, issue->token, now.back()});
      if (issue->entry_from) touch(*issue->entry_from, 1, now);
    } else if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      touch(send->operand, 1, now);
    } else if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      touch(receive->operand, 1, now);
    } else if (std::holds_alternative<exe::Collective>(step.body)) {
      since.clear();  // Waits for all workers of all replicas before and after.
      unknown = false;
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      touch(branch->condition, 1, now);
      now.back().cut = kEveryone;  // Every worker reads the condition.
      leaves = true;
    } else {
      if (const auto* loop = std::get_if<exe::Loop>(&step.body); loop && loop->condition >= 0) {
        touch(loop->body.args[loop->condition], 1, now);
        now.back().cut = kEveryone;
        now.back().write = false;
        // Every worker reads the condition before each iteration. The body has updated it.
        unknown = true;
      }
      leaves = true;
    }
    const bool clash = std::any_of(now.begin(), now.end(), [&](const Touch& a) {
      return std::any_of(since.begin(), since.end(),
                         [&](const Touch& b) { return conflict(a, b); });
    });
    // A call needs no barrier, because its callee begins with one.
    step.sync = (unknown && !now.empty()) || clash || since.size() > kMaxTouches;
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
