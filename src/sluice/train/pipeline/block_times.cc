#include "sluice/train/pipeline/block_times.h"

#include <algorithm>
#include <limits>

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

std::vector<StageTimes> block_times(const Cut& cut,
                                    const std::vector<std::optional<BlockGradient>>& gradients,
                                    const DeviceRates& rates) {
  std::vector<StageTimes> times;
  for (size_t b = 0; b < cut.blocks.size(); ++b) {
    times.push_back(
        {.forward = seconds_of(cut.blocks[b].graph.graph(), rates),
         .backward = gradients[b] ? seconds_of(gradients[b]->graph.graph(), rates) : 0});
  }
  return times;
}

std::vector<size_t> balanced_cut(const std::vector<double>& seconds, int count) {
  const size_t blocks = seconds.size();
  require(count >= 1 && static_cast<size_t>(count) <= blocks,
          "stages: must be at least 1 and at most the {} blocks of the model, got {}", blocks,
          count);
  const auto stages = static_cast<size_t>(count);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // The slowest of the last n stages, if they begin with block b.
  std::vector<std::vector<double>> slowest(stages + 1, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<size_t>> ends(stages + 1, std::vector<size_t>(blocks + 1, blocks));
  slowest[0][blocks] = 0;
  for (size_t n = 1; n <= stages; ++n) {
    for (size_t b = 0; b + n <= blocks; ++b) {
      double first = 0;
      for (size_t end = b + 1; end <= blocks; ++end) {
        first += seconds[end - 1];
        const double time = std::max(first, slowest[n - 1][end]);
        if (time >= slowest[n][b]) continue;
        slowest[n][b] = time;
        ends[n][b] = end;
      }
    }
  }
  std::vector<size_t> begins{0};
  for (size_t n = stages; n > 1; --n) begins.push_back(ends[n][begins.back()]);
  return begins;
}

}  // namespace sluice::train
