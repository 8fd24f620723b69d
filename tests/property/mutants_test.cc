#include "mutants.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "dry_run.h"
#include "mutate.h"
#include "sluice/cpu/cpu.h"
#include "sluice/exe/test_plans.h"
#include "sluice/session.h"
#include "tools/mnist_model.h"

namespace sluice::property {
namespace {

using exe::plans::plan;

std::vector<exe::Executable> hand_written() {
  return {plan(exe::plans::train_step()),
          plan(exe::plans::two_devices()),
          plan(exe::plans::overlapped_loop()),
          plan(exe::plans::replaced(exe::plans::carried_ring(), "1000001", "7")),
          plan(exe::plans::branch()),
          plan(exe::plans::by_reference())};
}

tool::ToolOptions small(tool::ToolOptions options) {
  options.micro_batch = 2;
  options.eval_batch = 4;
  options.layers = 3;
  options.width = 24;
  return options;
}

exe::Executable compiled_mlp(const tool::ToolOptions& options) {
  const tool::MnistPrograms programs = tool::build_mnist(options);
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(programs.ir,
                 {.devices = {{device.target, -1, device.threads}}, .disable = options.disable})
      .executable;
}

/// A loop that reads a stream and updates a variable, a conditional, entries of a remote buffer,
/// and a second device.
exe::Executable compiled_control_flow() {
  Ir ir;
  const TensorSpec spec{{4, 64}, f32, {}};
  Graph& main = ir.main_graph();
  const H2dStream in = ir.h2d_stream(spec, "in");
  const Tensor sum = main.variable(HostTensor(spec), "sum");
  Graph& turn = ir.create_empty_graph("turn");
  const Tensor state = turn.input(spec, "state");
  const Tensor total = turn.input(spec, "total", Pass::kByReference);
  const Tensor x = turn.host_load(in);
  const Tensor next = ops::tanh(state + x);
  ops::scaled_add_(total, next);
  turn.add_output(next);
  const Tensor first = main.host_load(in);
  const Tensor last = ops::repeat(main, turn, 5, {first, sum})[0];
  const RemoteBuffer shelf = ir.remote_buffer(spec, 3);
  main.remote_store(shelf, 1, last);
  const auto arm = [&](const char* name, bool negate) -> Graph& {
    return ir.create_graph(
        name, [&](Graph&, Tensor t) { return negate ? ops::neg(ops::exp(t)) : ops::exp(t); }, spec);
  };
  const Tensor flag = main.host_load(ir.h2d_stream({{}, boolean, {}}, "flag"));
  const Tensor chosen =
      ops::conditional(main, flag, arm("then", true), arm("else", false), {last}, {first})[0];
  main.set_device(1);
  const Tensor far = ops::sigmoid(chosen);
  main.set_device(0);
  const Tensor back = main.remote_load(shelf, 1) + far;
  main.host_store(back, "out");
  const DeviceChoice device = cpu_device({.threads = 2});
  const DeviceSpec one{device.target, -1, device.threads};
  return compile(ir, {.devices = {one, one}}).executable;
}

void print(const MutantCount& count) {
  for (const auto& [kind, n] : count.defects_by_kind) std::printf("%4d  %s\n", n, kind.c_str());
  std::printf("%d mutants, %d harmless, %d defects, %d of them shown by data\n", count.made,
              count.harmless, count.defects, count.by_data);
}

TEST(Mutants, OfCompiledNetworksAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_mlp(small({.optimizer = "sgd"})), 1, 20, count);
  expect_mutants_refused(compiled_mlp(small({.dropout = 0.5, .optimizer = "adam"})), 2, 20, count);
  expect_mutants_refused(
      compiled_mlp(small({.optimizer = "momentum", .disable = {"aliasing", "inline"}})), 3, 20,
      count);
  print(count);
  EXPECT_GE(count.defects, 200);
  EXPECT_GE(count.defects_by_kind.size(), 10u);
}

TEST(Mutants, OfCompiledControlFlowAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_control_flow(), 1, 20, count);
  print(count);
  for (const char* kind : {"message swapped", "rotation off by one", "trips off by one",
                           "carry dropped", "remote entry beyond", "sync dropped"}) {
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

TEST(Mutants, OfBarriersAreRefused) {
  MutantCount count;
  tool::ToolOptions options;
  options.micro_batch = 8;
  options.eval_batch = 16;
  options.layers = 3;
  options.width = 128;
  expect_mutants_refused(compiled_mlp(options), 1, 100, count, {"sync dropped"});
  print(count);
  EXPECT_GE(count.defects, 10);
}

TEST(Mutants, OfHandWrittenPlansAreRefused) {
  MutantCount count;
  for (const exe::Executable& e : hand_written()) expect_mutants_refused(e, 1, 40, count);
  print(count);
  EXPECT_EQ(count.defects_by_kind.size(), mutation_kinds().size());
  EXPECT_GE(count.defects, 200);
}

TEST(DryRun, ShowsWhatDamageDoes) {
  const exe::Executable right = plan(exe::plans::train_step());
  EXPECT_EQ(difference(right, right), "");
  const auto after = [&](std::string_view from, std::string_view to) {
    return difference(right, plan(exe::plans::replaced(exe::plans::train_step(), from, to)));
  };
  EXPECT_EQ(after("2 sync kernel", "2 kernel"), "stream 1 entry 0 differs");
  EXPECT_EQ(after("write %6 at arena0+0", "write %6 at frame+0"), "variable fc.weight differs");
  EXPECT_EQ(after("bytes 192 stride 0", "bytes 128 stride 0"), "reaches beyond arena 'frames'");
  EXPECT_EQ(after("3 kernel", "3 sync kernel"), "");
}

}  // namespace
}  // namespace sluice::property
