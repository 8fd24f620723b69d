#include "tools/data/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/numbers/argmax.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::tool {

HostTensor classes_of(const HostTensor& scores) {
  HostTensor classes({{scores.shape()[0]}, i32, {}});
  const Slices rows(scores.as<float>(), scores.shape()[0]);
  int64_t row = 0;
  for (int32_t& c : classes.as<int32_t>()) c = static_cast<int32_t>(argmax(rows[row++]));
  return classes;
}

std::string metrics_text(const train::Evaluation& evaluation) {
  std::string text, last;  // The metric whose values are added.
  bool open = false;       // Whether values of losses or predictions are in parentheses.
  for (const train::Metric& m : evaluation.metrics) {
    const size_t slash = std::min(m.name.find('/'), m.name.size());
    if (std::string name = m.name.substr(0, slash); name != last) {
      text += fmt::format("{}{}{}", std::exchange(open, false) ? ")" : "", last.empty() ? "" : ", ",
                          name == "loss" ? "test " : "");
      last = name;
      std::ranges::replace(name, '_', ' ');
      text += name;
    }
    if (slash < m.name.size())
      text +=
          fmt::format("{}{}", std::exchange(open, true) ? ", " : " (", m.name.substr(slash + 1));
    const char* const number = std::abs(m.value) < 0.1 ? " {:.4g}" : " {:.4f}";
    text += fmt::format(fmt::runtime(m.percent ? " {:.2f} %" : number), m.value);
  }
  return open ? text + ')' : text;
}

void add_metrics(const train::Evaluation& evaluation, JsonRecord& record) {
  for (const train::Metric& m : evaluation.metrics)
    record.add(m.name.starts_with("loss") ? "test_" + m.name : m.name, m.value);
}

train::Evaluation test(const train::TrainingModel& model, const data::Dataset& samples,
                       train::Show show, const std::function<void()>& after_call) {
  train::InferenceModel inference = train::inference_model(model);
  train::Evaluation evaluation = train::evaluate(inference, samples, show, after_call);
  require(!evaluation.metrics.empty(), "test: a label that counts is required, got none");
  return evaluation;
}

}  // namespace sluice::tool
