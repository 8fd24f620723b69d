#include "sluice/transforms/autodiff.h"

#include <cctype>

#include "sluice/base/provenance.h"
#include "sluice/ir/graph_editor.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/differentiate.h"

namespace sluice::transforms {
namespace {

std::string sanitise(const std::string& name) {
  std::string result = name;
  for (char& c : result) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  if (!result.empty() && std::isdigit(static_cast<unsigned char>(result[0])) != 0)
    result = "_" + result;
  return result;
}

void check(const Graph& graph, size_t tensors, const AccumulationOptions& options) {
  require(options.dtypes.empty() || options.dtypes.size() == tensors,
          "autodiff_with_accumulation of graph {}: dtypes must be empty or one per tensor, got {} "
          "for {} tensors",
          graph.name(), options.dtypes.size(), tensors);
  require(options.steps >= 1,
          "autodiff_with_accumulation of graph {}: steps must be at least 1, got {}", graph.name(),
          options.steps);
  for (const DType dtype : options.dtypes) {
    require(is_float(dtype),
            "autodiff_with_accumulation of graph {}: the dtype of an accumulator must be floating "
            "point, got {}",
            graph.name(), name_of(dtype));
  }
}

// Adds a gradient to its accumulator. `counter` is empty without a running mean.
void accumulate(const Tensor& accumulator, const Tensor& gradient, const Tensor& counter,
                const AccumulationOptions& options) {
  // An update reads its operands as float32, so only a narrower dtype needs a cast.
  const bool narrows = accumulator.dtype() != f32 && accumulator.dtype() != gradient.dtype();
  const Tensor added = narrows ? ops::cast(gradient, accumulator.dtype()) : gradient;
  if (counter.valid()) {
    ops::accumulate_mean_(accumulator, added, counter);
  } else if (options.accumulation == Accumulation::kMean) {
    ops::accumulate_(accumulator, added, 1.0 / static_cast<double>(options.steps));
  } else {
    ops::accumulate_(accumulator, added);
  }
}

}  // namespace

std::string_view to_string(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::kSum:
      return "sum";
    case Accumulation::kMean:
      return "mean";
    case Accumulation::kRunningMean:
      break;
  }
  return "running_mean";
}

AccumulationResult autodiff_with_accumulation(Graph& graph, const Tensors& tensors,
                                              const std::vector<std::string>& names,
                                              const AccumulationOptions& options) {
  require(names.empty() || names.size() == tensors.size(),
          "autodiff_with_accumulation of graph {}: names must be empty or one per tensor, got {} "
          "for {} tensors",
          graph.name(), names.size(), tensors.size());
  check(graph, tensors.size(), options);
  AutodiffOptions core{.grads_provided = options.grads_provided,
                       .grads_required = options.grads_required,
                       .called_graphs = options.called_graphs,
                       .unreachable = options.unreachable,
                       .iterations = options.iterations};
  core.grads_required->insert(core.grads_required->end(), tensors.begin(), tensors.end());
  const size_t kept = options.grads_required.size();
  const GradGraphInfo info = autodiff_sharing(graph, core, kept);

  Graph& gradient = info.graph();
  const Tensors all = gradient.outputs();
  std::vector<AddedInput> added;
  const TensorSpec counter_spec{{}, f32, {}};
  const bool mean = options.accumulation == Accumulation::kRunningMean;
  Tensor counter;
  if (mean) {
    counter = gradient.input(counter_spec, "mean_accum_counter", Pass::kByReference);
    added.push_back({counter.name(), counter_spec, counter, std::nullopt});
  }
  std::vector<GraphEditor::Placement> placements;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = names.empty() ? sanitise(tensors[i].name()) : names[i];
    TensorSpec spec = tensors[i].spec();
    if (!options.dtypes.empty()) spec.dtype = options.dtypes[i];
    const Tensor accumulator = gradient.input(spec, "accum." + name, Pass::kByReference);
    const auto group = options.replica_groupings.find(name);
    added.push_back({"accum." + name, spec, accumulator, std::nullopt});
    if (group != options.replica_groupings.end()) added.back().group = group->second;

    const OpIndex first = gradient.ops().end_id();
    const OpId producer = gradient.info(all[kept + i]).producer;
    {
      Graph::ProvenanceFields fields{.role = OpRole::kAccumulation, .variable = name};
      if (producer.valid()) fields.block = gradient.op(producer).provenance->block;
      const Graph::ProvenanceScope scope(gradient, fields);
      accumulate(accumulator, all[kept + i], counter, options);
    }
    if (!producer.valid()) continue;
    for (const OpIndex k : IdRange(first, gradient.ops().end_id())) {
      placements.push_back({gradient.ops()[k].id, producer, GraphEditor::Placement::Side::kAfter});
    }
  }
  if (mean && options.counter == Counter::kAdvance) {
    const Graph::ProvenanceScope scope(gradient, {.role = OpRole::kAccumulation});
    ops::add_(counter, ops::scalar_like(counter, 1));
  }
  gradient.set_outputs(Tensors(all.begin(), all.begin() + static_cast<int64_t>(kept)));
  GraphEditor(gradient).place(placements);
  verify_transformed(gradient);

  std::vector<ExpectedConnection> outputs = info.expected_outputs();
  outputs.resize(kept, outputs.empty() ? ExpectedConnection{} : outputs[0]);
  return {GradGraphInfo(graph, gradient, info.expected_inputs(), std::move(outputs)),
          std::move(added)};
}

}  // namespace sluice::transforms
