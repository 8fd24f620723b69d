#include "sluice/train/order/dependences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids_format.h"

namespace sluice::train {
namespace {

// Whether a task of these items uses the iteration of loop `depth`.
bool uses(const std::vector<OrderItem>& items, size_t depth) {
  bool found = false;
  for_each_written_task(items, [&](const Task& t, size_t) {
    found = found || t.micro_batch.factor(depth) != 0 || (t.block && t.block->factor(depth) != 0);
  });
  return found;
}

// A task in one iteration of each loop around it. `time` alternates positions in a body and
// iterations; its lexicographic order is the order of time.
struct TaskRun {
  std::vector<int64_t> time;
  const Task* task = nullptr;
  std::optional<BlockId> block = {};
  int64_t micro_batch = 0;

  Task at() const {
    Task t = *task;
    t.micro_batch = {micro_batch};
    if (t.block) t.block = Affine{*block};
    return t;
  }
};

std::string text(const TaskRun& run) { return "'" + to_string(run.at()) + "'"; }

class Check {
 public:
  Check(const Order& order, const StepDependences& step)
      : step_(step),
        items_(update_loop(order).body),
        updates_of_run_(update_loop(order).trips),
        depth_(&items_ == &order.items ? 0 : 1) {}

  void check() {
    require(updates_of_run_ == step_.counts.updates, "order: must have {} updates, got {}",
            step_.counts.updates, updates_of_run_);
    check_written();
    runs_at(std::nullopt, updates_);
    std::optional<std::vector<TaskRun>> before;
    int64_t last = -1;
    for (const int64_t m : samples()) {
      std::vector<TaskRun> runs;
      runs_at(m, runs);
      std::sort(runs.begin(), runs.end(),
                [](const TaskRun& a, const TaskRun& b) { return a.time < b.time; });
      check_micro_batch(runs, m);
      if (before && last + 1 == m) check_ascent(*before, runs);
      before = std::move(runs);
      last = m;
    }
    if (step_.counts.has_update) check_updates();
  }

 private:
  using ByBlock = Ids<BlockId, const TaskRun*>;

  // The facts that hold for each task apart from the others.
  void check_written() const {
    std::map<TaskKind, int64_t> counts;
    for_each_loop(items_, depth_, 1, [&](const Task& t, int64_t trips, size_t depth) {
      require(step_.stages.contains(t.stage), "order: '{}' must name one of {} stages",
              to_string(t), step_.stages.size());
      require(step_.counts.has_update || t.kind == TaskKind::kForward || t.kind == TaskKind::kSeeds,
              "order: '{}' must not be in an order without an update", to_string(t));
      require(t.kind != TaskKind::kBoth || t.block, "order: '{}' must name a block", to_string(t));
      for (size_t d = 0; d < depth; ++d) {
        require(t.micro_batch.factor(d) >= 0,
                "order: '{}' must run its micro-batches in ascending order", to_string(t));
      }
      if (t.has_micro_batch())
        counts[t.kind] += trips * (t.block || t.kind == TaskKind::kSeeds
                                       ? 1
                                       : static_cast<int64_t>(blocks_of(t, std::nullopt).size()));
    });
    const int64_t n = step_.counts.micro_batches;
    const auto blocks = static_cast<int64_t>(step_.blocks.size());
    const int64_t forward = counts[TaskKind::kForward] + counts[TaskKind::kBoth];
    require(forward == blocks * n,
            "order: must run {} blocks forward for {} micro-batches, {} tasks, got {}", blocks, n,
            blocks * n, forward);
    require(counts[TaskKind::kSeeds] == (step_.has_seeds ? n : 0),
            "order: must have {} seeds tasks, got {}", step_.has_seeds ? n : 0,
            counts[TaskKind::kSeeds]);
  }

  template <typename Visit>
  static void for_each_loop(const std::vector<OrderItem>& items, size_t depth, int64_t trips,
                            const Visit& visit) {
    for (const OrderItem& item : items) {
      if (const Task* t = item.task()) visit(*t, trips, depth);
      if (const OrderLoop* l = item.loop())
        for_each_loop(l->body, depth + 1, trips * l->trips, visit);
    }
  }

  // The blocks of a task; `block` is the block of one run.
  std::vector<BlockId> blocks_of(const Task& task, std::optional<BlockId> block) const {
    if (!task.block) return step_.stages[task.stage];
    return {block.value_or(BlockId(0))};
  }
  const std::string& name(BlockId b) const { return step_.blocks[b].name; }

  // The micro-batches that are looked at: those before, at the begin of, and after the loops.
  std::vector<int64_t> samples() const {
    const int64_t n = step_.counts.micro_batches;
    int64_t head = 3, tail = 3;
    for_each_written_task(items_, [&](const Task& t, size_t) {
      if (!t.has_micro_batch()) return;
      const int64_t c = t.micro_batch.constant;
      if (c <= n / 2) head = std::max(head, c + 3);
      if (c > n / 2) tail = std::max(tail, n - c + 2);
      for (const int64_t f : t.micro_batch.factors) {
        head = std::max(head, 2 * f + 2);
        tail = std::max(tail, 2 * f + 2);
      }
    });
    std::set<int64_t> all;
    for (int64_t m = 0; m < std::min(n, head); ++m) all.insert(m);
    for (int64_t m = std::max<int64_t>(0, n - tail); m < n; ++m) all.insert(m);
    return {all.begin(), all.end()};
  }

  // Finds the runs of a micro-batch, or the runs of tasks without a micro-batch.
  void runs_at(std::optional<int64_t> m, std::vector<TaskRun>& runs) const {
    std::vector<int64_t> time, iterations(depth_), trips(depth_, 1);
    std::vector<bool> used(depth_, true);
    find_runs(items_, m, time, iterations, trips, used, runs);
  }
  void find_runs(const std::vector<OrderItem>& items, std::optional<int64_t> m,
                 std::vector<int64_t>& time, std::vector<int64_t>& iterations,
                 std::vector<int64_t>& trips, std::vector<bool>& used,
                 std::vector<TaskRun>& runs) const {
    for (size_t p = 0; p < items.size(); ++p) {
      time.push_back(static_cast<int64_t>(p));
      if (const OrderLoop* loop = items[p].loop()) {
        trips.push_back(loop->trips);
        find_runs(loop->body, m, time, iterations, trips, used, runs);
        trips.pop_back();
      } else if (const Task& task = *items[p].task(); task.has_micro_batch() == m.has_value()) {
        std::vector<int64_t> at(trips.size());
        solve(task, m.value_or(0), trips, 0, at, time, runs);
      }
      time.pop_back();
    }
  }

  // Sets the iterations of the loops from depth `d` on in which a task runs micro-batch `m`.
  // `time` has the positions.
  void solve(const Task& task, int64_t m, const std::vector<int64_t>& trips, size_t d,
             std::vector<int64_t>& at, const std::vector<int64_t>& positions,
             std::vector<TaskRun>& runs) const {
    if (d == trips.size()) {
      if (task.has_micro_batch() && task.micro_batch.at(at) != m) return;
      TaskRun run{.task = &task, .micro_batch = m};
      for (size_t i = 0; i < positions.size(); ++i) {
        run.time.push_back(positions[i]);
        if (depth_ + i < at.size()) run.time.push_back(at[depth_ + i]);
      }
      if (task.block) {
        const int64_t block = task.block->at(at);
        Task named = task;
        named.micro_batch = {m};
        named.block = Affine{block};
        require(block >= 0 && block < step_.blocks.end_id(),
                "order: '{}' must name one of {} blocks", to_string(named), step_.blocks.size());
        run.block = BlockId(block);
      }
      runs.push_back(std::move(run));
      return;
    }
    if (d < depth_) {
      at[d] = 0;
      return solve(task, m, trips, d + 1, at, positions, runs);
    }
    const int64_t f = task.has_micro_batch() ? task.micro_batch.factor(d) : 0;
    const int64_t rows = task.block ? task.block->factor(d) : 0;
    require(f != 0 || rows != 0,
            "order: '{}' must use the iteration of each loop around it; it runs {} times",
            to_string(task), trips[d]);
    int64_t begin = 0, end = trips[d];
    if (f != 0) {
      int64_t rest = m - task.micro_batch.constant, inner = 0;
      for (size_t k = 0; k < d; ++k) rest -= task.micro_batch.factor(k) * at[k];
      for (size_t k = d + 1; k < trips.size(); ++k)
        inner += task.micro_batch.factor(k) * (trips[k] - 1);
      if (rest < 0) return;
      begin = rest > inner ? (rest - inner + f - 1) / f : 0;
      end = std::min(end, rest / f + 1);
    } else {
      require(end <= static_cast<int64_t>(step_.blocks.size()),
              "order: '{}' must be in at most {} rows, got {}", to_string(task),
              step_.blocks.size(), end);
    }
    for (int64_t i = begin; i < end; ++i) {
      at[d] = i;
      solve(task, m, trips, d + 1, at, positions, runs);
    }
  }

  // Each task of a micro-batch follows those that it depends on, and runs once.
  void check_micro_batch(const std::vector<TaskRun>& runs, int64_t m) const {
    ByBlock forward(step_.blocks.size()), backward(step_.blocks.size());
    const TaskRun* seeds = nullptr;
    const auto need = [&](const TaskRun& run, BlockId b, const ByBlock& made, BlockId of,
                          std::string_view what) {
      require(made[of] != nullptr,
              "order: {} must follow the {} task of block '{}' for micro-batch "
              "{}, which block '{}' reads",
              text(run), what, name(of), m, name(b));
    };
    const auto once = [&](const TaskRun& run, BlockId b, ByBlock& made) {
      require(made[b] == nullptr,
              "order: block '{}' must run once for a micro-batch, got {} and {}", name(b),
              made[b] == nullptr ? "" : text(*made[b]), text(run));
      made[b] = &run;
    };
    for (const TaskRun& run : runs) {
      if (run.task->kind == TaskKind::kSeeds) {
        seeds = &run;
        continue;
      }
      require(!step_.has_seeds || seeds != nullptr,
              "order: {} must follow the seeds of micro-batch {}", text(run), m);
      std::vector<BlockId> own = blocks_of(*run.task, run.block);
      if (run.task->runs_forward()) {
        for (const BlockId b : own) {
          for (const BlockId r : step_.blocks[b].reads) need(run, b, forward, r, "forward");
          once(run, b, forward);
        }
      }
      if (!run.task->runs_backward()) continue;
      std::reverse(own.begin(), own.end());
      for (const BlockId b : own) {
        if (!step_.blocks[b].has_gradient) {
          require(!run.task->block, "order: {} must not run backward; block '{}' has no gradient",
                  text(run), name(b));
          continue;
        }
        need(run, b, forward, b, "forward");
        for (const BlockId r : step_.blocks[b].reads_gradients)
          need(run, b, backward, r, "backward");
        once(run, b, backward);
      }
    }
    for (const BlockId b : step_.blocks.ids()) {
      require(forward[b] != nullptr, "order: block '{}' must run forward for micro-batch {}",
              name(b), m);
      require(!step_.counts.has_update || !step_.blocks[b].has_gradient || backward[b] != nullptr,
              "order: block '{}' must run backward for micro-batch {}", name(b), m);
    }
  }

  std::map<std::pair<BlockId, bool>, const TaskRun*> by_block(
      const std::vector<TaskRun>& runs) const {
    std::map<std::pair<BlockId, bool>, const TaskRun*> result;
    for (const TaskRun& run : runs) {
      if (run.task->kind == TaskKind::kSeeds) continue;
      for (const BlockId b : blocks_of(*run.task, run.block)) {
        if (run.task->runs_forward()) result[{b, false}] = &run;
        if (run.task->runs_backward()) result[{b, true}] = &run;
      }
    }
    return result;
  }

  // `next` are the runs of the following micro-batch.
  void check_ascent(const std::vector<TaskRun>& runs, const std::vector<TaskRun>& next) const {
    const auto now = by_block(runs), then = by_block(next);
    for (const auto& [key, run] : now) {
      const auto& [b, backward] = key;
      if (!backward && !step_.blocks[b].ascends) continue;
      const TaskRun& later = *then.at(key);
      require(run->time < later.time,
              "order: {} must follow {}; the micro-batches of block '{}' ascend, because they {}",
              text(later), text(*run), name(b),
              backward ? "share accumulators" : "share a stream, a running variable or a result");
    }
  }

  // Each weight is updated once, after all that reads it.
  void check_updates() const {
    std::vector<TaskRun> last;
    runs_at(step_.counts.micro_batches - 1, last);
    std::map<size_t, const TaskRun*> updated;  // Keyed by weight.
    for (const TaskRun& run : updates_) {
      if (run.task->kind == TaskKind::kNorm) {
        for (const TaskRun& reader : last)
          require(reader.time < run.time, "order: 'norm' must follow {}", text(reader));
        continue;
      }
      for (const size_t w : weights_of(run)) {
        require(updated.emplace(w, &run).second || !run.block,
                "order: {} must not update a weight that another update has updated", text(run));
      }
      const std::set<size_t> written = weights_of(run);
      for (const TaskRun& reader : last) {
        if (reader.task->kind == TaskKind::kSeeds) continue;
        require(!reader.task->runs_forward() || reader.time < run.time,
                "order: {} must follow the last forward task, {}", text(run), text(reader));
        for (const BlockId b : blocks_of(*reader.task, reader.block)) {
          for (const size_t w : step_.blocks[b].weights) {
            require(!written.contains(w) || reader.time < run.time || !owns(run, w),
                    "order: {} must follow {}; block '{}' reads a weight that it updates",
                    text(run), text(reader), name(b));
          }
        }
      }
    }
    for (const BlockId b : step_.blocks.ids()) {
      for (const size_t w : step_.blocks[b].weights)
        require(!step_.blocks[b].has_gradient || updated.contains(w),
                "order: a weight of block '{}' must be updated", name(b));
    }
  }

  // The first block with a gradient that reads a weight updates it.
  bool owns(const TaskRun& update, size_t weight) const {
    if (!update.block) return true;
    for (const BlockId other : IdRange(BlockId(0), *update.block)) {
      const BlockDependences& o = step_.blocks[other];
      if (o.has_gradient &&
          std::find(o.weights.begin(), o.weights.end(), weight) != o.weights.end())
        return false;
    }
    return true;
  }
  std::set<size_t> weights_of(const TaskRun& update) const {
    std::set<size_t> result;
    for (const BlockId b : step_.blocks.ids()) {
      if (update.block && *update.block != b) continue;
      for (const size_t w : step_.blocks[b].weights) {
        if (owns(update, w)) result.insert(w);
      }
    }
    return result;
  }

  const StepDependences& step_;
  const std::vector<OrderItem>& items_;
  int64_t updates_of_run_;
  size_t depth_;  ///< Loops around the items: that over updates.
  std::vector<TaskRun> updates_;
};

// Micro-batches in flight of a stage's blocks, or of the stage if its tasks have all blocks.
struct Flight {
  using Key = std::pair<StageId, int64_t>;
  std::map<Key, int64_t> now;
  std::map<Key, int64_t> max;
};

void fly(const std::vector<OrderItem>& items, bool trains, Flight& flight) {
  for (const OrderItem& item : items) {
    if (const OrderLoop* loop = item.loop()) {
      const std::map<Flight::Key, int64_t> start = flight.now;
      fly(loop->body, trains, flight);
      if (loop->trips == 1) continue;
      // Each iteration changes the numbers as the first one does. The last one has the maximum.
      for (auto& [key, now] : flight.now) {
        const auto before = start.find(key);
        now += (now - (before == start.end() ? 0 : before->second)) * (loop->trips - 2);
      }
      fly(loop->body, trains, flight);
      continue;
    }
    const Task& task = *item.task();
    if (!task.has_micro_batch() || task.kind == TaskKind::kSeeds) continue;
    const Flight::Key key(task.stage, task.block ? task.block->constant : -1);
    int64_t& now = flight.now[key];
    if (task.runs_forward()) flight.max[key] = std::max(flight.max[key], ++now);
    if (trains ? task.runs_backward() : task.runs_forward()) --now;
  }
}

int64_t floor_of(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Tasks of the items and of the loops in them, each with a key that orders a micro-batch's tasks by
// time: alternately a position in a body, and the iteration of a loop in which the task runs the
// micro-batch, relative to other tasks.
struct Written {
  std::vector<int64_t> time;
  MicroBatchTask task;
};

// Adds a task at the end of `at.time`, which has a position for each loop, and then others.
void add(const Task& task, size_t depth, const Written& at, std::vector<Written>& all) {
  Written written{.task = {task, at.task.loops, depth}};
  int64_t rest = task.micro_batch.constant;
  for (size_t d = 0; d < at.task.loops.size(); ++d) {
    const int64_t f = task.micro_batch.factor(depth + d);
    written.time.push_back(at.time[d]);
    written.time.push_back(f == 0 ? 0 : -floor_of(rest, f));
    if (f != 0) rest -= floor_of(rest, f) * f;
  }
  const auto inside = at.time.begin() + static_cast<std::ptrdiff_t>(at.task.loops.size());
  written.time.insert(written.time.end(), inside, at.time.end());
  all.push_back(std::move(written));
}

void collect(const std::vector<OrderItem>& items, size_t depth, Written& at,
             std::vector<Written>& all) {
  for (size_t p = 0; p < items.size(); ++p) {
    at.time.push_back(static_cast<int64_t>(p));
    const OrderLoop* const loop = items[p].loop();
    if (loop == nullptr) {
      if (items[p].task()->has_micro_batch()) add(*items[p].task(), depth, at, all);
    } else if (is_row_loop(*loop, depth + at.task.loops.size())) {
      // All rows are in one iteration of the loops around them.
      at.time.push_back(0);
      for_each_row({*loop}, depth + at.task.loops.size(), [&](const Task& row) {
        if (row.has_micro_batch()) add(row, depth, at, all);
        ++at.time.back();
      });
      at.time.pop_back();
    } else {
      at.task.loops.push_back(loop);
      collect(loop->body, depth, at, all);
      at.task.loops.pop_back();
    }
    at.time.pop_back();
  }
}

}  // namespace

void check_order(const Order& order, const StepDependences& step) { Check(order, step).check(); }

Ids<StageId, int64_t> max_in_flight(const Order& order, size_t stages) {
  Flight flight;
  bool trains = false;
  for_each_written_task(order.items,
                        [&](const Task& t, size_t) { trains = trains || t.runs_backward(); });
  fly(update_loop(order).body, trains, flight);
  Ids<StageId, int64_t> result(stages);
  for (const auto& [key, max] : flight.max) {
    int64_t& of_stage = result[key.first];
    of_stage = std::max(of_stage, max);
  }
  return result;
}

std::vector<MicroBatchTask> tasks_of_micro_batch(const Order& order) {
  const UpdateLoop updates = update_loop(order);
  std::vector<Written> written;
  Written at;
  collect(updates.body, &updates.body == &order.items ? 0 : 1, at, written);
  using Key = std::tuple<TaskKind, StageId, std::vector<int64_t>>;
  std::map<Key, const Written*> chosen;
  for (const Written& w : written) {
    const Task& t = w.task.task;
    std::vector<int64_t> block;
    if (t.block) {
      block = t.block->factors;
      block.push_back(t.block->constant);
    }
    const Written*& best = chosen.try_emplace({t.kind, t.stage, block}, &w).first->second;
    if (w.task.loops.size() > best->task.loops.size()) best = &w;
  }
  std::map<std::vector<int64_t>, const MicroBatchTask*> by_time;
  for (const auto& [key, w] : chosen) by_time.emplace(w->time, &w->task);
  std::vector<MicroBatchTask> tasks;
  for (const auto& [time, task] : by_time) tasks.push_back(*task);
  return tasks;
}

TaskDistance distance(const MicroBatchTask& maker, const MicroBatchTask& reader,
                      int64_t micro_batches) {
  const Affine& made = maker.task.micro_batch;
  const Affine& read = reader.task.micro_batch;
  size_t common = 0;
  while (common < maker.loops.size() && common < reader.loops.size() &&
         maker.loops[common] == reader.loops[common])
    ++common;
  // The factor of the innermost loop around both; 0 without one.
  const int64_t factor = common == 0 ? 0 : maker.factor(common - 1);
  const int64_t ahead = made.constant - read.constant;
  if (common == maker.loops.size() && common == reader.loops.size()) {
    if (common == 0) return {.iterations = 0};
    require(
        made.factors == read.factors && factor > 0 && ahead % factor == 0 && ahead >= 0,
        "order: '{}' must run a micro-batch in the same or in a later iteration of its loop than "
        "'{}', whose values it reads",
        to_string(reader.task), to_string(maker.task));
    return {.iterations = ahead / factor};
  }
  if (factor == 0) return {.iterations = {}, .capacity = micro_batches};
  return {.iterations = {}, .capacity = factor * (floor_of(ahead + factor - 1, factor) + 1)};
}

UpdateLoop update_loop(const Order& order) {
  const OrderLoop* const loop = order.items.size() == 1 ? order.items[0].loop() : nullptr;
  if (loop == nullptr || uses(loop->body, 0)) return {1, order.items};
  return {loop->trips, loop->body};
}

bool is_row_loop(const OrderLoop& loop, size_t depth) {
  const Task* const task = loop.body.size() == 1 ? loop.body[0].task() : nullptr;
  return task != nullptr && task->block && task->block->factor(depth) != 0;
}

}  // namespace sluice::train
