#pragma once
#include <utility>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"
#include "sluice/transforms/accumulation.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::nn {

/// The gradient graph of `graph` (transforms/autodiff.h). Its arguments have no names; how to call
/// it is in its `grad_graph_info()`:
///
///     GraphWithNamedArgs bwd = nn::autodiff(fwd);
///     CallSiteInfo fwd_info = fwd.bind(variables).call_with_info(x);
///     …
///     CallSiteInfo bwd_info = bwd.call_with_info(dy, bwd.grad_graph_info().inputs_dict(fwd_info));
///     auto grads = bwd.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(fwd_info, bwd_info);
GraphWithNamedArgs autodiff(const GraphWithNamedArgs& graph,
                            const transforms::AutodiffOptions& options = {});

/// The gradient graph that adds the gradients of `tensors` to running means
/// (transforms/accumulation.h) instead of giving them: its named arguments, and the factories for
/// them, are `mean_accum_counter` and one `accum.<key>` for each tensor, in the order given, where
/// <key> is the tensor's key in the forward graph's arguments (else its name). All are zeros at
/// first and taken by reference. Its outputs are the gradients of `options.grads_required`.
std::pair<NamedVariableFactories, GraphWithNamedArgs> autodiff_with_accumulation(
    const GraphWithNamedArgs& graph, const Tensors& tensors,
    const transforms::AccumulationOptions& options = {});

/// The gradient graph that runs the forward graph again instead of reading kept activations
/// (transforms/recompute.h). Named arguments keep their names. Error{kUsage} if `gradient` is no
/// gradient graph.
GraphWithNamedArgs recompute_graph(const GraphWithNamedArgs& gradient);

}  // namespace sluice::nn
