#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "sluice/data/loader.h"
#include "sluice/data/synthetic_digits.h"
#include "tools/json_record.h"
#include "tools/mnist_model.h"

namespace sluice::tool {

int run_bench(const ToolOptions& o) {
  using Clock = std::chrono::steady_clock;
  const MnistPrograms programs = build_mnist(o);
  Session session(
      programs.ir,
      {.device = cpu_device({.memory = o.memory, .threads = static_cast<int>(o.threads)}),
       .disable = o.disable});
  const data::Dataset digits = data::synthetic_digits(std::max<int64_t>(o.micro_batch, 64), 1);
  const data::DataLoader loader(digits, {.batch = o.micro_batch});
  HostTensor image({{o.micro_batch, 28, 28}, f32, {}});
  HostTensor labels({{o.micro_batch}, i32, {}});
  HostTensor seed({{2}, u32, {}});
  HostTensor loss(TensorSpec{{}, f32, {}});
  loader.fill(0, image, labels);
  std::vector<StreamInput> inputs{{programs.image, image}, {programs.labels, labels}};
  if (o.dropout > 0) inputs.push_back({programs.seed, seed});
  Binding binding = session.bind(inputs, {{programs.loss, loss}}, "train");
  const int64_t steps = o.steps >= 1 ? o.steps : 500;
  for (int64_t i = 0; i < std::min<int64_t>(steps, 20); ++i) session.run_into(binding);
  const runtime::Counters before = session.counters();
  std::vector<double> micros;
  for (int64_t i = 0; i < steps; ++i) {
    const auto begin = Clock::now();
    session.run_into(binding);
    micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  const runtime::Counters after = session.counters();
  std::sort(micros.begin(), micros.end());
  const double median = micros[micros.size() / 2];
  const double flops = (after.flops - before.flops) / static_cast<double>(steps);
  const double bytes = static_cast<double>(after.bytes - before.bytes) / static_cast<double>(steps);
  if (o.json) {
    JsonRecord record;
    record.add("model", o.model);
    record.add("steps", steps);
    record.add("microseconds_per_step", median);
    record.add("samples_per_second", static_cast<double>(o.micro_batch) / median * 1e6);
    record.add("gflops_per_second", flops / median / 1e3);
    record.add("operand_bytes_per_step", bytes);
    record.add("planned_bytes", session.planned_bytes());
    record.add("compile_seconds", session.compiled().seconds);
    fmt::print("{}\n", record.text());
    return 0;
  }
  fmt::print("{} steps of {} samples, {} threads\n", steps, o.micro_batch,
             session.executable().devices[0].workers);
  fmt::print("median {:.1f} us a step (least {:.1f}), {:.0f} samples/s\n", median, micros.front(),
             static_cast<double>(o.micro_batch) / median * 1e6);
  fmt::print("{:.3f} GF a step, {:.1f} GF/s; operands {} a step\n", flops / 1e9,
             flops / median / 1e3, show_bytes(static_cast<int64_t>(bytes)));
  return 0;
}

}  // namespace sluice::tool
