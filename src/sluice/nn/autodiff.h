#pragma once
#include <utility>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/nn/variable_factory.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::nn {

/// Returns the gradient graph of `graph` (transforms/autodiff.h). Its arguments have no names;
/// `grad_graph_info()` maps them to tensors of the forward graph:
///
///     GraphWithNamedArgs bwd = nn::autodiff(fwd);
///     CallSiteInfo fwd_info = fwd.bind(variables).call_with_info(x);
///     …
///     CallSiteInfo bwd_info = bwd.call_with_info(dy, bwd.grad_graph_info().inputs_dict(fwd_info));
///     auto grads = bwd.grad_graph_info().fwd_parent_ins_to_grad_parent_outs(fwd_info, bwd_info);
GraphWithNamedArgs autodiff(const GraphWithNamedArgs& graph,
                            const transforms::AutodiffOptions& options = {});

/// Returns a gradient graph that adds the gradients of `tensors` to running means
/// (transforms/autodiff.h) instead of returning them, and the factories of its named arguments.
/// The arguments are `mean_accum_counter` and one `accum.<key>` for each tensor, in the given
/// order. <key> is the tensor's key in the forward graph's arguments, or else its name. All
/// arguments start at zero and are passed by reference. The outputs are the gradients of
/// `options.grads_required`.
std::pair<NamedVariableFactories, GraphWithNamedArgs> autodiff_with_accumulation(
    const GraphWithNamedArgs& graph, const Tensors& tensors,
    const transforms::AccumulationOptions& options = {});

/// Returns a gradient graph that runs the forward graph again instead of reading kept activations
/// (transforms/recompute.h). Named arguments keep their names. Error{kUsage} if `gradient` is not a
/// gradient graph.
GraphWithNamedArgs recompute_graph(const GraphWithNamedArgs& gradient);

}  // namespace sluice::nn
