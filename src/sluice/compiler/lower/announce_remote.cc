#include "sluice/compiler/lower/announce_remote.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "sluice/base/hash.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/remote_trace.h"
#include "sluice/exe/visit_step.h"

namespace sluice::compiler {
namespace {

constexpr int64_t kMaxSteps = 50'000'000;

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

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // Multiplier of the hash of a long loop.

// The contents of one remote buffer while transfers are simulated in the order of the graphs.
class BufferHistory {
 public:
  void set_variable(int64_t entry, const std::string& path) { variables_[entry] = hash64(path); }

  void load(std::optional<int64_t> entry, uint64_t transfer) {
    ++loads_;
    sum_ += mix(transfer, entry ? seen(content(now_, *entry)) : mix(3, all()));
  }

  void store(std::optional<int64_t> entry, uint64_t transfer) {
    ++stores_;
    if (entry) {
      now_.named[*entry] = from_now(transfer);
      return;
    }
    for (auto& named : now_.named) named.second = from_now(mix(seen(named.second), transfer));
    now_.others = mix(now_.others, transfer);
  }

  // Order of calls for a branch: begin_branch, steps of the then-arm, begin_else, steps of the
  // else-arm, end_branch.
  void begin_branch() { saved_.push_back(now_); }
  void begin_else() { std::swap(now_, saved_.back()); }
  void end_branch() {
    const State after_then = std::move(saved_.back());
    saved_.pop_back();
    const auto either = [&](const Stored& a, const Stored& b) {
      return a == b ? a : from_now(mix(seen(a), seen(b)));
    };
    State joined;
    for (const State* arm : {&after_then, &std::as_const(now_)}) {
      for (const auto& named : arm->named) {
        const int64_t entry = named.first;
        joined.named[entry] = either(content(after_then, entry), content(now_, entry));
      }
    }
    joined.others =
        after_then.others == now_.others ? now_.others : mix(after_then.others, now_.others);
    now_ = std::move(joined);
  }

  // Order of calls for a long loop: begin_loop, the steps of each iteration and next_iteration
  // after it, end_loop.
  void begin_loop() {
    loops_.push_back({0, sum_, 0});
    sum_ = 0;
  }
  void next_iteration() {
    Loop& loop = loops_.back();
    loop.ended = loop.ended * kStep + std::exchange(sum_, 0);
    ++loop.iteration;
  }
  void end_loop() {
    std::map<int64_t, uint64_t> left;
    for (const auto& [entry, stored] : now_.named) {
      if (stored.depth == loops_.size()) left[entry] = seen(stored);
    }
    const Loop loop = loops_.back();
    loops_.pop_back();
    sum_ = loop.around + loop.ended;
    for (const auto& [entry, name] : left) now_.named[entry] = from_now(name);
  }

  // The state between two iterations of the innermost long loop, relative to the iteration, and
  // the progress until then.
  struct Mark {
    std::vector<std::array<uint64_t, 3>> contents;
    uint64_t others = 0;
    uint64_t ended = 0;
    int64_t loads = 0;
    int64_t stores = 0;
    bool same_state(const Mark& o) const { return contents == o.contents && others == o.others; }
  };
  Mark mark() const {
    Mark mark{{}, now_.others, loops_.back().ended, loads_, stores_};
    for (const auto& [entry, stored] : now_.named)
      mark.contents.push_back({static_cast<uint64_t>(entry), stored.name, seen(stored)});
    return mark;
  }
  // Runs `times` more periods of so many iterations, all like the one since `before`.
  void repeat(const Mark& before, int64_t iterations, int64_t times) {
    Loop& loop = loops_.back();
    uint64_t factor = 1;
    for (int64_t i = 0; i < iterations; ++i) factor *= kStep;
    // ended = factor * ended + added, as often according to `times`, by halving it.
    uint64_t added = loop.ended - factor * before.ended;
    for (int64_t n = times; n > 0; n /= 2) {
      if (n % 2 != 0) loop.ended = factor * loop.ended + added;
      added += factor * added;
      factor *= factor;
    }
    loads_ += times * (loads_ - before.loads);
    stores_ += times * (stores_ - before.stores);
    loop.iteration += times * iterations;
    for (auto& [entry, stored] : now_.named) {
      if (stored.depth == loops_.size()) stored.iteration += times * iterations;
    }
  }

  bool used() const { return loads_ + stores_ > 0; }
  exe::RemoteTrace trace(exe::BufferId buffer) const {
    return {buffer, loads_, stores_, static_cast<int64_t>((sum_ + all()) / 2)};
  }

 private:
  // A store, and the iteration of the innermost of `depth` long loops in which it was made.
  struct Stored {
    uint64_t name = 0;
    size_t depth = 0;
    int64_t iteration = 0;
    bool operator==(const Stored&) const = default;
  };
  struct State {
    std::map<int64_t, Stored> named;
    uint64_t others = 0;
  };
  struct Loop {
    int64_t iteration = 0;
    uint64_t around = 0;  // Sum before the loop.
    uint64_t ended = 0;   // Sum over its iterations.
  };

  Stored from_now(uint64_t name) const {
    return {name, loops_.size(), loops_.empty() ? 0 : loops_.back().iteration};
  }
  uint64_t seen(const Stored& s) const {
    if (s.depth == 0) return s.name;
    return mix(s.name, static_cast<uint64_t>(loops_[s.depth - 1].iteration - s.iteration));
  }
  uint64_t first(int64_t entry) const {
    const auto variable = variables_.find(entry);
    return variable != variables_.end() ? variable->second : mix(1, static_cast<uint64_t>(entry));
  }
  Stored content(const State& state, int64_t entry) const {
    const auto named = state.named.find(entry);
    if (named != state.named.end()) return named->second;
    return {state.others == 0 ? first(entry) : mix(first(entry), state.others)};
  }
  uint64_t all() const {
    uint64_t sum = now_.others;
    for (const auto& [entry, held] : now_.named) sum += mix(first(entry), seen(held));
    return sum;
  }

  std::map<int64_t, uint64_t> variables_;
  State now_;
  std::vector<State> saved_;  // One state for each open branch.
  std::vector<Loop> loops_;   // The long loops that run.
  uint64_t sum_ = 0;          // Sum of the innermost long loop's iteration, or outside of them.
  int64_t loads_ = 0;
  int64_t stores_ = 0;
};

Ids<exe::BufferId, BufferHistory> new_histories(const exe::Executable& e) {
  Ids<exe::BufferId, BufferHistory> all(e.remote_buffers.size());
  for (const exe::VariablePlan& v : e.variables) {
    if (v.buffer.valid()) all[v.buffer].set_variable(v.entry, v.path);
  }
  return all;
}

using Difference = std::optional<int64_t>;  // Empty: not constant.

// Returns value(i + n) - value(i) of an expression, if it is the same for each i. Takes the
// differences of its parameters, which are 0 beyond the end of `params`, and of its counter.
Difference difference(const exe::IndexExpr& expr, std::span<const Difference> params,
                      Difference counter) {
  using Opcode = exe::IndexExpr::Opcode;
  struct Term {
    Difference by;
    std::optional<int64_t> constant;
  };
  std::vector<Term> terms;
  for (const exe::IndexExpr::Node& node : expr.nodes()) {
    switch (node.kind) {
      case Opcode::kConstant:
        terms.push_back({0, node.value});
        continue;
      case Opcode::kIteration:
        terms.push_back({counter, {}});
        continue;
      case Opcode::kReplica:
        terms.push_back({0, {}});
        continue;
      case Opcode::kParam:
        terms.push_back({node.value < std::ssize(params) ? at(params, node.value) : 0, {}});
        continue;
      default:
        break;
    }
    const Term right = terms.back();
    terms.pop_back();
    Term& left = terms.back();
    const Difference a = left.by, b = right.by;
    const int64_t divisor = right.constant.value_or(0);
    int64_t by = 0;
    bool known = a && b;
    if (known && node.kind == Opcode::kAdd) known = !__builtin_add_overflow(*a, *b, &by);
    if (known && node.kind == Opcode::kSub) known = !__builtin_sub_overflow(*a, *b, &by);
    if (known && !(*a == 0 && *b == 0)) {
      if (node.kind == Opcode::kMul) {
        const auto factor = right.constant ? right.constant : left.constant;
        known = factor && !__builtin_mul_overflow(*factor, right.constant ? *a : *b, &by);
      } else if (node.kind == Opcode::kDiv || node.kind == Opcode::kMod) {
        known = divisor > 0 && *a % divisor == 0;
        if (known && node.kind == Opcode::kDiv) by = *a / divisor;
      }
    }
    left = {known ? Difference(by) : std::nullopt, {}};
  }
  return terms.back().by;
}

class RemoteWalk {
 public:
  RemoteWalk(const exe::Executable& e,
             const Ids<exe::FunctionId, std::vector<int32_t>>& before_calls)
      : e_(e),
        order_(e.functions.size()),
        moves_(e.functions.size()),
        counts_(e.functions.size()),
        transfers_(e.functions.size()) {
    for (const exe::FunctionId f : exe::callees_first(e)) {
      sort(f, before_calls[f]);
      count(f);
    }
  }

  std::vector<exe::RemoteTrace> trace(const exe::Program& program) {
    int64_t steps = 0;
    for (const exe::Start& start : program.starts)
      steps = std::min(steps + counts_[start.function], kMaxSteps);
    if (steps >= kMaxSteps) return {};  // It would be traversed to the limit in vain.
    buffers_ = new_histories(e_);
    left_ = kMaxSteps;
    for (const exe::Start& start : program.starts)
      walk(start.function, {}, mix(2, static_cast<uint64_t>(start.device)));
    std::vector<exe::RemoteTrace> traces;
    for (const exe::BufferId b : buffers_.ids()) {
      if (buffers_[b].used() && left_ > 0) traces.push_back(buffers_[b].trace(b));
    }
    return traces;
  }

 private:
  // Writes the remote transfers and calls of a function to order_, in the order of its graph.
  void sort(exe::FunctionId f, const std::vector<int32_t>& before_calls) {
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
      exe::for_each_call(step,
                         [&](const exe::Call& c) { moves_[f] = moves_[f] || moves_[c.function]; });
    }
    order_[f].insert(order_[f].end(), next, transfers.end());
  }

  // Counts the transfers of a function and its callees, and the minimum number of steps that walk()
  // traverses. Both are at most kMaxSteps.
  void count(exe::FunctionId f) {
    if (!moves_[f]) return;
    const auto add = [](int64_t& sum, int64_t times, int64_t count) {
      sum = std::min(sum + times * count, kMaxSteps);
    };
    for (const exe::Step* step : order_[f]) {
      add(counts_[f], 1, 1);
      if (remote_transfer(*step) != nullptr) add(transfers_[f], 1, 1);
      const auto* const loop = std::get_if<exe::Loop>(&step->body);
      const int64_t trips = std::min(loop == nullptr ? 1 : loop->trips, kMaxSteps);
      const bool repeats = loop != nullptr && is_long(*loop) && period(*loop) > 0;
      exe::for_each_call(*step, [&](const exe::Call& c) {
        add(counts_[f], repeats ? 1 : trips, counts_[c.function]);
        add(transfers_[f], trips, transfers_[c.function]);
      });
    }
  }

  bool is_long(const exe::Loop& l) const {
    return l.condition < 0 &&
           std::min(l.trips, kMaxSteps) * transfers_[l.body.function] > exe::kLongLoop;
  }

  // Returns a number of iterations after which a loop moves the same entries; 0: unknown.
  int64_t period(const exe::Loop& l) const {
    int64_t moduli = 1;
    std::set<exe::FunctionId> seen;
    const bool small = join_moduli(l.body, seen, moduli);
    for (const int64_t n : {int64_t{1}, moduli}) {
      std::set<std::pair<exe::FunctionId, std::vector<Difference>>> proved;
      if ((n == 1 || small) && moves_alike(l.body, {}, n, proved)) return n;
    }
    return 0;
  }

  // Joins all constant moduli of index expressions of a call. Returns false if the result is large.
  bool join_moduli(const exe::Call& c, std::set<exe::FunctionId>& seen, int64_t& moduli) const {
    const auto join = [&](const exe::IndexExpr& x) {
      const auto& nodes = x.nodes();
      for (size_t i = 1; i < nodes.size() && moduli <= kMaxSteps; ++i) {
        const bool constant = nodes[i - 1].kind == exe::IndexExpr::Opcode::kConstant;
        if (nodes[i].kind != exe::IndexExpr::Opcode::kMod || !constant || nodes[i - 1].value <= 0)
          continue;
        if (nodes[i - 1].value > kMaxSteps) return void(moduli = kMaxSteps + 1);
        moduli = std::lcm(moduli, nodes[i - 1].value);
      }
    };
    for (const exe::IndexExpr& x : c.index_args) join(x);
    if (seen.insert(c.function).second) {
      for (const exe::Step* step : order_[c.function]) {
        if (const exe::Issue* issue = remote_transfer(*step)) join(issue->entry);
        exe::for_each_call(*step,
                           [&](const exe::Call& inner) { join_moduli(inner, seen, moduli); });
      }
    }
    return moduli <= kMaxSteps;
  }

  // Whether no entry of a call changes with these differences of its caller's parameters and of
  // the counter of its loop.
  bool moves_alike(const exe::Call& c, std::span<const Difference> params, Difference counter,
                   std::set<std::pair<exe::FunctionId, std::vector<Difference>>>& proved) const {
    if (!moves_[c.function]) return true;
    std::vector<Difference> args;
    for (const exe::IndexExpr& x : c.index_args) args.push_back(difference(x, params, counter));
    if (!proved.insert({c.function, args}).second) return true;
    const auto& steps = order_[c.function];
    return std::all_of(steps.begin(), steps.end(), [&](const exe::Step* step) {
      const exe::Issue* const issue = remote_transfer(*step);
      if (issue != nullptr && !issue->entry_from && difference(issue->entry, args, 0) != 0)
        return false;
      bool alike = true;
      exe::for_each_call(*step, [&](const exe::Call& inner) {
        alike = alike && moves_alike(inner, args, 0, proved);
      });
      return alike;
    });
  }

  // Runs a long loop. Leaves it once the contents of all buffers repeat.
  template <typename F>
  void run_long(const exe::Loop& l, F&& iteration) {
    for (BufferHistory& buffer : buffers_) buffer.begin_loop();
    const int64_t every = period(l);
    Ids<exe::BufferId, BufferHistory::Mark> marks;
    const auto mark = [&] {
      Ids<exe::BufferId, BufferHistory::Mark> all;
      for (const BufferHistory& buffer : buffers_) all.push_back(buffer.mark());
      return all;
    };
    int64_t next = 1;
    for (int64_t it = 0; it < l.trips && left_ > 0;) {
      if (every > 0 && it == next && l.trips - it >= every) {
        const auto now = mark();
        const bool same = std::equal(now.begin(), now.end(), marks.begin(), marks.end(),
                                     [](const auto& a, const auto& b) { return a.same_state(b); });
        if (same) {
          const int64_t times = (l.trips - it) / every;
          for (const exe::BufferId b : buffers_.ids()) buffers_[b].repeat(marks[b], every, times);
          it += times * every;
          continue;
        }
        // Each distance between marks is twice the last, so marks cost no more than iterations.
        next = marks.empty() ? it + every : 2 * it;
        marks = marks.empty() ? now : decltype(marks)();
      }
      iteration(it++);
      for (BufferHistory& buffer : buffers_) buffer.next_iteration();
    }
    for (BufferHistory& buffer : buffers_) buffer.end_loop();
  }

  void walk(exe::FunctionId f, const std::vector<int64_t>& params, uint64_t self) {
    if (!moves_[f]) return;
    int64_t call = 0;
    for (const exe::Step* step : order_[f]) {
      if (--left_ <= 0) return;
      if (const exe::Issue* issue = remote_transfer(*step)) {
        std::optional<int64_t> entry;
        if (!issue->entry_from) entry = issue->entry.evaluate({params, 0, 0});
        BufferHistory& buffer = buffers_[exe::BufferId(issue->object)];
        const uint64_t transfer = mix(self, static_cast<uint64_t>(issue->token));
        const bool load = issue->kind == exe::TransferKind::kRemoteLoad;
        load ? buffer.load(entry, transfer) : buffer.store(entry, transfer);
        continue;
      }
      // The number of the call and the iteration identify the activation.
      const auto run_call = [&](const exe::Call& c, int64_t it, bool named = true) {
        if (!moves_[c.function]) return;
        std::vector<int64_t> args;
        for (const exe::IndexExpr& x : c.index_args) args.push_back(x.evaluate({params, it, 0}));
        walk(c.function, args,
             mix(mix(self, static_cast<uint64_t>(call)), named ? static_cast<uint64_t>(it) : 0));
      };
      if (const auto* c = std::get_if<exe::Call>(&step->body)) run_call(*c, 0);
      if (const auto* l = std::get_if<exe::Loop>(&step->body)) {
        const bool moves = moves_[l->body.function];
        const bool exits = moves && l->condition >= 0;
        if (exits) {
          for (BufferHistory& buffer : buffers_) buffer.begin_branch();
          for (BufferHistory& buffer : buffers_) buffer.begin_else();
        }
        if (is_long(*l)) {
          run_long(*l, [&](int64_t it) { run_call(l->body, it, false); });
        } else {
          for (int64_t it = 0; moves && it < l->trips && left_ > 0; ++it) run_call(l->body, it);
        }
        if (exits) {
          for (BufferHistory& buffer : buffers_) buffer.end_branch();
        }
      }
      if (const auto* b = std::get_if<exe::Branch>(&step->body)) {
        for (BufferHistory& buffer : buffers_) buffer.begin_branch();
        run_call(b->then_call, 0);
        for (BufferHistory& buffer : buffers_) buffer.begin_else();
        run_call(b->else_call, 1);
        for (BufferHistory& buffer : buffers_) buffer.end_branch();
      }
      ++call;
    }
  }

  const exe::Executable& e_;
  // For each function: its remote transfers and calls in the order of the graph.
  Ids<exe::FunctionId, std::vector<const exe::Step*>> order_;
  // For each function: whether it or a callee has transfers.
  Ids<exe::FunctionId, bool> moves_;
  // For each function: minimum number of steps of a traversal.
  Ids<exe::FunctionId, int64_t> counts_;
  // For each function: number of transfers of an activation.
  Ids<exe::FunctionId, int64_t> transfers_;
  Ids<exe::BufferId, BufferHistory> buffers_;
  int64_t left_ = 0;
};

}  // namespace

void announce_remote(Program& program) {
  exe::Executable& executable = program.executable;
  if (executable.remote_buffers.empty()) return;
  Ids<exe::FunctionId, std::vector<int32_t>> before_calls(executable.functions.size());
  for (const auto& [id, lowered] : program.lowered) {
    auto& before = before_calls[lowered.function];
    for (const Node& node : program.body(id).nodes) {
      if (const auto* call = node.call()) before.push_back(call->transfers_before);
      if (const auto* branch = node.as<Node::Branch>()) before.push_back(branch->transfers_before);
    }
  }
  RemoteWalk walk(executable, before_calls);
  for (exe::Program& p : executable.programs) p.remote = walk.trace(p);
}

}  // namespace sluice::compiler
