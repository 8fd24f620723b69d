#include "random_order.h"

#include <algorithm>
#include <set>

namespace sluice::property {
namespace {

using train::Affine;
using train::OrderItem;
using train::OrderLoop;
using train::Task;
using train::TaskKind;

// The forward or backward task of a block.
struct Half {
  train::BlockId block;
  bool backward = false;
  auto operator<=>(const Half&) const = default;
};

class Drawn {
 public:
  Drawn(Dice& dice, const train::StepDependences& step) : dice_(dice), step_(step) {
    for (const train::StageId s : step.stages.ids()) {
      for (const train::BlockId b : step.stages[s]) stages_[b] = s;
    }
    for (const train::BlockId b : step.blocks.ids()) {
      all_.push_back({b, false});
      if (step.counts.has_update && step.blocks[b].has_gradient) all_.push_back({b, true});
    }
  }

  void add_line(std::vector<OrderItem>& items) {
    std::vector<std::pair<Half, int64_t>> left;
    for (const Half& half : all_) {
      for (int64_t m = 0; m < step_.counts.micro_batches; ++m) left.emplace_back(half, m);
    }
    std::set<std::pair<Half, int64_t>> done;
    while (!left.empty()) {
      const size_t at = pick(left, [&](const std::pair<Half, int64_t>& run) {
        const auto& [half, m] = run;
        const bool ascends = half.backward || step_.blocks[half.block].ascends;
        if (ascends && m > 0 && !done.contains({half, m - 1})) return false;
        const std::vector<Half> needed = before(half);
        return std::all_of(needed.begin(), needed.end(), [&, m = m](const Half& h) {
          return done.contains({h, m});
        });
      });
      items.emplace_back(task(left[at].first, {left[at].second}));
      done.insert(left[at]);
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    }
  }

  void add_loop(size_t depth, std::vector<OrderItem>& items) {
    // A task follows the others by zero iterations or more.
    std::map<Half, int64_t> iteration;
    for (const Half& half : sorted()) {
      int64_t& own = iteration[half];
      for (const Half& h : before(half)) own = std::max(own, iteration.at(h));
      if (dice_.one_in(3)) own += 1 + dice_(2);
    }
    int64_t ramp = 0;
    for (const auto& [half, i] : iteration) ramp = std::max(ramp, i);
    std::vector<Half> body, left = all_;
    while (!left.empty()) {
      const size_t at = pick(left, [&](const Half& half) {
        const std::vector<Half> needed = before(half);
        return std::all_of(needed.begin(), needed.end(), [&](const Half& h) {
          return iteration.at(h) < iteration.at(half) ||
                 std::find(body.begin(), body.end(), h) != body.end();
        });
      });
      body.push_back(left[at]);
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    }
    const int64_t n = step_.counts.micro_batches;
    int64_t now = 0;
    const auto run = [&] {
      for (const Half& half : body) {
        const int64_t m = now - iteration.at(half);
        if (m >= 0 && m < n) items.emplace_back(task(half, {m}));
      }
    };
    for (; now < ramp; ++now) run();
    if (n > ramp) {
      OrderLoop loop{n - ramp};
      for (const Half& half : body)
        loop.body.emplace_back(task(half, index(ramp - iteration.at(half), depth)));
      items.emplace_back(std::move(loop));
      now = n;
    }
    for (; now < n + ramp; ++now) run();
  }

  void add_loops(size_t depth, std::vector<OrderItem>& items) {
    OrderLoop loop{step_.counts.micro_batches};
    for (const Half& half : sorted()) {
      if (!loop.body.empty() && dice_.one_in(2)) {
        items.emplace_back(loop);
        loop.body.clear();
      }
      loop.body.emplace_back(task(half, index(0, depth)));
    }
    items.emplace_back(std::move(loop));
  }

  // The updates of all blocks, in any order, or one update.
  void add_updates(std::vector<OrderItem>& items) {
    if (!step_.counts.has_update) return;
    if (step_.counts.has_norm) items.emplace_back(Task{.kind = TaskKind::kNorm});
    if (dice_.one_in(2)) {
      items.emplace_back(Task{.kind = TaskKind::kUpdate});
      return;
    }
    std::vector<Half> left;
    for (const Half& half : all_) {
      if (half.backward) left.push_back(half);
    }
    while (!left.empty()) {
      const size_t at = pick(left, [](const Half&) { return true; });
      Task update = task(left[at], {});
      update.kind = TaskKind::kUpdate;
      items.emplace_back(update);
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    }
  }

 private:
  static Affine index(int64_t constant, size_t depth) {
    Affine a{constant, std::vector<int64_t>(depth + 1)};
    a.factors.back() = 1;
    return a;
  }
  Task task(const Half& half, const Affine& micro_batch) const {
    return {.kind = half.backward ? TaskKind::kBackward : TaskKind::kForward,
            .stage = stages_.at(half.block),
            .block = Affine{half.block},
            .micro_batch = micro_batch};
  }

  // The tasks of a micro-batch that precede another one.
  std::vector<Half> before(const Half& half) const {
    const train::BlockDependences& block = step_.blocks[half.block];
    std::vector<Half> result;
    for (const train::BlockId b : half.backward ? block.reads_gradients : block.reads)
      result.push_back({b, half.backward});
    if (half.backward) result.push_back({half.block, false});
    return result;
  }

  // All tasks of a micro-batch in an order that respects the dependences.
  std::vector<Half> sorted() {
    std::vector<Half> result, left = all_;
    while (!left.empty()) {
      const size_t at = pick(left, [&](const Half& half) {
        const std::vector<Half> needed = before(half);
        return std::all_of(needed.begin(), needed.end(), [&](const Half& h) {
          return std::find(result.begin(), result.end(), h) != result.end();
        });
      });
      result.push_back(left[at]);
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    }
    return result;
  }

  template <typename List, typename Ready>
  size_t pick(const List& left, const Ready& ready) {
    std::vector<size_t> choice;
    for (size_t i = 0; i < left.size(); ++i) {
      if (ready(left[i])) choice.push_back(i);
    }
    return choice.at(static_cast<size_t>(dice_(static_cast<int>(choice.size()))));
  }

  Dice& dice_;
  const train::StepDependences& step_;
  std::map<train::BlockId, train::StageId> stages_;
  std::vector<Half> all_;
};

}  // namespace

train::Order random_order(Dice& dice, OrderForm form, const train::StepDependences& step) {
  Drawn drawn(dice, step);
  const size_t depth = step.counts.updates > 1 ? 1 : 0;
  std::vector<OrderItem> items;
  switch (form) {
    case OrderForm::kLine:
      drawn.add_line(items);
      break;
    case OrderForm::kLoop:
      drawn.add_loop(depth, items);
      break;
    case OrderForm::kLoops:
      drawn.add_loops(depth, items);
      break;
  }
  drawn.add_updates(items);
  if (depth == 0) return {std::move(items)};
  return {{OrderLoop{step.counts.updates, std::move(items)}}};
}

}  // namespace sluice::property
