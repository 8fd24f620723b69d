#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sluice/train/cut/ids.h"

namespace sluice::train {

/// A number that is affine in the iterations of the loops around it.
struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> factors = {};  ///< One for each loop, outermost first. Absent ones are 0.

  /// Returns the number in these iterations of the loops, outermost first.
  int64_t at(std::span<const int64_t> iterations) const;
  /// Returns the factor of loop `depth`; the outermost loop is 0.
  int64_t factor(size_t depth) const { return depth < factors.size() ? factors[depth] : 0; }
  bool operator==(const Affine&) const = default;
};

enum class TaskKind : uint8_t {
  kSeeds,     ///< Derives the seeds of all blocks from a micro-batch's seed.
  kForward,   ///< Runs blocks forward.
  kBackward,  ///< Runs the gradients of blocks, and accumulates the weights' gradients.
  kBoth,      ///< Runs a block forward and backward as one graph; the last block alone.
  kNorm,      ///< Computes the norm of all gradients of an update.
  kUpdate,    ///< Updates the weights of blocks.
};

/// Part of a training step that runs as a whole, on one device.
struct Task {
  TaskKind kind = TaskKind::kForward;
  StageId stage{0};
  /// The block, by its position in the cut. Absent: all blocks of the stage, ascending forward and
  /// descending backward. A norm, or an update without a block, covers all weights.
  std::optional<Affine> block = {};
  Affine micro_batch = {};  ///< Number within the update; unused by kNorm and kUpdate.

  bool has_micro_batch() const { return kind != TaskKind::kNorm && kind != TaskKind::kUpdate; }
  bool runs_forward() const { return kind == TaskKind::kForward || kind == TaskKind::kBoth; }
  bool runs_backward() const { return kind == TaskKind::kBackward || kind == TaskKind::kBoth; }
  bool operator==(const Task&) const = default;
};

struct OrderItem;

/// Repeats its body.
struct OrderLoop {
  int64_t trips = 1;
  std::vector<OrderItem> body = {};
  bool operator==(const OrderLoop&) const;
};

struct OrderItem : std::variant<Task, OrderLoop> {
  using variant::variant;
  const Task* task() const { return std::get_if<Task>(this); }
  const OrderLoop* loop() const { return std::get_if<OrderLoop>(this); }
};

/// The order of all tasks of a run, on all devices. A device runs the tasks of its stages.
struct Order {
  std::vector<OrderItem> items = {};
  bool operator==(const Order&) const = default;
};

std::string_view to_string(TaskKind kind);

/// Formats an order. A task is a line, a loop has its body in braces, and the iterations of loops
/// are i, j, k and so on, from the outermost one:
///
///     for i in 6 {
///       forward stage 0, micro-batch i + 1
///       backward stage 0, block 3, micro-batch i
///     }
///     update
std::string to_string(const Order& order);
/// Formats a task inside of loops: "forward stage 0, micro-batch i + 1".
std::string to_string(const Task& task);

/// Parses the text of an order. Error{kUsage} names the line that is wrong.
Order parse_order(std::string_view text);

/// Calls `run(task, depth)` for each task of the order's text, where `depth` is the number of loops
/// around it.
template <typename Run>
void for_each_written_task(const std::vector<OrderItem>& items, const Run& run, size_t depth = 0) {
  for (const OrderItem& item : items) {
    if (const Task* task = item.task()) run(*task, depth);
    if (const OrderLoop* loop = item.loop()) for_each_written_task(loop->body, run, depth + 1);
  }
}

/// Calls `run` for each task of `items`, around which `depth` loops are. In loops over rows, calls
/// it for each row, with the block of that row.
void for_each_row(const std::vector<OrderItem>& items, size_t depth,
                  const std::function<void(const Task&)>& run);

}  // namespace sluice::train
