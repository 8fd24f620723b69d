#include "training_outcome.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "../random_graph_ops.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/interp/interpreter.h"
#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/step_arrays.h"

namespace sluice::property {

using train::Location;
using train::Training;

namespace {

constexpr int kUpdates = 2;

void fill(train::StepArrays& arrays, int update) {
  uint64_t seed = static_cast<uint64_t>(update) * 16;
  for (HostTensor& field : arrays.fields) {
    field = random_array(field.spec(), ++seed);
    if (field.dtype() != i32) continue;
    for (int32_t& x : field.as<int32_t>()) x %= 3;
  }
  arrays.seed(3, update);
}

/// Runs `updates` updates and, if there is one, the program "eval". Returns all results.
template <typename RunOnce>
Outcome results_of(const Training& t, int updates, const RunOnce& run) {
  Outcome outcome;
  train::StepArrays arrays(t);
  for (int update = 0; update < updates; ++update) {
    fill(arrays, update);
    const auto out = run(arrays.inputs(t), "train");
    for (const D2hStream& s : t.losses)
      outcome.emplace_back(fmt::format("{} of update {}", s.name, update), out(s));
    for (const D2hStream& s : t.predictions)
      outcome.emplace_back(fmt::format("{} of update {}", s.name, update), out(s));
  }
  if (t.eval_predictions.empty()) return outcome;
  std::vector<HostTensor> batch;
  for (const H2dStream& s : t.eval_fields) {
    batch.push_back(random_array({entries_shape(s.spec.shape, 1, t.replicas), s.spec.dtype, {}},
                                 1000 + batch.size()));
    if (s.spec.dtype == i32)
      for (int32_t& x : batch.back().as<int32_t>()) x %= 3;
  }
  std::vector<StreamInput> inputs;
  for (size_t i = 0; i < batch.size(); ++i) inputs.push_back({t.eval_fields[i], batch[i]});
  const auto out = run(inputs, "eval");
  for (const D2hStream& s : t.eval_predictions) outcome.emplace_back(s.name, out(s));
  return outcome;
}

std::string strategy_text(const train::Strategy& strategy) {
  const auto text = [](const train::Stages& stages) {
    if (const int* count = std::get_if<int>(&stages)) return fmt::format(" {} stages", *count);
    std::string all;
    for (const train::Stage& s : std::get<std::vector<train::Stage>>(stages))
      all += fmt::format(" {}@{}", fmt::join(s.blocks(), "+"), s.device().value_or(-1));
    return all;
  };
  if (const auto* p = std::get_if<train::PipelinedExecution>(&strategy))
    return fmt::format("pipelined {}{}", to_string(p->schedule), text(p->stages));
  if (const auto* p = std::get_if<train::ShardedExecution>(&strategy))
    return "sharded" + text(p->stages);
  if (const auto* p = std::get_if<train::OrderedExecution>(&strategy))
    return "ordered" + text(p->stages);
  if (const auto* p = std::get_if<train::PhasedExecution>(&strategy))
    return fmt::format("phased, groups of {}{}", p->group, p->stages ? text(*p->stages) : "");
  return "resident";
}

}  // namespace

std::string TrainingWay::text() const {
  const train::TensorLocations& l = step.locations;
  std::string remote;
  for (const auto& [where, name] :
       {std::pair(l.optimizer, "optimizer"), std::pair(l.weights, "weights"),
        std::pair(l.activations, "activations"), std::pair(l.accumulators, "accumulators")}) {
    if (where == Location::kRemote) remote += fmt::format(" {}", name);
  }
  return fmt::format(
      "{}, accumulate {}, {} replicas, {} threads, {} io queues, optimizer {}, io mode "
      "{}, "
      "recompute {}{}, offload{} from {}, shard {}, norm {}, gradients {} and {} of replicas, "
      "accumulators {}{}, freeze {}, averages {}{}",
      strategy_text(step.strategy.value_or(train::resident())), step.accumulate, replicas, threads,
      io_queues, optimizer, static_cast<int>(step.io_mode), step.recompute.all,
      step.recompute.blocks, remote, l.min_elements_off_device, l.min_elements_sharded,
      step.max_grad_norm.value_or(0), to_string(step.accumulation_reduction),
      to_string(step.replica_reduction), step.accumulator_dtype.index(),
      step.gradient_hook ? ", with a hook" : "", step.freeze, step.ema_decay.value_or(0),
      order ? ", in the order\n" + *order : "");
}

nn::Optimizer optimizer_of(const TrainingWay& way) {
  switch (way.optimizer) {
    case 0:
      return nn::Optimizer::sgd();
    case 1:
      return nn::Optimizer::sgd({.momentum = 0.9});
    case 2:
      return nn::Optimizer::adam();
    default:
      return nn::Optimizer::adamw();
  }
}

Training built(Ir& ir, const train::Network& network, const TrainingWay& way) {
  return build_training(ir, network, optimizer_of(way), way.step);
}

Outcome in_session(const train::Network& network, const TrainingWay& way) {
  Ir ir(way.replicas);
  const Training t = built(ir, network, way);
  const std::vector<DeviceChoice> more(static_cast<size_t>(way.devices) - 1, cpu_device());
  Session session(ir, {.device = cpu_device({.threads = way.threads}),
                       .more_devices = more,
                       .io_queues = way.io_queues,
                       .proof = SessionOptions::Proof::kCheck});
  if (session.planned_bytes() != session.measured_bytes())
    fail(ErrorKind::kInternal, "{} bytes planned, {} measured", session.planned_bytes(),
         session.measured_bytes());
  Outcome outcome = results_of(t, kUpdates, [&](const auto& inputs, const std::string& program) {
    return [out = session.run(inputs, program)](const D2hStream& s) { return out[s]; };
  });
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    outcome.emplace_back("variable " + path, value);
  });
  return outcome;
}

Outcome in_interpreter(const Ir& ir, const Training& t, int updates, Precision precision) {
  Interpreter interpreter(ir, precision);
  Outcome outcome = results_of(t, updates, [&](const auto& inputs, const std::string& program) {
    return [&, out = interpreter.run(inputs, program)](const D2hStream& s) {
      const auto& entries = out.entries(s);
      return entries.size() == 1 ? entries[0] : HostTensor::stack(entries);
    };
  });
  std::map<std::string, HostTensor> variables;
  const auto add = [&](const std::string&, const Tensor& v) {
    variables.emplace("variable " + v.graph().info(v).variable->path, interpreter.read(v));
  };
  t.variables.for_each(add);
  t.state.for_each(add);
  t.averages.for_each(add);
  outcome.insert(outcome.end(), variables.begin(), variables.end());
  return outcome;
}

Outcome without_evaluation(const Outcome& all, const Training& t) {
  Outcome some;
  for (const auto& entry : all) {
    const bool eval = std::any_of(t.eval_predictions.begin(), t.eval_predictions.end(),
                                  [&](const D2hStream& s) { return s.name == entry.first; });
    if (!eval) some.push_back(entry);
  }
  return some;
}

// Norms of nearly equal rows amplify what additions round, so the values are doubles. The scale is
// the largest value of all variables: a small gradient may be a sum of large ones.
std::string numeric_difference(const Outcome& want, const Outcome& got) {
  if (want.size() != got.size()) return fmt::format("{} results, not {}", got.size(), want.size());
  double scale = 1;
  for (const auto& [name, value] : want) {
    for (const double x : value.to_doubles())
      if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const auto a = want[i].second.to_doubles();
    const auto b = got[i].second.to_doubles();
    for (size_t k = 0; k < a.size(); ++k) {
      if (std::isfinite(a[k]) != std::isfinite(b[k]) ||
          (std::isfinite(a[k]) && std::abs(a[k] - b[k]) > 2e-5 * scale))
        return fmt::format("{}: {} instead of {}", want[i].first, b[k], a[k]);
    }
  }
  return "";
}

}  // namespace sluice::property
