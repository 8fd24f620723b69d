// Tests the values and ops that plans name, which proofs about bytes do not cover. A plan, written
// as text and parsed again, must compute the interpreter's results.

#include "value_program.h"

#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "random_graph.h"
#include "random_graph_run.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/interp/run_op.h"
#include "sluice/models/model.h"
#include "sluice/ops/op.h"
#include "small_programs.h"

namespace sluice::property {
namespace {

using test::Activations;
using test::Layers;
using test::MlpProgram;

RandomProgram mlp(const test::MlpOptions& options) {
  return {.ir = MlpProgram(options).ir, .runs = {"train", "train", "train", "eval"}};
}

// Trains and evaluates a model on its generated samples.
RandomProgram training(const models::Model& model, const models::Sizes& sizes,
                       const nn::Optimizer& optimizer) {
  RandomProgram program{.ir = Ir(), .runs = {"train", "train", "eval"}};
  const train::Training t = train::build_training(program.ir, model.build(sizes), optimizer, {});
  const auto add = [&](const std::vector<H2dStream>& fields, int64_t samples) {
    data::BatchLoader loader(model.data->generate(samples, 1, sizes).dataset, {.batch = samples});
    const data::Element& batch = *loader.next();
    for (const H2dStream& s : fields) {
      const std::string name = s.name.starts_with("eval_") ? s.name.substr(5) : s.name;
      program.inputs.emplace(s.id, batch[name].reshaped(s.spec.shape));
    }
  };
  add(t.fields, sizes.micro_batch);
  add(t.eval_fields, sizes.eval_batch);
  return program;
}

/// Describes the fault of the program's plan; empty without one.
std::string judge_values(const RandomProgram& program, int devices,
                         const std::vector<std::string>& disable = {}) {
  try {
    Compiled plan = compiled(program.ir, devices, disable);
    const std::string text = exe::to_text(plan.executable);
    plan.executable = exe::parse_text(text, "plan");
    return bit_difference(interpreted(program, Remote::kShown), by_values(program, plan));
  } catch (const std::exception& e) {
    return e.what();
  }
}

TEST(ValueProgram, OfRandomGraphsEqualsTheInterpreter) {
  const std::vector<std::string> disabled[] = {
      {}, {"inline"}, {"fuse", "aliasing"}, {"inline", "dead-code", "fuse", "layouts", "aliasing"}};
  Census all;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RandomProgram program = random_program({seed, {}});
    all += program.census;
    ASSERT_EQ(judge_values(program, 1, disabled[seed % 4]), "") << "seed " << seed;
  }
  EXPECT_GT(all.calls, 100);
  EXPECT_GT(all.repeats, 100);
  EXPECT_GT(all.conditionals, 100);
  EXPECT_GT(all.gradients, 100);
  EXPECT_GT(all.updates, 100);
  EXPECT_GT(all.remote, 100);
  EXPECT_GT(all.random_ops, 20);
}

TEST(ValueProgram, OfTwoDevicesEqualsTheInterpreter) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    ASSERT_EQ(judge_values(random_program({seed, {}, 2}), 2), "") << "seed " << seed;
  const std::vector<std::string> runs(3, "main");
  EXPECT_EQ(judge_values({.ir = two_device_program(), .runs = runs}, 2), "");
  EXPECT_EQ(judge_values({.ir = control_flow_program(), .runs = runs}, 2), "");
  EXPECT_EQ(judge_values({.ir = two_device_loop_program(), .runs = runs}, 2), "");
}

/// The initial value of a variable on a replica.
HostTensor first_value(const exe::VariablePlan& plan, const VariableInfo& info, int replica) {
  const HostTensor whole = info.initializer.evaluate(host_spec(plan.spec, info));
  const HostPart part = host_part(plan.spec, info, replica);
  HostTensor own(plan.spec);
  const auto from = whole.bytes().begin() + part.begin * size_of(plan.spec.dtype);
  std::copy(from, from + part.count * size_of(plan.spec.dtype), own.bytes().begin());
  return own;
}

TEST(ValueProgram, OfReplicasEqualsTheInterpreter) {
  const Ir ir = data_parallel_program(4);
  Compiled plan = compiled(ir, 1, {});
  const exe::Executable exe = exe::parse_text(exe::to_text(plan.executable), "plan");
  EXPECT_EQ(exe, plan.executable);
  std::vector<HostTensor> none;
  for (const exe::VariablePlan& v : exe.variables) none.emplace_back(v.spec);
  ValueProgram values(exe, none);
  for (size_t v = 0; v < none.size(); ++v) {
    for (int r = 0; r < 4; ++r) {
      values.set_variable(
          static_cast<int32_t>(v), r,
          first_value(exe.variables[exe::VariableId(v)], *plan.variables[exe::VariableId(v)], r));
    }
  }
  std::vector<HostTensor> entries;
  for (uint32_t k = 0; k < 4; ++k)
    entries.push_back(Initializer::normal(0, 1).keyed({9, k}).evaluate(f32_spec({4, 6, 5})));
  const auto stream = [&]<typename S>(S, int32_t id) {
    return S{ir.id(), id, ir.stream(id).name, ir.stream(id).spec};
  };
  Interpreter interpreter(ir);
  for (int run = 0; run < 2; ++run) {
    const Collected want = interpreter.run({{stream(H2dStream(), 0), HostTensor::stack(entries)}});
    const StreamEntries got = values.run("main", {{0, entries}});
    EXPECT_TRUE(got.at(1).at(0).same_bits(want[stream(D2hStream(), 1)])) << run;
  }
}

TEST(ValueProgram, OfNetworksEqualsTheInterpreter) {
  for (const Layers style : {Layers::kInlined, Layers::kOutlined}) {
    for (const Activations kept : {Activations::kKept, Activations::kRecomputed}) {
      EXPECT_EQ(judge_values(mlp({.style = style, .activations = kept}), 1), "");
    }
  }
  using nn::Optimizer;
  const models::Sizes sizes{
      .micro_batch = 4, .eval_batch = 4, .layers = 3, .width = 32, .dropout = 0.25};
  for (const Optimizer& optimizer :
       {Optimizer::sgd(), Optimizer::sgd({.momentum = 0.9}),
        Optimizer::sgd({.momentum = 0.9, .dampening = 0.5}), Optimizer::rmsprop(),
        Optimizer::adam(), Optimizer::adam_f16(), Optimizer::adamax(), Optimizer::lamb()}) {
    EXPECT_EQ(judge_values(training(models::find_model("mnist"), sizes, optimizer), 1), "");
  }
  for (const models::Model& model : models::all_models())
    EXPECT_EQ(judge_values(training(model, model.test_sizes, Optimizer::adam()), 1), "")
        << model.name;
  models::Sizes llama = models::find_model("gpt").test_sizes;
  llama.arch = models::Arch::kLlama;
  EXPECT_EQ(judge_values(training(models::find_model("gpt"), llama, Optimizer::adam()), 1), "");
}

// --- Hand-written plans, with features that compiled plans do not have yet.

StreamEntries arrays(int32_t stream, int count) {
  StreamEntries entries;
  for (int k = 0; k < count; ++k) {
    HostTensor t(f32_spec({16}));
    for (size_t i = 0; i < 16; ++i) t.as<float>()[i] = static_cast<float>(i) - 4.5f * (k + 1);
    entries[stream].push_back(std::move(t));
  }
  return entries;
}

HostTensor neg(const HostTensor& t) {
  return run_op(*ops::find_op("Neg"), {}, {t}, Precision::kFloat)[0];
}

TEST(ValueProgram, SendsMessagesInLoops) {
  const std::string text = exe::plans::two_devices();
  const StreamEntries in = arrays(0, 5);
  const StreamEntries out = ValueProgram(exe::plans::plan(text), {}).run("run", in);
  for (size_t k = 0; k < 5; ++k) EXPECT_TRUE(out.at(1)[k].same_bits(neg(in.at(0)[k]))) << k;

  ValueProgram stuck(exe::plans::plan(exe::plans::replaced(text, "receive 0 message p0",
                                                           "receive 0 message (p0+1)")),
                     {});
  const std::string error = test::error_of(ErrorKind::kUsage, [&] { stuck.run("run", in); });
  EXPECT_NE(error.find("message 5 is never sent"), std::string::npos) << error;
}

TEST(ValueProgram, MovesRemoteEntriesOnQueues) {
  const std::string text = exe::plans::overlapped_loop();
  const std::vector<HostTensor> acts = arrays(0, 6)[0];
  const auto run = [&](const std::string& plan) {
    ValueProgram values(exe::plans::plan(plan), {});
    for (int k = 0; k < 6; ++k) values.remote(0, k) = acts[static_cast<size_t>(k)];
    values.run("run", {});
    int right = 0;
    for (int k = 0; k < 6; ++k)
      right += values.remote(1, k).same_bits(neg(acts[static_cast<size_t>(k)]));
    return right;
  };
  EXPECT_EQ(run(text), 6);
  EXPECT_EQ(run(exe::plans::replaced(text, "entry (p0+1)", "entry p0")), 1);
  EXPECT_EQ(run(exe::plans::replaced(text, "      carry 0:1\n", "")), 2);
  const std::string early = exe::plans::replaced(text, "  1 wait queue 1 token 0\n  2 loop",
                                                 "  1 wait queue 1 token 7\n  2 loop");
  EXPECT_NE(test::error_of(ErrorKind::kUsage, [&] { run(early); }).find("was not made"),
            std::string::npos);
}

TEST(ValueProgram, RotatesCarriedValues) {
  const StreamEntries in = arrays(0, 2);
  const auto run = [&](int trips) {
    const std::string text = exe::plans::replaced(exe::plans::rotating_ring(), "trips 1000000",
                                                  fmt::format("trips {}", trips));
    return ValueProgram(exe::plans::plan(text), {}).run("run", in).at(1);
  };
  for (const int trips : {1, 2, 7}) {
    double old = in.at(0)[0].as<float>()[3], young = in.at(0)[1].as<float>()[3];
    for (int k = 0; k < trips; ++k) old = std::exchange(young, young + old);
    const std::vector<HostTensor> out = run(trips);
    EXPECT_EQ(out[0].as<float>()[3], young) << trips;
    EXPECT_EQ(out[1].as<float>()[3], old) << trips;
  }
}

TEST(ValueProgram, UpdatesWhatIsGivenByReference) {
  const StreamEntries in = arrays(0, 1);
  const HostTensor& x = in.at(0)[0];
  ValueProgram values(exe::plans::plan(exe::plans::by_reference()), {x, neg(x)});
  EXPECT_TRUE(values.run("run", in).at(1)[0].same_bits(x));
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(values.variable(0).as<float>()[i], 2 * x.as<float>()[i]);
    EXPECT_EQ(values.variable(1).as<float>()[i], 0);
  }
}

}  // namespace
}  // namespace sluice::property
