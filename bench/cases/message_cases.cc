#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "bench/figure.h"
#include "bench/steps.h"
#include "sluice/sluice.h"

namespace sluice::bench {
namespace {

constexpr int64_t kMessageIterations = 200;
constexpr int64_t kMessageRuns = 5;
constexpr double kMessageSeconds = 1e-2;
constexpr double kFixedSeconds = 2e-6;  // Maximum seconds of a message without its bytes.

// A tensor that is sent to the last device and back in each iteration. With one device, there is no
// message.
class MessageLoop {
 public:
  MessageLoop(int64_t bytes, int devices, int threads) {
    Graph& main = ir_.main_graph();
    Graph& body = ir_.create_graph(
        "turn",
        [&](Graph& g, Tensor x) {
          g.set_device(devices - 1);
          const Tensor there = x + 1.0;
          g.set_device(0);
          return there * 0.5;
        },
        f32_spec({bytes / 4}));
    const Tensor x = main.variable(f32_spec({bytes / 4}), Initializer::constant(1), "x");
    ops::copy_var_update_(x, ops::repeat(main, body, kMessageIterations, {x})[0]);
    const DeviceChoice device = cpu_device({.threads = threads});
    // One fused kernel on one device could not be compared with two on two devices.
    session_ = std::make_unique<Session>(
        ir_, SessionOptions{.device = device,
                            .more_devices = std::vector(static_cast<size_t>(devices) - 1, device),
                            .disable = {"fuse"}});
    binding_ = session_->bind({}, {});
  }

  double seconds() { return time_steps(*session_, binding_, kMessageRuns).median_seconds; }

 private:
  Ir ir_;
  std::unique_ptr<Session> session_;
  Binding binding_;
};

// The time of two devices beyond that of one. The limit is a fixed time and two copies.
Case message(Machine& machine, int64_t bytes, int threads) {
  return {
      .group = "message",
      .name = bytes < 1 << 20 ? fmt::format("of {} KiB", bytes >> 10)
                              : fmt::format("of {} MiB", bytes >> 20),
      .threads = threads,
      .unit = Unit::kMicroseconds,
      .goals = {{Goal::Of::kPart, 1}},
      .start = [&machine, bytes, threads]() -> std::function<Round()> {
        struct Memories {
          Memory from, to;
        };
        return [&machine, bytes, threads, one = std::make_shared<MessageLoop>(bytes, 1, threads),
                two = std::make_shared<MessageLoop>(bytes, 2, threads),
                memory = std::make_shared<Memories>(Memories{Memory(bytes), Memory(bytes)})] {
          const double more = two->seconds() - one->seconds();
          const double copy = machine.copy_seconds(CopyWith::kMemcpy, memory->from, memory->to,
                                                   bytes, 1, kMessageSeconds);
          return Round{std::max(more / (2 * kMessageIterations), 1e-9), kFixedSeconds + 2 * copy};
        };
      }};
}

}  // namespace

// Messages between devices of a process.
std::vector<Case> message_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const int threads : {1, 2}) {
    for (const int64_t bytes : {int64_t{1} << 10, int64_t{64} << 10, int64_t{1} << 20})
      cases.push_back(message(machine, bytes, threads));
  }
  return cases;
}

}  // namespace sluice::bench
