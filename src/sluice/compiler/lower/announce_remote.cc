#include "sluice/compiler/lower/announce_remote.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "sluice/base/hash.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

constexpr int64_t kMostSteps = 50'000'000;

const exe::Issue* remote_transfer(const exe::Step& step) {
  const auto* issue = std::get_if<exe::Issue>(&step.body);
  const bool remote = issue != nullptr && (issue->kind == exe::TransferKind::kRemoteLoad ||
                                           issue->kind == exe::TransferKind::kRemoteStore);
  return remote ? issue : nullptr;
}

bool calls(const exe::Step& step) {
  bool found = false;
  exe::for_each_call(step, [&](const exe::Call&) { found = true; });
  return found;
}

// The functions of exe::RemoteTrace. The checker has its own implementation, so that a defect in
// one is not hidden by the same defect in the other.
uint64_t mix(uint64_t a, uint64_t b) {
  const uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15)) * 0xbf58476d1ce4e5b9;
  const uint64_t y = (x ^ (x >> 29)) * 0x94d049bb133111eb;
  return y ^ (y >> 32);
}

// The contents of one remote buffer while a walk runs transfers in the order of the graphs.
class BufferHistory {
 public:
  void set_home(int64_t entry, const std::string& path) { homes_[entry] = hash64(path); }

  void load(std::optional<int64_t> entry, uint64_t transfer) {
    ++loads_;
    found_ += mix(transfer, entry ? content(now_, *entry) : mix(3, all()));
  }

  void store(std::optional<int64_t> entry, uint64_t transfer) {
    ++stores_;
    if (entry) {
      now_.named[*entry] = transfer;
      return;
    }
    for (auto& named : now_.named) named.second = mix(named.second, transfer);
    now_.others = mix(now_.others, transfer);
  }

  // Order of calls for a branch: begin_branch, steps of the then-arm, begin_else, steps of the
  // else-arm, end_branch.
  void begin_branch() { saved_.push_back(now_); }
  void begin_else() { std::swap(now_, saved_.back()); }
  void end_branch() {
    const State after_then = std::move(saved_.back());
    saved_.pop_back();
    State joined;
    for (const State* arm : {&after_then, &std::as_const(now_)}) {
      for (const auto& named : arm->named) {
        const int64_t entry = named.first;
        joined.named[entry] = either(content(after_then, entry), content(now_, entry));
      }
    }
    joined.others = either(after_then.others, now_.others);
    now_ = std::move(joined);
  }

  bool used() const { return loads_ + stores_ > 0; }
  exe::RemoteTrace trace(int32_t buffer) const {
    return {buffer, loads_, stores_, static_cast<int64_t>((found_ + all()) / 2)};
  }

 private:
  struct State {
    std::map<int64_t, uint64_t> named;
    uint64_t others = 0;
  };

  static uint64_t either(uint64_t a, uint64_t b) { return a == b ? a : mix(a, b); }

  uint64_t first(int64_t entry) const {
    const auto home = homes_.find(entry);
    return home != homes_.end() ? home->second : mix(1, static_cast<uint64_t>(entry));
  }
  uint64_t content(const State& state, int64_t entry) const {
    const auto named = state.named.find(entry);
    if (named != state.named.end()) return named->second;
    return state.others == 0 ? first(entry) : mix(first(entry), state.others);
  }
  uint64_t all() const {
    uint64_t sum = now_.others;
    for (const auto& [entry, held] : now_.named) sum += mix(first(entry), held);
    return sum;
  }

  std::map<int64_t, uint64_t> homes_;
  State now_;
  std::vector<State> saved_;  // One state for each open branch.
  uint64_t found_ = 0;
  int64_t loads_ = 0;
  int64_t stores_ = 0;
};

std::vector<BufferHistory> new_histories(const exe::Executable& e) {
  std::vector<BufferHistory> all(e.remote_buffers.size());
  for (const exe::VariablePlan& v : e.variables) {
    if (v.buffer >= 0) all[static_cast<size_t>(v.buffer)].set_home(v.entry, v.path);
  }
  return all;
}

class RemoteWalk {
 public:
  RemoteWalk(const exe::Executable& e, const std::vector<std::vector<int32_t>>& before_calls)
      : e_(e), order_(e.functions.size()), moves_(e.functions.size()), counts_(e.functions.size()) {
    for (const int32_t f : exe::callees_first(e)) {
      sort(static_cast<size_t>(f), before_calls[static_cast<size_t>(f)]);
      count(static_cast<size_t>(f));
    }
  }

  std::vector<exe::RemoteTrace> trace(const exe::Program& program) {
    int64_t steps = 0;
    for (const exe::Start& start : program.starts)
      steps = std::min(steps + counts_[static_cast<size_t>(start.function)], kMostSteps);
    if (steps >= kMostSteps) return {};  // It would be walked to the limit in vain.
    buffers_ = new_histories(e_);
    left_ = kMostSteps;
    for (const exe::Start& start : program.starts)
      walk(start.function, {}, mix(2, static_cast<uint64_t>(start.device)));
    std::vector<exe::RemoteTrace> traces;
    for (size_t b = 0; b < buffers_.size() && left_ > 0; ++b) {
      if (buffers_[b].used()) traces.push_back(buffers_[b].trace(static_cast<int32_t>(b)));
    }
    return traces;
  }

 private:
  // Writes the remote transfers and calls of a function to order_, in the order of its graph.
  void sort(size_t f, const std::vector<int32_t>& before_calls) {
    std::vector<const exe::Step*> transfers;
    for (const exe::Step& step : e_.functions[f].steps) {
      if (remote_transfer(step) != nullptr) transfers.push_back(&step);
    }
    const auto token = [](const exe::Step* s) { return std::get<exe::Issue>(s->body).token; };
    std::sort(transfers.begin(), transfers.end(),
              [&](const exe::Step* a, const exe::Step* b) { return token(a) < token(b); });
    moves_[f] = !transfers.empty();
    auto next = transfers.begin();
    auto before = before_calls.begin();
    for (const exe::Step& step : e_.functions[f].steps) {
      if (!calls(step)) continue;
      for (; next != transfers.end() && token(*next) < *before; ++next) order_[f].push_back(*next);
      ++before;
      order_[f].push_back(&step);
      exe::for_each_call(step, [&](const exe::Call& c) {
        moves_[f] = moves_[f] || moves_[static_cast<size_t>(c.function)];
      });
    }
    order_[f].insert(order_[f].end(), next, transfers.end());
  }

  // Counts the steps that walk() visits in a function and its callees, up to kMostSteps.
  void count(size_t f) {
    if (!moves_[f]) return;
    int64_t sum = 0;
    for (const exe::Step* step : order_[f]) {
      ++sum;
      const auto* const loop = std::get_if<exe::Loop>(&step->body);
      const int64_t trips = std::min(loop == nullptr ? 1 : loop->trips, kMostSteps);
      exe::for_each_call(*step, [&](const exe::Call& c) {
        sum = std::min(sum + trips * counts_[static_cast<size_t>(c.function)], kMostSteps);
      });
    }
    counts_[f] = sum;
  }

  void walk(int32_t f, const std::vector<int64_t>& params, uint64_t self) {
    if (!moves_[static_cast<size_t>(f)]) return;
    int64_t call = 0;
    for (const exe::Step* step : order_[static_cast<size_t>(f)]) {
      if (--left_ <= 0) return;
      if (const exe::Issue* issue = remote_transfer(*step)) {
        std::optional<int64_t> entry;
        if (!issue->entry_from) entry = issue->entry.evaluate({params, 0, 0});
        BufferHistory& buffer = buffers_[static_cast<size_t>(issue->object)];
        const uint64_t transfer = mix(self, static_cast<uint64_t>(issue->token));
        const bool load = issue->kind == exe::TransferKind::kRemoteLoad;
        load ? buffer.load(entry, transfer) : buffer.store(entry, transfer);
        continue;
      }
      // The number of the call and the iteration identify the activation.
      const auto turn = [&](const exe::Call& c, int64_t it) {
        if (!moves_[static_cast<size_t>(c.function)]) return;
        std::vector<int64_t> args;
        for (const exe::IndexExpr& x : c.index_args) args.push_back(x.evaluate({params, it, 0}));
        walk(c.function, args,
             mix(mix(self, static_cast<uint64_t>(call)), static_cast<uint64_t>(it)));
      };
      if (const auto* c = std::get_if<exe::Call>(&step->body)) turn(*c, 0);
      if (const auto* l = std::get_if<exe::Loop>(&step->body)) {
        const bool moves = moves_[static_cast<size_t>(l->body.function)];
        const bool exits = moves && l->condition >= 0;
        if (exits) {
          for (BufferHistory& buffer : buffers_) buffer.begin_branch();
          for (BufferHistory& buffer : buffers_) buffer.begin_else();
        }
        for (int64_t it = 0; moves && it < l->trips && left_ > 0; ++it) turn(l->body, it);
        if (exits) {
          for (BufferHistory& buffer : buffers_) buffer.end_branch();
        }
      }
      if (const auto* b = std::get_if<exe::Branch>(&step->body)) {
        for (BufferHistory& buffer : buffers_) buffer.begin_branch();
        turn(b->then_call, 0);
        for (BufferHistory& buffer : buffers_) buffer.begin_else();
        turn(b->else_call, 1);
        for (BufferHistory& buffer : buffers_) buffer.end_branch();
      }
      ++call;
    }
  }

  const exe::Executable& e_;
  std::vector<std::vector<const exe::Step*>> order_;  // Its steps, by function.
  std::vector<bool> moves_;                           // By function: it or a callee has transfers.
  std::vector<int64_t> counts_;                       // By function: steps of a walk.
  std::vector<BufferHistory> buffers_;
  int64_t left_ = 0;
};

}  // namespace

void announce_remote(Program& program) {
  exe::Executable& executable = program.executable;
  if (executable.remote_buffers.empty()) return;
  std::vector<std::vector<int32_t>> before_calls(executable.functions.size());
  for (const auto& [id, lowered] : program.lowered) {
    auto& before = before_calls[static_cast<size_t>(lowered.function)];
    for (const Node& node : program.body(id).nodes) {
      if (const auto* call = node.call()) before.push_back(call->transfers_before);
      if (const auto* branch = node.as<Node::Branch>()) before.push_back(branch->transfers_before);
    }
  }
  RemoteWalk walk(executable, before_calls);
  for (exe::Program& p : executable.programs) p.remote = walk.trace(p);
}

}  // namespace sluice::compiler
