#include <fmt/core.h>

#include <algorithm>

#include "bench/steps.h"
#include "bench/suite.h"
#include "sluice/base/checked.h"
#include "sluice/base/options/read_number.h"
#include "sluice/compiler/compile.h"
#include "sluice/data/loader.h"
#include "sluice/exe/executable.h"
#include "sluice/models/model.h"
#include "sluice/train/step_arrays.h"
#include "tools/data/user_data.h"
#include "tools/json_record.h"
#include "tools/plan/profile.h"
#include "tools/programs.h"

namespace sluice::tool {

namespace {

// Runs of both programs on arrays of ones.
int run_synthetic(const ToolOptions& o, const Programs& programs, Session& session,
                  bool has_report) {
  const int64_t samples = checked_mul(samples_of_step(o), o.step.device_iterations);
  constexpr int64_t kRuns = 5, kMaxRuns = 1000000000;
  const int64_t calls = o.train.steps ? *o.train.steps / o.step.device_iterations : kRuns;
  const auto runs = static_cast<int>(std::min(calls, kMaxRuns));
  const auto train = train::evaluate_throughput(session, samples, runs, "train");
  const auto test = train::evaluate_throughput(
      session, checked_mul(o.model.sizes.eval_batch, o.step.replicas), runs, "eval");
  if (has_report) {
    Measuring measuring(session, "eval", has_report);
    while (!measuring.is_done()) {
      train::evaluate_throughput(session, 1, 1, "eval");
      measuring.after_run();
    }
    write_measured(o, programs, session, measuring.take());
  }
  if (o.output.json) {
    JsonRecord record;
    record.add("model", o.model.name);
    record.add("runs", static_cast<int64_t>(runs));
    record.add("train_mean_seconds", train.mean_seconds);
    record.add("train_samples_per_second", train.samples_per_second);
    record.add("test_mean_seconds", test.mean_seconds);
    record.add("test_samples_per_second", test.samples_per_second);
    add_offload(programs, record);
    add_throttle(o, record);
    fmt::print("{}\n", record.text());
    return 0;
  }
  fmt::print("train session\n{}\ntest session\n{}\n{}", to_string(train), to_string(test),
             throttle_line(o));
  return 0;
}

}  // namespace

int run_bench(const ToolOptions& o) {
  Programs programs = build_programs(o);
  Session session = train::open_session(programs);
  log_offload(o, programs);
  const bool has_report = write_profile(o, programs, session);
  if (o.model.synthetic) return run_synthetic(o, programs, session, has_report);
  const int64_t repeat = o.step.device_iterations;
  const int64_t samples = samples_of_step(o);
  const int64_t of_run = checked_mul(samples, repeat);
  const models::Data& source = *models::find_model(o.model.name).data;
  const models::SampleSet generated =
      source.generate(std::max<int64_t>(of_run, 64), 1, o.model.sizes);
  data::BatchLoader loader(generated.dataset, {.batch = of_run});
  train::StepArrays arrays(programs.training);
  arrays.fill(*loader.next());
  Binding binding =
      session.bind(arrays.inputs(programs.training), arrays.outputs(programs.training), "train");
  const int64_t steps = (o.train.steps.value_or(500) + repeat - 1) / repeat * repeat;
  bench::StepTimes times = bench::time_steps(session, binding, steps / repeat);
  if (has_report) {
    Measuring measuring(session, "train", has_report);
    while (!measuring.is_done()) {
      session.run_into(binding);
      measuring.after_run();
    }
    write_measured(o, programs, session, measuring.take());
  }
  for (double* of_step : {&times.median_seconds, &times.min_seconds, &times.flops, &times.bytes})
    *of_step /= static_cast<double>(repeat);
  const double micros = times.median_seconds * 1e6;
  const double samples_per_second = static_cast<double>(samples) / times.median_seconds;
  if (o.output.json) {
    JsonRecord record;
    record.add("model", o.model.name);
    record.add("steps", steps);
    record.add("microseconds_per_step", micros);
    record.add("samples_per_second", samples_per_second);
    record.add("gflops_per_second", times.flops / micros / 1e3);
    record.add("operand_bytes_per_step", times.bytes);
    record.add("planned_bytes", session.planned_bytes());
    record.add("compile_seconds", session.compiled().seconds);
    add_offload(programs, record);
    add_throttle(o, record);
    fmt::print("{}\n", record.text());
    return 0;
  }
  fmt::print("{} steps of {} samples, {} threads\n", steps, samples,
             session.executable().devices[exe::DeviceId(0)].workers);
  fmt::print("median {:.1f} us a step (minimum {:.1f}), {:.0f} samples/s\n", micros,
             times.min_seconds * 1e6, samples_per_second);
  fmt::print("{:.3f} GF a step, {:.1f} GF/s; operands {} a step\n", times.flops / 1e9,
             times.flops / micros / 1e3, show_bytes(static_cast<int64_t>(times.bytes)));
  fmt::print("{}", throttle_line(o));
  return 0;
}

int run_bench_dataset(const ToolOptions& o) {
  const data::Dataset once = open_dataset(o.model.dataset);
  const data::Dataset dataset = o.bench.repeat ? once.repeat() : once;
  const data::BenchmarkResult result = data::dataset_benchmark(
      dataset, {.epochs = o.bench.epochs.value_or(1), .elements = o.bench.elements.value_or(1000)});
  if (o.output.json) {
    fmt::print("{}\n", result.to_json());
    return 0;
  }
  for (const data::BenchmarkEpoch& e : result.epochs) {
    fmt::print("{} elements, {} in {:.6f} s: {:.0f} elements/s, {:.3f} GB/s\n",
               e.elements_processed, show_bytes(e.total_bytes_processed), e.time_elapsed,
               e.elements_per_second, e.bandwidth);
  }
  fmt::print("requested {} elements, produced {}{}\n", result.requested, result.produced,
             result.produced < result.requested
                 ? ": the dataset has ended; --repeat reads it again and again"
                 : "");
  return 0;
}

int run_bench_suite(const ToolOptions& o) {
  bench::run_suite({.only = o.bench.only,
                    .rounds = o.bench.rounds,
                    .threads = o.step.session.device.threads,
                    .pythons = o.bench.python,
                    .json = o.output.json});
  return 0;
}

}  // namespace sluice::tool
