#include "sluice/compiler/lower/synchronise.h"

#include <algorithm>
#include <variant>
#include <vector>

namespace sluice::compiler {
namespace {

// Beyond this many a barrier costs less than looking.
constexpr size_t kMostTouches = 256;

// Tasks of equal cuts touch the same bytes, and one worker runs the tasks of one number.
struct Cut {
  int64_t tasks = 1;
  int64_t stride = 0;
  int64_t pitch = 0;
  bool operator==(const Cut&) const = default;
};

// Every worker touches all of it.
constexpr Cut kEveryone{2, 0, 0};

struct Touch {
  exe::Address::Base base;
  int32_t index;
  int64_t begin;
  int64_t end;
  bool write;
  bool fixed;  // The bytes do not change from one run to the next.
  Cut cut;
};

// A transfer that has been issued on another queue and not been waited for.
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

// Whatever is touched by both is touched by one worker.
bool same_worker(const Touch& a, const Touch& b) {
  if (!(a.cut == b.cut)) return false;
  if (a.cut.tasks == 1) return true;
  return a.cut.stride > 0 && a.fixed && b.fixed && a.base == b.base && a.index == b.index &&
         a.begin == b.begin && a.end == b.end;
}

// Two parameters may be the same bytes only if both are read, so different bases never conflict; a parameter never
// lies in the callee's frame, and a persistent arena's bytes that a function names itself are not passed to it written.
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
      // Worker 0 alone has waited, for all that the queue was given before too: to the others these bytes are touched now.
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
      since.clear();  // Waits for all workers of all replicas, before and after.
      unknown = false;
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      touch(branch->condition, 1, now);
      now.back().cut = kEveryone;  // Every worker reads the condition.
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
