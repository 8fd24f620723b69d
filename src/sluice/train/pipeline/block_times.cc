#include "sluice/train/pipeline/block_times.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/ir/builtin.h"
#include "sluice/ops/flops.h"

namespace sluice::train {
namespace {

double seconds_of(const Graph& graph, const DeviceRates& rates);

double seconds_of_calls(const Graph& graph, const Op& op, const DeviceRates& rates) {
  double slowest = 0;  // A conditional runs one of its graphs.
  for (const GraphId callee : op.callees)
    slowest = std::max(slowest, seconds_of(graph.ir().graph(callee), rates));
  const bool repeats = op.def->type == "Loop";
  return slowest *
         (repeats ? static_cast<double>(from_attrs<builtin::LoopOptions>(op.attrs).trips) : 1);
}

double seconds_of(const Graph& graph, const Op& op, const DeviceRates& rates) {
  if (!op.callees.empty()) return seconds_of_calls(graph, op, rates);
  if (op.def->has(kView) || op.def->has(kStructural)) return 0;
  std::vector<TensorSpec> inputs, outputs;
  double bytes = 0;
  for (const Operand& o : op.inputs) {
    inputs.push_back(graph.spec(o.tensor));
    bytes += static_cast<double>(inputs.back().bytes()) * (o.mode == Mode::kUpdate ? 2 : 1);
  }
  for (const TensorId t : op.outputs) {
    outputs.push_back(graph.spec(t));
    bytes += static_cast<double>(outputs.back().bytes());
  }
  const double flops = flops_of(OpView(*op.def, op.attrs, inputs, outputs));
  return std::max(flops / rates.flops, bytes / (2 * rates.copies));
}

double seconds_of(const Graph& graph, const DeviceRates& rates) {
  double seconds = 0;
  for (const Op& op : graph.ops()) seconds += seconds_of(graph, op, rates);
  return seconds;
}

}  // namespace

Ids<BlockId, StageTimes> block_times(const Cut& cut, const BlockGradients& gradients,
                                     const DeviceRates& rates) {
  Ids<BlockId, StageTimes> times;
  for (const BlockId b : cut.blocks.ids()) {
    times.push_back(
        {.forward = seconds_of(cut.blocks[b].graph.graph(), rates),
         .backward = gradients[b] ? seconds_of(gradients[b]->graph.graph(), rates) : 0});
  }
  return times;
}

std::vector<BlockId> balanced_cut(const Ids<BlockId, double>& seconds, int count) {
  const BlockId end = seconds.end_id();
  require(count >= 1 && count <= end,
          "stages: must be at least 1 and at most the {} blocks of the model, got {}",
          seconds.size(), count);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // The best cut of the blocks from one on into a number of stages.
  struct Cut {
    double slowest = kNever;  // Time of the slowest stage.
    BlockId next;             // First block of the second stage.
  };
  // By the first block, for 0, 1, … stages; the last entry is that of no blocks.
  std::vector<Ids<BlockId, Cut>> cuts{Ids<BlockId, Cut>(seconds.size() + 1)};
  cuts[0][end].slowest = 0;
  for (int n = 1; n <= count; ++n) {
    const Ids<BlockId, Cut>& fewer = cuts.back();
    Ids<BlockId, Cut> own(seconds.size() + 1);
    for (const BlockId b : IdRange(BlockId(0), BlockId(end - n + 1))) {
      double first = 0;
      for (const BlockId last : IdRange(b, end)) {
        first += seconds[last];
        const BlockId next(last + 1);
        const double time = std::max(first, fewer[next].slowest);
        if (time < own[b].slowest) own[b] = {time, next};
      }
    }
    cuts.push_back(std::move(own));
  }
  std::vector<BlockId> begins{BlockId(0)};
  for (; cuts.size() > 2; cuts.pop_back()) begins.push_back(cuts.back()[begins.back()].next);
  return begins;
}

}  // namespace sluice::train
