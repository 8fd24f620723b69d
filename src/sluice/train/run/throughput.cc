#include "sluice/train/fit.h"

#include <fmt/format.h>

#include <chrono>

namespace sluice::train {

Throughput evaluate_throughput(Session& session, int64_t samples_per_step, int runs,
                               const std::string& program) {
  require(samples_per_step >= 1, "evaluate_throughput: samples_per_step must be at least 1, got {}",
          samples_per_step);
  require(runs >= 1, "evaluate_throughput: runs must be at least 1, got {}", runs);
  std::vector<std::pair<H2dStream, HostTensor>> ones;
  for (const auto& [stream, spec] : session.expected_inputs(program)) {
    HostTensor numbers({spec.shape, f32, {}});
    for (float& x : numbers.as<float>()) x = 1;
    ones.emplace_back(stream, numbers.cast(spec.dtype));
  }
  std::vector<StreamInput> inputs;
  for (const auto& [stream, array] : ones) inputs.push_back({stream, array});

  std::vector<NamedArray> before;
  session.each_variable([&](const std::string& path, HostTensor value) {
    before.push_back({path, std::move(value)});
  });
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) session.run(inputs, program);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  session.restore(before);

  const double mean = took.count() / runs;
  return {.mean_seconds = mean, .samples_per_second = static_cast<double>(samples_per_step) / mean};
}

std::string to_string(const Throughput& t) {
  return fmt::format("Mean duration: {} s Throughput: {:6.1f} samples/s ", t.mean_seconds,
                     t.samples_per_second);
}

}  // namespace sluice::train
