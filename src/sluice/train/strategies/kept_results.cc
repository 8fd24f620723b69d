#include "sluice/train/strategies/kept_results.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/updates.h"
#include "sluice/train/strategies/step_variables.h"

namespace sluice::train {

ResultForm result_form(const Writing& writing, const Output& output) {
  if (writing.form == Writing::Reduction::kSum) return ResultForm::kUpdateSum;
  switch (output.mode) {
    case Output::Mode::kSum:
      return ResultForm::kRunSum;
    case Output::Mode::kFinal:
      return ResultForm::kRunLast;
    case Output::Mode::kAll:
    case Output::Mode::kEvery:
      break;
  }
  return ResultForm::kEach;
}

int64_t entries_of_run(ResultForm form, int64_t accumulate, int64_t device_iterations) {
  if (form == ResultForm::kEach) return checked_mul(accumulate, device_iterations);
  return form == ResultForm::kUpdateSum ? device_iterations : 1;
}

int64_t micro_batches_of_entry(ResultForm form, int64_t accumulate, int64_t device_iterations) {
  if (form == ResultForm::kUpdateSum) return accumulate;
  return form == ResultForm::kRunSum ? checked_mul(accumulate, device_iterations) : 1;
}

TensorSpec spec_of_result(const TensorSpec& value, const Writing& writing, const Output& output) {
  TensorSpec spec = value;
  const ResultForm form = result_form(writing, output);
  if (form == ResultForm::kUpdateSum || form == ResultForm::kRunSum)
    spec.dtype = writing.dtype.value_or(spec.dtype);
  return spec;
}

std::vector<WrittenResult> written_results(const NetworkGraph& network, const Training& training,
                                           const std::vector<D2hStream>& predictions,
                                           const Output& output) {
  std::vector<WrittenResult> written;
  const auto add = [&](const auto& list, const std::vector<D2hStream>& streams) {
    auto stream = streams.begin();
    for (const auto& result : list) {
      if (result.writing.form != Writing::Reduction::kNone)
        written.push_back({result.value, *stream++, result_form(result.writing, output)});
    }
  };
  add(network.results.losses, training.losses);
  add(network.results.predictions, predictions);
  for (size_t i = 0; i < network.watched.size(); ++i)
    written.push_back({network.watched[i].second, training.watched_values[i].stream});
  if (network.loss_sums.empty() || training.loss_sums.empty()) return written;
  auto stream = training.loss_sums.begin();
  for (size_t i = 0; i < network.loss_sums.size(); ++i) {
    if (network.results.losses[i].writing.form != Writing::Reduction::kNone)
      written.push_back({network.loss_sums[i], *stream++, ResultForm::kRunSum});
  }
  if (stream != training.loss_sums.end())
    written.push_back({network.total_weight, *stream, ResultForm::kRunSum});
  return written;
}

namespace {

template <typename Visit>
void for_each_of(const std::vector<WrittenResult>& results, std::initializer_list<ResultForm> forms,
                 const Visit& visit) {
  for (const WrittenResult& r : results) {
    if (std::find(forms.begin(), forms.end(), r.form) != forms.end()) visit(r);
  }
}

}  // namespace

void KeptResults::add(Graph& graph, const std::vector<WrittenResult>& results,
                      std::initializer_list<ResultForm> forms) {
  for_each_of(results, forms, [&](const WrittenResult& r) { add(graph, r.stream, r.form); });
}

void KeptResults::store(Graph& graph, const std::vector<WrittenResult>& results,
                        std::initializer_list<ResultForm> forms) const {
  for_each_of(results, forms, [&](const WrittenResult& r) {
    const Graph::ProvenanceScope of(graph, {.role = OpRole::kResult});
    if (const Tensor kept = find(r.stream.name); kept.valid()) graph.host_store(r.stream, kept);
  });
}

void KeptResults::add(Graph& graph, const D2hStream& stream, ResultForm form) {
  const Graph::ProvenanceScope of(graph, {.role = OpRole::kResult});
  const char* const prefix = form == ResultForm::kRunLast ? "last." : "sum.";
  set(stream.name, zeros(graph, stream.spec, prefix + stream.name), form);
}

bool KeptResults::put(const std::string& name, const Tensor& value) const {
  const auto found = kept_.find(name);
  if (found == kept_.end()) return false;
  update(found->second.tensor, found->second.form, value);
  return true;
}

// Updates read their operands as float32.
void KeptResults::update(const Tensor& kept, ResultForm form, const Tensor& value) {
  const Graph::ProvenanceScope of(kept.graph(), {.role = OpRole::kResult});
  if (form == ResultForm::kRunLast) {
    ops::copy_var_update_(kept, value);
    return;
  }
  const bool exact = kept.dtype() == f32 && is_float(value.dtype());
  const Tensor added = exact ? value : ops::cast(value, kept.dtype());
  if (is_float(kept.dtype())) {
    ops::accumulate_(kept, added);
  } else {
    ops::add_(kept, added);
  }
}

Tensor KeptResults::find(const std::string& name) const {
  const auto found = kept_.find(name);
  return found == kept_.end() ? Tensor() : found->second.tensor;
}

}  // namespace sluice::train
