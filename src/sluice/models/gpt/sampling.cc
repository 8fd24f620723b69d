#include "sluice/models/gpt/sampling.h"

#include <limits>

#include "sluice/ir/call.h"
#include "sluice/ops/ops.h"

namespace sluice::models::internal {
namespace {

constexpr double kMinUniform = 1e-9;

// Returns the token with the largest `score` among those that pass the filters.
Tensor largest_of_filtered(const Tensor& z, const Tensor& score, const Tensor& last_rank,
                           const Tensor& mass) {
  constexpr double kExcluded = -std::numeric_limits<double>::infinity();
  const ops::Sorted sorted = ops::sort(z, {.descending = true});
  const Tensor in_top_k = ops::greater_equal(sorted.values, ops::gather(sorted.values, last_rank));
  const Tensor probabilities = ops::softmax(ops::where(in_top_k, sorted.values, kExcluded));
  const Tensor before = ops::cumsum(probabilities, {.exclusive = true});
  const Tensor kept = ops::logical_and(in_top_k, ops::less(before, mass));
  const Tensor scores = ops::where(kept, ops::gather(score, sorted.indices), kExcluded);
  return ops::gather(sorted.indices, ops::argmax(scores));
}

}  // namespace

Tensor sample_token(Graph& graph, const Tensor& logits, const Tensor& position,
                    const SamplingInputs& inputs) {
  const Tensor z = logits / inputs.temperature;
  const Tensor uniform = ops::random_uniform(ops::fold_seed(inputs.seed, position), logits.shape());
  const Tensor gumbel = -ops::log(-ops::log(ops::maximum(uniform, kMinUniform)));
  const Tensor score = z + gumbel * inputs.noise;
  Graph& filtered = graph.ir().create_graph(
      "filtered",
      [](Graph&, Tensor scaled, Tensor scores, Tensor rank, Tensor mass) {
        return largest_of_filtered(scaled, scores, rank, mass);
      },
      z, score, inputs.last_rank, inputs.mass);
  Graph& all = graph.ir().create_graph(
      "all", [](Graph&, Tensor scores) { return ops::argmax(scores); }, score);
  return ops::conditional(graph, ops::not_equal(inputs.filters, 0.0), filtered, all,
                          {z, score, inputs.last_rank, inputs.mass}, {score})[0];
}

}  // namespace sluice::models::internal
