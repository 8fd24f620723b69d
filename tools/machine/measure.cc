#include "tools/machine/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "bench/machine.h"
#include "sluice/base/sys.h"
#include "sluice/report/forecast/links.h"
#include "sluice/report/forecast/step_times.h"
#include "sluice/runtime/events.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

constexpr int kKernelSamples = 5;
constexpr int kFewestRuns = 9;
constexpr double kKernelSeconds = 0.05;
constexpr int64_t kMaxCopied = int64_t{64} << 20;

// Returns the lower quartile, because other processes of the machine only lengthen a time.
double usual(std::vector<double> seconds) {
  const size_t quarter = seconds.size() / 4;
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<int64_t>(quarter), seconds.end());
  return seconds[quarter];
}

/// An op whose kernel is measured.
struct MeasuredOp {
  Shape x, w;  ///< Shapes of its inputs.
  std::function<Tensor(Tensor, Tensor)> apply;
};

/// The ops that compute most of a network, each from few to many operations per byte.
std::vector<MeasuredOp> measured_ops() {
  std::vector<MeasuredOp> all;
  for (const int64_t n : {2, 8, 32, 128, 512}) {
    all.push_back({{n, 512}, {512, 512}, [](Tensor x, Tensor w) { return ops::matmul(x, w); }});
    all.push_back({{n, 512}, {512, 512}, [](Tensor y, Tensor w) {
                     return ops::matmul(y, w, {.rhs_transposed = true});
                   }});
    all.push_back({{n, 512}, {n, 512}, [](Tensor x, Tensor y) {
                     return ops::matmul(x, y, {.lhs_transposed = true});
                   }});
  }
  struct Convolution {
    int64_t samples, from, to, size, taps;
  };
  for (const Convolution c : {Convolution{40, 1, 10, 28, 5}, Convolution{40, 10, 10, 12, 5},
                              Convolution{40, 1, 16, 28, 3}, Convolution{32, 16, 16, 32, 3},
                              Convolution{16, 32, 32, 16, 3}, Convolution{8, 128, 128, 8, 3}}) {
    const int64_t padding = c.taps / 2;
    const Shape x{c.samples, c.from, c.size, c.size}, w{c.to, c.from, c.taps, c.taps},
        y{c.samples, c.to, c.size, c.size};
    all.push_back({x, w, [padding](Tensor x, Tensor w) {
                     return ops::conv(x, w, {.padding = {padding, padding}});
                   }});
    all.push_back({y, w, [padding](Tensor x, Tensor w) {
                     return ops::conv_transpose(x, w, {.padding = {padding, padding}});
                   }});
    all.push_back({x, y, [padding, taps = c.taps](Tensor x, Tensor y) {
                     return ops::conv_weight_grad(
                         x, y, {.kernel = {taps, taps}, .padding = {padding, padding}});
                   }});
  }
  return all;
}

struct MeasuredKernel {
  std::string name;  ///< Its class.
  report::KernelRate rate;
  double seconds = 0;
};

// Runs a program of one op and takes the time of its kernel from the events of a run.
MeasuredKernel measure(const MeasuredOp& measured) {
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor x =
      main.variable({measured.x, f32, {}}, Initializer::normal(0, 1).keyed({1, 2}), "x");
  const Tensor w =
      main.variable({measured.w, f32, {}}, Initializer::normal(0, 1).keyed({3, 4}), "w");
  main.host_store(measured.apply(x, w), "y");
  Session session(ir, {.device = cpu_device({.threads = 1}), .events = 1 << 10});
  MeasuredKernel result;
  std::vector<double> seconds;
  const double begin = bench::seconds_now();
  for (int run = 0; run < kFewestRuns || bench::seconds_now() < begin + kKernelSeconds; ++run) {
    session.run({});
    for (const runtime::Lane& lane : session.lanes()) {
      for (const runtime::Event& event : lane.ring.events()) {
        const auto* kernel = std::get_if<exe::Kernel>(&event.step->body);
        if (kernel == nullptr || kernel->flops == 0 || event.waits) continue;
        seconds.push_back(static_cast<double>(event.end - event.begin) * 1e-9);
        result.name = report::kernel_class(*kernel);
        result.rate.flops = static_cast<double>(kernel->flops);
        result.rate.intensity =
            result.rate.flops / static_cast<double>(report::moved_bytes(kernel->operands));
      }
    }
  }
  result.seconds = std::max(usual(seconds), 1e-9);
  result.rate.flops /= result.seconds;
  return result;
}

// Copies buffers of each size. The rates show the sizes of the caches.
void measure_copies(bench::Machine& machine, report::Rates& rates) {
  const bench::Memory from(kMaxCopied), to(kMaxCopied);
  const auto rate = [&](int64_t bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < kKernelSamples; ++i)
      seconds.push_back(machine.copy_seconds(bench::CopyWith::kMemcpy, from, to, bytes, 1, 2e-3));
    return static_cast<double>(bytes) / std::max(usual(seconds), 1e-9);
  };
  // A copy of n bytes touches 2 n.
  for (int64_t bytes = int64_t{8} << 10; bytes < kMaxCopied; bytes *= 4)
    rates.caches.push_back({2 * bytes, rate(bytes)});
  rates.copies = rate(kMaxCopied);
  rates.remote = rates.copies;
}

}  // namespace

std::string measure_machine(const std::string& path) {
  sys::check_replaceable(path);
  bench::Machine machine(cpu::current_isa());
  report::Rates rates;
  rates.threads = std::min(sys::usable_cores(), bench::kMaxThreads);
  double together = 0;
  std::vector<double> messages;
  rates.flops = 0;
  for (int i = 0; i < kKernelSamples; ++i) {
    rates.flops = std::max(rates.flops, machine.peak(1));
    together = std::max(together, machine.peak(rates.threads));
    messages.push_back(machine.hand_over_seconds());
  }
  rates.together = std::clamp(together / (rates.threads * rates.flops), 1e-3, 1.0);
  rates.latency = usual(messages);
  const auto add = [](Tensor x, Tensor w) { return x + w; };
  rates.kernel_begin = measure({{8}, {8}, add}).seconds;
  measure_copies(machine, rates);
  rates.messages = rates.copies / 2;  // The sender copies, then the receiver.
  std::string text;
  for (const MeasuredOp& op : measured_ops()) {
    const MeasuredKernel kernel = measure(op);
    rates.kernels[kernel.name].push_back(kernel.rate);
    text += fmt::format("{:<23} {:6.1f} GF/s at {:.1f} operations a byte\n", kernel.name,
                        kernel.rate.flops / 1e9, kernel.rate.intensity);
  }
  for (auto& [op, rows] : rates.kernels)
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.intensity < b.intensity; });
  const std::string json = report::to_json(rates);
  sys::replace_file(path, std::as_bytes(std::span(json)));
  for (const report::CacheRate& c : rates.caches)
    text += fmt::format("{:<23} {:6.1f} GB/s within {} bytes\n", "copies", c.copies / 1e9, c.bytes);
  return fmt::format(
      "{}{:<23} {:6.1f} GB/s in memory\n{:<23} {:6.1f} GF/s a thread, {:.0f} % of it on {} "
      "threads\n{:<23} {:6.2f} us\n{:<23} {:6.2f} us\nwritten                 {}\n",
      text, "copies", rates.copies / 1e9, "multiply-adds", rates.flops / 1e9, rates.together * 100,
      rates.threads, "kernel's begin", rates.kernel_begin * 1e6, "message", rates.latency * 1e6,
      path);
}

MachineRates rates_of_machine(const ToolOptions& o) {
  const std::vector<std::byte> bytes = sys::read_file(o.machine);
  MachineRates result;
  report::Rates& rates = result.rates;
  rates =
      report::read_rates({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, o.machine);
  rates.threads = compile_options(session_options(o)).devices[exe::DeviceId(0)].threads;
  std::string source;
  if (o.step.session.remote_bandwidth >= 0) {
    rates.remote = static_cast<double>(o.step.session.remote_bandwidth);
    source = " by --remote-bandwidth";
  }
  result.text = fmt::format(
      "{:.1f} GF/s and copies of {:.2f} GB/s a worker, remote memory {:.3g} GB/s{}, {} ops and {} "
      "caches by {}",
      rates.flops / 1e9, rates.copies / 1e9, rates.remote / 1e9, source, rates.kernels.size(),
      rates.caches.size(), o.machine);
  return result;
}

train::DeviceRates device_rates(const report::Rates& rates) {
  train::DeviceRates result{.flops = rates.flops,
                            .copies = rates.copies,
                            .messages = rates.messages,
                            .latency = rates.latency};
  if (rates.cluster) {
    result.message_seconds = [rates](const train::StepMessage& m) {
      const report::Links links(rates, m.replicas, m.devices);
      return links.latency(m.from, m.to) + links.transfer_seconds(m.from, m.to, m.bytes);
    };
  }
  return result;
}

}  // namespace sluice::tool
