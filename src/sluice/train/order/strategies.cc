#include "sluice/train/order/strategies.h"

#include <algorithm>
#include <utility>

#include "sluice/base/error.h"

namespace sluice::train {
namespace {

// Builds the body of an update. `depth` loops are around it.
class Body {
 public:
  explicit Body(size_t depth) : depth_(depth) {}

  /// constant + iteration of the loop that is `loops_inside` loops inside of the body.
  Affine index(int64_t constant, size_t loops_inside, int64_t factor = 1) const {
    Affine a{constant, std::vector<int64_t>(depth_ + loops_inside + 1)};
    a.factors.back() = factor;
    return a;
  }
  void add(OrderItem item) { items_.push_back(std::move(item)); }

  Order finish(const OrderCounts& counts) && {
    if (counts.updates == 1) return {std::move(items_)};
    return {{OrderLoop{counts.updates, std::move(items_)}}};
  }

 private:
  size_t depth_;
  std::vector<OrderItem> items_;
};

void check(const OrderCounts& counts) {
  require(counts.micro_batches >= 1 && counts.updates >= 1,
          "order: must have at least 1 micro-batch and 1 update, got {} and {}",
          counts.micro_batches, counts.updates);
}

}  // namespace

namespace {

// Adds `n` runs of each task of a schedule: a ramp-up, a loop and a ramp-down. `items` returns the
// items of a task, given the number of its run.
template <typename Items>
void add_runs(const PipelineOrder& schedule, int64_t n, Body& body, const Items& items) {
  const int64_t ramp = schedule.ramp();
  const auto run = [&](int64_t iteration) {
    for (const PipelineTask& t : schedule.tasks) {
      const int64_t m = iteration - schedule.iteration(t);
      if (m < 0 || m >= n) continue;
      for (OrderItem& item : items(t, Affine{m}, size_t{0})) body.add(std::move(item));
    }
  };
  int64_t iteration = 0;
  for (; iteration < ramp; ++iteration) run(iteration);
  if (n > 1 && n > ramp) {
    OrderLoop loop{n - ramp};
    for (const PipelineTask& t : schedule.tasks) {
      for (OrderItem& item : items(t, body.index(ramp - schedule.iteration(t), 0), size_t{1}))
        loop.body.push_back(std::move(item));
    }
    body.add(std::move(loop));
    iteration += n - ramp;
  }
  for (; iteration < n + ramp; ++iteration) run(iteration);
}

void add_update(const OrderCounts& counts, Body& body) {
  if (counts.has_update && counts.has_norm) body.add(Task{.kind = TaskKind::kNorm});
  if (counts.has_update) body.add(Task{.kind = TaskKind::kUpdate});
}

}  // namespace

Order staged_order(const PipelineOrder& schedule, const OrderCounts& counts) {
  check(counts);
  Body body(counts.updates > 1 ? 1 : 0);
  add_runs(schedule, counts.micro_batches, body,
           [](const PipelineTask& t, Affine micro_batch, size_t) {
             const TaskKind kind = t.backward ? TaskKind::kBackward : TaskKind::kForward;
             return std::vector<OrderItem>{
                 Task{.kind = kind, .stage = t.stage, .micro_batch = std::move(micro_batch)}};
           });
  add_update(counts, body);
  return std::move(body).finish(counts);
}

Order grouped_order(const PipelineOrder& schedule, int64_t group, const StepDependences& step) {
  const OrderCounts& counts = step.counts;
  check(counts);
  require(group >= 1 && counts.micro_batches % group == 0,
          "order: the group must divide the {} micro-batches of an update, got {}",
          counts.micro_batches, group);
  const size_t depth = counts.updates > 1 ? 1 : 0;
  const bool updates_in_backward = group == counts.micro_batches && !counts.has_norm;
  // The last block of the last stage runs backward at once.
  const BlockId last = step.stages.back().back();
  const bool joint = counts.has_update && step.blocks[last].has_gradient;
  // `number` is the group's number; the block runs are nested in `loops` loops of the body.
  const auto block_runs = [&](const PipelineTask& t, const Affine& number, size_t loops) {
    std::vector<OrderItem> items;
    std::vector<BlockId> blocks = step.stages[t.stage];
    if (t.backward) std::reverse(blocks.begin(), blocks.end());
    for (const BlockId b : blocks) {
      const bool both = joint && b == last;
      if (t.backward ? !step.blocks[b].has_gradient : both) continue;
      Affine m{number.constant * group, number.factors};
      for (int64_t& f : m.factors) f *= group;
      Task task{.kind = !t.backward ? TaskKind::kForward
                        : both      ? TaskKind::kBoth
                                    : TaskKind::kBackward,
                .stage = t.stage,
                .block = Affine{b}};
      if (group > 1) m.factors.resize(depth + loops + 1);
      if (group > 1) m.factors.back() = 1;
      task.micro_batch = std::move(m);
      if (group > 1) {
        items.emplace_back(OrderLoop{group, {task}});
      } else {
        items.emplace_back(task);
      }
      if (t.backward && updates_in_backward)
        items.emplace_back(Task{.kind = TaskKind::kUpdate, .stage = t.stage, .block = task.block});
    }
    return items;
  };
  Body body(depth);
  add_runs(schedule, counts.micro_batches / group, body, block_runs);
  if (!updates_in_backward) add_update(counts, body);
  return std::move(body).finish(counts);
}

Order phased_order(const std::vector<PhasedBlocks>& groups, MicroBatchForm form,
                   PhasedUpdates updates, bool has_seeds, const OrderCounts& counts) {
  check(counts);
  require(!counts.has_norm || updates == PhasedUpdates::kApart,
          "order: a norm of all gradients requires updates apart from backward phases");
  Body body(counts.updates > 1 ? 1 : 0);
  // All micro-batches visit a block, `loops` loops inside of the body.
  const auto run_block = [&](TaskKind kind, StageId stage, const std::optional<Affine>& block,
                             size_t loops) {
    std::vector<OrderItem> items;
    if (form == MicroBatchForm::kLoop) {
      const Task task{
          .kind = kind, .stage = stage, .block = block, .micro_batch = body.index(0, loops)};
      items.emplace_back(OrderLoop{counts.micro_batches, {task}});
      return items;
    }
    for (int64_t m = 0; m < counts.micro_batches; ++m)
      items.emplace_back(Task{.kind = kind, .stage = stage, .block = block, .micro_batch = {m}});
    return items;
  };
  enum class Rows { kAscending, kDescending };
  // Runs the tasks of each row, which `tasks(block, loops)` returns.
  const auto run_rows = [&](const PhasedBlocks& g, Rows rows, int64_t looped, const auto& tasks) {
    const int64_t step = rows == Rows::kAscending ? 1 : -1;
    const int64_t first = g.first + (step < 0 ? g.rows - 1 : 0);
    const int64_t in_line = looped > 1 ? g.rows - looped : g.rows;
    for (int64_t r = 0; r < in_line; ++r) {
      for (OrderItem& item : tasks(Affine{first + step * r}, size_t{0})) body.add(std::move(item));
    }
    if (looped > 1)
      body.add(OrderLoop{looped, tasks(body.index(first + step * in_line, 0, step), size_t{1})});
  };
  if (has_seeds) {
    for (OrderItem& item : run_block(TaskKind::kSeeds, StageId(0), std::nullopt, 0))
      body.add(std::move(item));
  }
  const auto is_both = [&](const PhasedBlocks& g) {
    return counts.has_update && &g == &groups.back() && g.rows == 1 && g.has_gradient;
  };
  for (const PhasedBlocks& g : groups) {
    if (is_both(g)) continue;
    run_rows(g, Rows::kAscending, g.forward_loop, [&](const Affine& block, size_t loops) {
      return run_block(TaskKind::kForward, g.stage, block, loops);
    });
  }
  if (!counts.has_update) return std::move(body).finish(counts);
  const auto update = [](StageId stage, const Affine& block) {
    return Task{.kind = TaskKind::kUpdate, .stage = stage, .block = block};
  };
  for (auto g = groups.rbegin(); g != groups.rend(); ++g) {
    if (!g->has_gradient) continue;
    const TaskKind kind = is_both(*g) ? TaskKind::kBoth : TaskKind::kBackward;
    run_rows(*g, Rows::kDescending, g->backward_loop, [&](const Affine& block, size_t loops) {
      std::vector<OrderItem> items = run_block(kind, g->stage, block, loops);
      if (updates == PhasedUpdates::kInBackward) items.emplace_back(update(g->stage, block));
      return items;
    });
  }
  if (counts.has_norm) body.add(Task{.kind = TaskKind::kNorm});
  for (auto g = groups.rbegin(); g != groups.rend() && updates == PhasedUpdates::kApart; ++g) {
    if (!g->has_gradient) continue;
    run_rows(*g, Rows::kDescending, g->update_loop, [&](const Affine& block, size_t) {
      return std::vector<OrderItem>{update(g->stage, block)};
    });
  }
  return std::move(body).finish(counts);
}

Order row_order(const std::vector<PhasedBlocks>& groups, const OrderCounts& counts) {
  check(counts);
  Body body(counts.micro_batches > 1 ? 1 : 0);
  const Affine micro_batch{0, {counts.micro_batches > 1 ? 1 : 0}};
  for (const PhasedBlocks& g : groups) {
    Task task{.stage = g.stage, .block = body.index(g.first, 0), .micro_batch = micro_batch};
    if (g.forward_loop > 1) {
      body.add(OrderLoop{g.rows, {task}});
      continue;
    }
    for (int64_t r = 0; r < g.rows; ++r) {
      task.block = Affine{g.first + r};
      body.add(task);
    }
  }
  return std::move(body).finish({.updates = counts.micro_batches});
}

}  // namespace sluice::train
