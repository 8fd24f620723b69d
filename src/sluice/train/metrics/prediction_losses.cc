#include "sluice/train/metrics/prediction_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "sluice/ir/graph.h"
#include "sluice/ir/op.h"
#include "sluice/session/session.h"

namespace sluice::train {

/// An input of a program from the host: a prediction or a field.
struct PredictionLosses::Source {
  bool prediction = false;
  std::string name;
  size_t index = 0;  ///< The index of a field in a tuple.
  H2dStream stream = {};
};

namespace {

using Source = PredictionLosses::Source;

const HostTensor* array_of(const data::Element& element, const Source& source) {
  for (size_t i = 0; i < element.names.size(); ++i) {
    // The prefix separates results of evaluation from streams of training.
    const std::string& name = element.names[i];
    if (name == source.name || (source.prediction && name == "eval_" + source.name))
      return &element.arrays[i];
  }
  const bool tuple = !source.prediction && element.names.empty();
  return tuple && source.index < element.arrays.size() ? &element.arrays[source.index] : nullptr;
}

// Finds the tensors of a graph that follow from its predictions and fields by ops without effects.
class Dependence {
 public:
  // A source has a row for each of `samples` samples.
  Dependence(const NetworkGraph& n, const Network& network, int64_t samples)
      : graph_(n.graph.graph()) {
    for (const Prediction& p : n.results.predictions) {
      if (p.writing.form == Writing::Reduction::kEach)
        sources_.emplace(p.value.id(), Source{true, p.name});
    }
    for (const auto& [name, t] : n.fields) {
      size_t index = 0;
      for (const Field& f : network.fields()) {
        if (f.name == name) break;
        index += !f.once;
      }
      sources_.emplace(t.id(), Source{false, name, index});
    }
    std::erase_if(sources_, [&](const auto& source) {
      const TensorSpec& spec = graph_.spec(source.first);
      return spec.shape.rank() == 0 || spec.shape[0] != samples || spec.bytes() == 0;
    });
    for (const auto& [t, source] : sources_) known_.insert(t);
    for (const Op& op : graph_.ops()) {
      if (!op.callees.empty() || !op.effects.empty()) continue;
      const bool follows = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Operand& o) {
        return o.mode == Mode::kRead && knows(o.tensor);
      });
      for (const TensorId t : op.outputs) {
        if (follows) known_.insert(t);
      }
    }
  }

  bool is_source(TensorId t) const { return sources_.contains(t); }
  const Source& source(TensorId t) const { return sources_.at(t); }
  // A tensor that an op overwrites is not known: its value depends on the position of the reader.
  bool knows(TensorId t) const {
    const TensorInfo& info = graph_.info(t);
    if (graph_.storage(info.storage).version() > 0) return false;
    return known_.contains(t) || info.constant != nullptr;
  }

 private:
  const Graph& graph_;
  std::set<TensorId> known_;
  std::map<TensorId, Source> sources_;
};

// Whether the value of a loss and its total weight are known.
bool knows(const Dependence& dependence, const Loss& loss) {
  return dependence.knows(loss.value.id()) &&
         (!loss.total_weight.valid() || dependence.knows(loss.total_weight.id()));
}

}  // namespace

/// A program that computes losses of one micro-batch.
struct PredictionLosses::Program {
  struct Result {
    std::string name;
    double weight = 1;
    bool mean_cross_entropy = false;
    D2hStream stream;
    std::optional<D2hStream> total_weight = {};  // The divisor of a sum; else it is a mean.
  };

  Program(const Network& network, int64_t samples) {
    const Ir built;
    const NetworkGraph n = network.build_scored(built, samples);
    const Graph& from = n.graph.graph();
    const Dependence dependence(n, network, samples);
    std::set<TensorId> needed;
    losses = n.results.losses.size();
    for (const Loss& loss : n.results.losses) {
      if (!knows(dependence, loss)) continue;
      needed.insert(loss.value.id());
      if (loss.total_weight.valid()) needed.insert(loss.total_weight.id());
    }
    for (size_t i = from.ops().size(); i-- > 0;) {
      const Op& op = from.ops()[i];
      if (is_needed(op, needed, dependence)) {
        for (const Operand& o : op.inputs) needed.insert(o.tensor);
      }
    }
    Graph& main = ir.main_graph();
    std::map<TensorId, Tensor> made;
    for (const TensorId t : needed) {
      if (dependence.is_source(t)) {
        Source& source = sources.emplace_back(dependence.source(t));
        source.stream = ir.h2d_stream(from.spec(t), source.name);
        made.emplace(t, main.host_load(source.stream));
      } else if (from.info(t).constant != nullptr) {
        made.emplace(t, main.constant(*from.info(t).constant));
      }
    }
    for (const Op& op : from.ops()) {
      if (!is_needed(op, needed, dependence)) continue;
      std::vector<TensorArg> inputs;
      for (const Operand& o : op.inputs) inputs.emplace_back(made.at(o.tensor));
      const Tensors outputs = main.emit(*op.def, inputs, op.attrs);
      for (size_t i = 0; i < outputs.size(); ++i) made.insert_or_assign(op.outputs[i], outputs[i]);
    }
    for (const Loss& loss : n.results.losses) {
      if (!knows(dependence, loss)) continue;
      Result result{loss.name, loss.weight, loss.mean_cross_entropy,
                    main.host_store(made.at(loss.value.id()), loss.name)};
      if (loss.total_weight.valid()) {
        const Tensor& weight = made.at(loss.total_weight.id());
        result.total_weight = main.host_store(weight, loss.name + "_weight");
      }
      results.push_back(std::move(result));
    }
  }

  // Whether the program computes an op: a needed tensor is its output and is not given.
  static bool is_needed(const Op& op, const std::set<TensorId>& needed, const Dependence& given) {
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId t) { return needed.contains(t) && !given.is_source(t); });
  }

  Ir ir;
  size_t losses = 0;  // Losses of the network; the program computes the losses of `results`.
  std::vector<Source> sources;
  std::vector<Result> results;
  std::optional<Session> session;
};

PredictionLosses::PredictionLosses(const Network& network, const DeviceChoice& device,
                                   int64_t samples)
    : network_(network), device_(device), samples_(samples) {
  device_.memory = -1;
  device_.threads = 1;
}

PredictionLosses::~PredictionLosses() = default;

PredictionLosses::Program* PredictionLosses::program(int64_t samples) {
  const auto [found, is_new] = programs_.try_emplace(samples);
  if (!is_new) return found->second.get();
  try {
    auto made = std::make_unique<Program>(network_, samples);
    if (made->results.empty()) return nullptr;
    made->session.emplace(made->ir, SessionOptions{.device = device_, .profile = ""});
    found->second = std::move(made);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;  // A module may require the size of its micro-batch.
  }
  return found->second.get();
}

void PredictionLosses::add(const data::Element& results, const PredictedRows& counted,
                           std::span<const ClassLabels> labels) {
  const data::Element& item = counted.inputs;
  const int64_t batch = item.arrays[0].shape()[0], rows = counted.count;
  for (int64_t first = 0; first < std::min(batch, rows); first += samples_) {
    const int64_t count = std::min(samples_, rows - first);
    Program* const p = program(count);
    if (p == nullptr) continue;
    std::vector<StreamInput> inputs;
    for (const Source& source : p->sources) {
      const HostTensor* const array = array_of(source.prediction ? results : item, source);
      const TensorSpec& spec = source.stream.spec;
      if (array == nullptr || array->dtype() != spec.dtype) break;
      const int64_t row = spec.bytes() / count;
      // Predictions of the last micro-batch alone belong to the last samples.
      const int64_t begin = first - (batch - std::ssize(array->bytes()) / row);
      if (begin < 0 || (!source.prediction && begin != first)) break;
      const std::byte* const data = array->bytes().data() + begin * row;
      inputs.push_back({source.stream, ConstArrayView(spec, data)});
    }
    if (inputs.size() < p->sources.size()) continue;
    const HostTensors values = p->session->run(inputs);
    const auto value = [&](const D2hStream& stream) { return values[stream].to_doubles()[0]; };
    const auto samples = static_cast<double>(count);
    for (const Program::Result& r : p->results) {
      const double loss = value(r.stream);
      if (std::isnan(loss)) {
        std::string reason;
        for (int64_t row = first; row < first + count && reason.empty(); ++row)
          reason = reason_of_row(item, row, labels);
        fail(ErrorKind::kDiverged, "the loss '{}' of rows {} to {} is nan{}", r.name,
             counted.first + first, counted.first + first + count - 1, reason);
      }
      auto& [sum, weight] = sums_[r.name];
      sum += loss * (r.total_weight ? 1 : samples);
      weight += r.total_weight ? value(*r.total_weight) : samples;
    }
  }
}

void PredictionLosses::add_metrics(Evaluation& evaluation) {
  const Program* const p = program(samples_);
  if (p == nullptr || sums_.size() < p->results.size()) return;
  std::optional<double> loss = 0;
  NamedValues losses, perplexities;
  for (const Program::Result& r : p->results) {
    const auto& [sum, weight] = sums_.at(r.name);
    std::optional<double> mean;
    if (weight > 0) mean = sum / weight;  // Absent: no sample counts.
    losses.emplace_back(r.name, mean);
    if (r.mean_cross_entropy) {
      perplexities.emplace_back(r.name, mean);
      if (mean) perplexities.back().second = std::exp(*mean);
    }
    loss = loss && mean ? std::optional(*loss + r.weight * *mean) : std::nullopt;
  }
  if (p->losses > p->results.size()) loss.reset();
  add_metric(evaluation, "loss", {{"", loss}});
  if (p->losses > 1) {
    for (const auto& [name, mean] : losses) add_metric(evaluation, "loss/" + name, {{"", mean}});
  }
  add_metric(evaluation, "perplexity", perplexities);
}

void add_metric(Evaluation& evaluation, const std::string& name, const NamedValues& values,
                const Metric& metric) {
  const auto add = [&](const std::string& own, const std::optional<double>& value) {
    if (!value) return;
    Metric& added = evaluation.metrics.emplace_back(metric);
    added.name = own;
    added.value = *value;
  };
  if (!values.empty()) add(name, values[0].second);
  for (const auto& [of, value] : values) {
    if (values.size() > 1) add(fmt::format("{}/{}", name, of), value);
  }
}

}  // namespace sluice::train
