// Sessions whose devices replay in a later run what they recorded in the first one.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "../device.h"
#include "../target.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/sluice.h"

namespace sluice::opaque {
namespace {

class Recordings : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, Recordings, testing::Values(Mode::kThreads, Mode::kLazy));

// A loop of four layers that change their weights, then a branch, for which the host must read a
// value. Both arms have kernels.
struct Program {
  Program() {
    Graph& main = ir.main_graph();
    weights = main.variable(f32_spec({8, 8}), Initializer::constant(0.5), "weights");
    Graph& layer = ir.create_graph("layer", [](Graph& g) {
      const Tensor t = g.input(f32_spec({8, 8}), "t");
      const Tensor w = g.input(f32_spec({8, 8}), "w", Pass::kByReference);
      const Tensor h = ops::relu(ops::matmul(t, w) * 0.125 + 1.0);
      ops::add_(w, ops::softmax(h, -1));
      return h;
    });
    const auto arm = [&](const char* name, double scale) -> Graph& {
      return ir.create_graph(name, [&](Graph& g) {
        const Tensor t = g.input(f32_spec({8, 8}), "t");
        return ops::softmax(ops::matmul(ops::matmul(t, t), t) * scale, -1);
      });
    };
    const Tensor loaded = main.host_load(x);
    const Tensor h = ops::repeat(main, layer, 4, {loaded, weights})[0];
    const Tensor large = ops::greater(ops::sum(loaded), 0.0);
    const Tensor last = ops::conditional(main, large, arm("then", 2), arm("else", -1), {h}, {h})[0];
    main.host_store(y, last);
  }

  Ir ir;
  H2dStream x = ir.h2d_stream(f32_spec({8, 8}), "x");
  D2hStream y = ir.d2h_stream(f32_spec({8, 8}), "y");
  Tensor weights;
};

TEST_P(Recordings, OfTheFirstRunAreReplayedInLaterRunsWithTheBitsOfTheCpu) {
  const Program p;
  Session cpu(p.ir, {.device = cpu_device({.threads = 1})});
  std::atomic<int64_t> replayed{0}, launched{0};
  Options options{.mode = GetParam()};
  options.hook = [&](int, int64_t, std::string_view name) {
    replayed += name.starts_with("replayed launch");
    launched += name.starts_with("launch");
  };
  const auto device = make_device(options);
  Session session(p.ir, {.device = {make_target(), device, -1, 1}});
  const auto run = [&](float value) {
    const HostTensor in = HostTensor::of<float>({8, 8}, f32, std::vector<float>(64, value));
    EXPECT_TRUE(session.run({{p.x, in}})[p.y].same_bits(cpu.run({{p.x, in}})[p.y]));
    EXPECT_TRUE(session.read(p.weights).same_bits(cpu.read(p.weights)));
  };
  run(0.25F);
  const int64_t first = recordings(*device), commands = replayed;
  EXPECT_GE(first, 2);  // One ends at the branch, one at the end.
  EXPECT_GE(commands, 4);
  for (const float value : {0.5F, 0.125F}) run(value);
  EXPECT_EQ(recordings(*device), first);
  EXPECT_EQ(replayed, 3 * commands);
  run(-1);
  EXPECT_EQ(recordings(*device), first + 1);  // The other arm.
  run(-2);
  EXPECT_EQ(recordings(*device), first + 1);
  EXPECT_LT(launched, replayed);
}

}  // namespace
}  // namespace sluice::opaque
