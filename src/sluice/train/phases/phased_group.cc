#include "sluice/train/phases/phased_group.h"

#include <algorithm>

#include "sluice/ir/call.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::train {
namespace {

// The row as the i32 input of the phase's graph.
Tensor index(Graph& graph, const RemoteEntry& row) {
  return row.tensor() != nullptr ? *row.tensor()
                                 : graph.scalar(static_cast<double>(row.constant()), i32, "row");
}

bool is_weight(const GroupVariable& v) { return !v.running; }
bool is_running(const GroupVariable& v) { return v.running; }
bool is_updated(const GroupVariable& v) { return v.trained && !v.tied; }

}  // namespace

PhasedGroup::PhasedGroup(int64_t rows, GroupGraphs graphs, StepVariables& variables)
    : rows_(rows), graphs_(std::move(graphs)), variables_(variables) {
  SLUICE_CHECK(rows_ == 1 || graphs_.results.empty());
}

std::string PhasedGroup::serialise(nn::BatchSerialiseOptions options) {
  options.rows = rows_;
  io_mode_ = options.io_mode;
  const auto& forward = graphs_.forward;
  const auto& backward = graphs_.backward;
  if (forward && backward) {
    auto [fwd, bwd] =
        nn::batch_serialise_fwd_and_grad(*forward, *backward, forward->args(), options);
    forward_phase_ = std::move(fwd);
    backward_phase_ = std::move(bwd);
  } else {
    (forward ? forward_phase_ : backward_phase_) =
        nn::batch_serialise(forward ? *forward : *backward, options);
  }
  return forward_phase_ && !forward_phase_->note.empty() ? forward_phase_->note
         : backward_phase_                               ? backward_phase_->note
                                                         : "";
}

RowLoop PhasedGroup::loop(const BlockRows& rows, RowLoop::Order order) const {
  SLUICE_CHECK(rows.in_line + rows.looped == rows_);
  return {.rows = rows, .order = order, .io_mode = io_mode_};
}

// Adds one part of the chosen variables.
void PhasedGroup::add_rows(RowLoop& loop, VariablePart part, bool stored, Choice choice) const {
  for (const GroupVariable& v : graphs_.variables) {
    if (v.tied || !choice(v)) continue;
    const bool remote = variables_.add_rows(v.key, part, stored, loop.tensors);
    SLUICE_CHECK(remote || loop.rows.looped == 0);
  }
}

std::vector<std::string> PhasedGroup::updated() const {
  std::vector<std::string> keys;
  for (const GroupVariable& v : graphs_.variables) {
    if (is_updated(v)) keys.push_back(v.key);
  }
  return keys;
}

// The weights of a row, and the running variables for a phase that runs forward.
nn::NamedTensors PhasedGroup::whole(Graph& graph, const RemoteEntry& row,
                                    const nn::NamedTensors& loaded,
                                    const nn::NamedTensors& invariants, bool runs_forward) const {
  nn::NamedTensors result;
  for (const GroupVariable& v : graphs_.variables) {
    if (v.running && !runs_forward) continue;
    result.merge(
        v.name, v.tied ? invariants["tied." + v.key] : variables_.whole(graph, v.key, row, loaded));
  }
  for (const std::string& key : graphs_.inputs.keys_flat()) result.merge(key, invariants[key]);
  return result;
}

void PhasedGroup::average_running(const nn::NamedTensors& whole) const {
  for (const GroupVariable& v : graphs_.variables) {
    if (!v.running) continue;
    const Tensor& t = whole[v.name];
    const Graph::ProvenanceScope of(
        t.graph(), {.role = OpRole::kRunningAverage, .block = graphs_.block, .variable = v.key});
    StepVariables::average(t);
  }
}

void PhasedGroup::forward_phases(Graph& main, const BlockRows& rows,
                                 const nn::NamedTensors& weights) const {
  RowLoop loop = this->loop(rows, RowLoop::Order::kAscending);
  add_rows(loop, VariablePart::kValue, false, is_weight);
  add_rows(loop, VariablePart::kValue, true, is_running);
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const nn::NamedTensors& values, const nn::NamedTensors& invariants) {
    const nn::NamedTensors all = whole(g, row, loaded, invariants, true);
    forward_phase_->graph.bind(all).bind(graphs_.results).call(&g, index(g, row));
    average_running(all);
    return values;
  };
  nn::NamedTensors fixed = graphs_.inputs;
  for (const GroupVariable& v : graphs_.variables) {
    if (!v.tied || fixed.has_leaf("tied." + v.key)) continue;
    const Tensor* const here = weights.find_leaf(v.key);
    fixed.merge("tied." + v.key, here != nullptr ? *here : variables_.weight(main, v.key));
  }
  run_rows(main, loop, {}, fixed);
}

// Runs the backward phase of a row. Returns the accumulated gradients by name of the weight.
nn::NamedTensors PhasedGroup::accumulate(Graph& graph, const RemoteEntry& row,
                                         nn::NamedTensors whole) const {
  nn::NamedTensors accumulators;
  graphs_.backward->args().for_each([&](const std::string& name, const Tensor& input) {
    if (whole.has_leaf(name)) return;
    const auto of =
        std::find_if(graphs_.variables.begin(), graphs_.variables.end(),
                     [&, n = name](const GroupVariable& v) { return n == "accum." + v.name; });
    const Graph::ProvenanceScope scope(graph,
                                       {.role = OpRole::kAccumulation,
                                        .block = graphs_.block,
                                        .variable = of == graphs_.variables.end() ? "" : of->key});
    accumulators.merge(name, zeros(graph, input.spec(), input.name()));
  });
  nn::NamedTensors given = whole;
  given.update(accumulators);
  const nn::BoundGraph phase = backward_phase_->graph.bind(given);
  (has_forward() ? phase : phase.bind(graphs_.results)).call(&graph, index(graph, row));
  if (!has_forward()) average_running(whole);
  return accumulators.contains("accum") ? accumulators.tree("accum") : nn::NamedTensors();
}

// A group that runs forward and backward in one phase has one row. It may add to the total weight.
void PhasedGroup::backward_phases(Graph& main, const BlockRows& rows, bool updates,
                                  const nn::NamedTensors& weights, const Tensor& total_weight,
                                  std::map<std::string, TiedWeight>& tied) {
  RowLoop loop = this->loop(rows, RowLoop::Order::kDescending);
  add_rows(loop, VariablePart::kValue, updates, is_weight);
  if (!has_forward()) add_rows(loop, VariablePart::kValue, true, is_running);
  nn::NamedTensors fixed = graphs_.inputs;
  nn::NamedTensors sums;
  for (const GroupVariable& v : graphs_.variables) {
    if (!v.tied || fixed.has_leaf("tied." + v.key)) continue;
    TiedWeight& weight = tied[v.key];
    weight.loaded = variables_.load(v.key);
    weight.whole =
        weight.loaded.valid() ? nn::gather_replica_sharded_tensor(weight.loaded) : weights[v.key];
    fixed.merge("tied." + v.key, weight.whole);
    if (weight.sum.valid()) sums.merge(v.key, weight.sum);
  }
  if (updates) {
    add_rows(loop, VariablePart::kState, true, is_updated);
    for (const std::string& key : updated()) variables_.add_arguments(key, {}, fixed);
  }
  const auto divide = [&] {
    if (total_weight.valid() && !variables_.divisor().valid()) variables_.divide_by(total_weight);
    return variables_.divisor();
  };
  if (has_forward() && total_weight.valid()) fixed.merge("divisor", divide());
  loop.run = [&](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                 const nn::NamedTensors& values, const nn::NamedTensors& invariants) {
    const nn::NamedTensors all = whole(g, row, loaded, invariants, !has_forward());
    const nn::NamedTensors accumulated = accumulate(g, row, all);
    const Graph::ProvenanceScope of(g, {.role = OpRole::kReduction, .block = graphs_.block});
    const Tensor* const divisor = invariants.find_leaf("divisor");
    const Tensor& by = divisor != nullptr ? *divisor : divide();
    nn::NamedTensors next = values;
    nn::NamedTensors gradients;
    for (const GroupVariable& v : graphs_.variables) {
      const Tensor* const gradient = accumulated.find_leaf(v.name);
      if (gradient == nullptr) continue;
      if (v.tied) {
        const Tensor* const sum = next.find_leaf(v.key);
        next.insert(v.key, sum != nullptr ? ops::add(*sum, *gradient) : *gradient,
                    nn::Overwrite::kYes);
      } else {
        gradients.merge(v.key, variables_.reduced(v.key, *gradient, all[v.name], by));
      }
    }
    if (!updates) variables_.keep(g, row, updated(), gradients);
    for (const std::string& key : updated()) {
      if (updates) variables_.update(g, key, row, loaded, gradients[key], invariants);
    }
    return next;
  };
  run_rows(main, loop, sums, fixed).for_each([&](const std::string& key, const Tensor& sum) {
    tied[key].sum = sum;
  });
}

void PhasedGroup::update_phases(Graph& main, const BlockRows& rows, const Tensors& scale) {
  RowLoop loop = this->loop(rows, RowLoop::Order::kDescending);
  add_rows(loop, VariablePart::kValue, true, is_updated);
  add_rows(loop, VariablePart::kState, true, is_updated);
  add_rows(loop, VariablePart::kGradient, false, is_updated);
  nn::NamedTensors fixed;
  for (const std::string& key : updated()) variables_.add_arguments(key, scale, fixed);
  if (fixed.empty()) return;
  loop.run = [this](Graph& g, const RemoteEntry& row, const nn::NamedTensors& loaded,
                    const nn::NamedTensors& values, const nn::NamedTensors& invariants) {
    const Graph::ProvenanceScope of(g, {.block = graphs_.block});
    for (const std::string& key : updated()) {
      variables_.update(g, key, row, loaded, variables_.kept(key, row, loaded), invariants);
    }
    return values;
  };
  run_rows(main, loop, {}, fixed);
}

}  // namespace sluice::train
