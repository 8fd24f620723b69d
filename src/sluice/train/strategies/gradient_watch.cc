#include "sluice/train/strategies/gradient_watch.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/nn/rts.h"

namespace sluice::train {

GradientWatch::GradientWatch(const Options& options, Training& training)
    : options_(options), training_(training), is_watched_(nn::keys_like(options.watch.gradients)) {}

Tensor GradientWatch::store(const std::string& key, const Tensor& gradient) {
  if (!is_watched_(key) || !stored_.insert(key).second) return gradient;
  return store_row({key}, gradient);
}

Tensor GradientWatch::store_row(const std::vector<std::string>& rows, const Tensor& gradient) {
  if (std::none_of(rows.begin(), rows.end(), is_watched_)) return gradient;
  Graph& graph = gradient.graph();
  const Tensor& weight = training_.variables[rows[0]];
  const Graph::ProvenanceScope of(graph, {.role = OpRole::kResult, .variable = rows[0]});
  const Tensor whole =
      nn::gather_replica_sharded_tensor(gradient, weight.graph().info(weight).variable->group);
  std::vector<std::string> weights;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row)
    weights.push_back(is_watched_(*row) ? *row : "");
  auto& all = training_.watched_gradients;
  auto known = std::find_if(all.begin(), all.end(),
                            [&](const GradientStream& s) { return s.weights == weights; });
  if (known == all.end()) {
    const D2hStream stream = graph.ir().d2h_stream(whole.spec(), "gradient." + rows[0]);
    training_.entries[stream.name] = checked_mul(options_.device_iterations, std::ssize(rows));
    known = all.insert(all.end(), {stream, std::move(weights)});
  }
  graph.host_store(known->stream, whole);
  return gradient;
}

}  // namespace sluice::train
