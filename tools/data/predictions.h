#pragma once
#include <functional>
#include <string>

#include "sluice/data/samples.h"
#include "sluice/train/fit.h"
#include "tools/json_record.h"
#include "tools/options.h"

namespace sluice::tool {

/// Returns the column of the largest element of each row: (n, classes) f32 to (n) i32.
HostTensor classes_of(const HostTensor& scores);

/// Formats metrics as the line of a report: "test loss 0.0931, accuracy 97.20 %". Values of several
/// losses or predictions follow in parentheses.
std::string metrics_text(const train::Evaluation& evaluation);

/// Adds the metrics to a record, by name; the loss is "test_loss".
void add_metrics(const train::Evaluation& evaluation, JsonRecord& record);

/// Evaluates a model on all samples. Calls `after_call` after each call of the model. Error{kUsage}
/// if no label counts.
train::Evaluation test(const train::TrainingModel& model, const data::Dataset& samples,
                       train::Show show, const std::function<void()>& after_call = nullptr);

}  // namespace sluice::tool
