#include <algorithm>

#include "sluice/ops/basic.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/loops/body_ops.h"
#include "sluice/transforms/loops/repeat_last_ops.h"

namespace sluice::ops {
namespace {

// Runs the condition on the carried values. Returns a scalar bool.
Tensor run_condition(const LoopRequest& request, const LoopBody& condition, const Tensors& values) {
  const Graph& graph = request.graph;
  const Tensors results = [&] {
    const DeviceScope restore(request.graph, graph.device());
    return condition(LoopArguments(values, {}, {}, "while_loop: condition"));
  }();
  require(results.size() == 1, "while_loop: the condition must return 1 tensor, got {}",
          results.size());
  const Tensor& t = results[0];
  require(t.valid() && graph.owns(t),
          "while_loop: the condition must return a tensor of graph {}, got {}", graph.name(),
          t.valid() ? "'" + t.name() + "' of graph " + t.graph().name() : "an empty handle");
  require(t.dtype() == boolean && t.shape().empty(),
          "while_loop: the condition must return a scalar bool, got {}", to_string(t.spec()));
  return t;
}

// Overwrites the carried values with the results of an iteration, all at once: a result that is
// another carried value is copied before.
void replace(const Graph& graph, const Tensors& values, Tensors results) {
  const auto storage = [&](const Tensor& t) { return graph.info(t).storage; };
  const auto stays = [&](size_t k) { return storage(values[k]) == storage(results[k]); };
  for (size_t k = 0; k < values.size(); ++k) {
    const bool carried = std::any_of(values.begin(), values.end(), [&](const Tensor& v) {
      return storage(v) == storage(results[k]);
    });
    if (carried && !stays(k)) results[k] = identity(results[k]);
  }
  for (size_t k = 0; k < values.size(); ++k) {
    if (!stays(k)) copy_var_update_(values[k], results[k]);
  }
}

}  // namespace

Tensors while_loop(Graph& graph, const LoopBody& condition, const LoopBody& body,
                   const Tensors& inputs, const std::optional<Infeed>& infeed,
                   int64_t max_iterations, std::source_location where) {
  const LoopRequest request{"while_loop", "max_iterations", graph, max_iterations, inputs, infeed};
  request.check();
  const BodyOps added(graph, request.loop);
  try {
    // The loop updates these in place, so that their place does not depend on the iteration of the
    // exit.
    Tensors values;
    for (const Tensor& t : inputs) values.push_back(identity({t, where}, t.name()));
    const Tensor first = run_condition(request, condition, values);
    const Tensor goes_on = identity({first, where}, "goes_on");
    const OpIndex before = graph.ops().end_id();
    replace(graph, values, request.run(body, values));
    copy_var_update_(goes_on, run_condition(request, condition, values));
    added.check_outputs();
    if (max_iterations == 0) {
      added.remove();
      Tensors copies;
      for (const Tensor& t : inputs) copies.push_back(identity({t, where}, t.name()));
      return copies;
    }
    transforms::repeat_last_ops(graph, before, max_iterations, {}, goes_on, where);
    return values;
  } catch (...) {
    added.remove();
    throw;
  }
}

}  // namespace sluice::ops
