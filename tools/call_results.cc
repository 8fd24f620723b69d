#include "tools/call_results.h"

#include <fmt/format.h>

#include <vector>

#include "sluice/base/checked.h"
#include "sluice/train/model_state.h"
#include "sluice/train/strategies/kept_results.h"

namespace sluice::tool {
namespace {

using train::Output;

std::vector<D2hStream> results_of(const train::Training& training) {
  std::vector<D2hStream> all = training.losses;
  all.insert(all.end(), training.predictions.begin(), training.predictions.end());
  return all;
}

// Entries of a result, which the tool's models write for each micro-batch.
int64_t entries_of(const train::Training& t, const Output& output) {
  const int64_t entries =
      train::entries_of_run(train::result_form({}, output), t.accumulate, t.device_iterations);
  return checked_mul(entries / output.period, t.replicas);
}

int64_t bytes_of(const train::Training& training, const Output& output) {
  int64_t bytes = 0;
  for (const D2hStream& result : results_of(training))
    bytes += checked_mul(result.spec.bytes(), entries_of(training, output));
  return bytes;
}

}  // namespace

int64_t result_bytes(const Programs& programs) {
  return bytes_of(programs.training, *programs.options.output);
}

std::string results_text(const Programs& programs) {
  const train::Training& t = programs.training;
  const Output output = *programs.options.output;
  if (t.device_iterations == 1 && output == Output::all()) return "";
  std::vector<std::string> results;
  for (const D2hStream& result : results_of(t)) {
    const Shape shape = train::internal::joined(result.spec.shape, entries_of(t, output));
    results.push_back(fmt::format("{} {}", result.name, to_string(shape)));
  }
  std::vector<std::string> others;
  if (output != Output::all()) others.push_back(fmt::format("all: {}", bytes_of(t, Output::all())));
  if (output != Output::final())
    others.push_back(fmt::format("final: {}", bytes_of(t, Output::final())));
  return fmt::format("results of a call: {}: {} bytes; --output-mode {}", fmt::join(results, ", "),
                     bytes_of(t, output), fmt::join(others, ", "));
}

}  // namespace sluice::tool
