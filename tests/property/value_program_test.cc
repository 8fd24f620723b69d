// Tests the values and ops that plans name, which proofs about bytes do not cover. A plan, written
// as text and parsed again, must compute the interpreter's results.

#include "value_program.h"

#include <gtest/gtest.h>

#include "../support/mlp.h"
#include "random_graph.h"
#include "random_graph_run.h"
#include "sluice/compiler/compile.h"
#include "sluice/data/loader.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/test_plans.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/interp/run_op.h"
#include "sluice/models/model.h"
#include "sluice/ops/op.h"
#include "sluice/session/session.h"
#include "sluice/train/step_arrays.h"
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
}

HostTensor entries_of(const HostTensors& results, const D2hStream& s) { return results[s]; }
HostTensor entries_of(const Collected& results, const D2hStream& s) {
  const std::vector<HostTensor>& entries = results.entries(s);
  return entries.size() == 1 ? entries[0] : HostTensor::stack(entries);
}

// Runs the values of a plan with the arguments of Session::run.
class PlanValues {
 public:
  explicit PlanValues(const Ir& ir) : plan_(compiled(ir, 1)), values_(plan_.executable, first()) {}

  StreamEntries run(const std::vector<StreamInput>& inputs, const std::string& program) {
    StreamEntries entries;
    for (const auto& [stream, array] : inputs) {
      const int64_t bytes = stream.spec.bytes();
      for (int64_t at = 0; at < array.spec.bytes(); at += bytes) {
        HostTensor entry(stream.spec);
        std::copy_n(array.data + at, bytes, entry.bytes().begin());
        entries[stream.id].push_back(std::move(entry));
      }
    }
    return values_.run(program, entries);
  }
  HostTensor read(const Tensor& variable) {
    const VariableInfo* const info = variable.graph().info(variable).variable.get();
    return values_.variable(plan_.variable_index.at(info));
  }

 private:
  std::vector<HostTensor> first() const {
    std::vector<HostTensor> values;
    for (size_t v = 0; v < plan_.variables.size(); ++v) {
      values.push_back(plan_.variables[v]->initializer.evaluate(
          plan_.executable.variables[exe::VariableId(v)].spec));
    }
    return values;
  }

  Compiled plan_;
  ValueProgram values_;
};

HostTensor entries_of(const StreamEntries& results, const D2hStream& s) {
  const std::vector<HostTensor>& entries = results.at(s.id);
  return entries.size() == 1 ? entries[0] : HostTensor::stack(entries);
}

// Runs training steps and an evaluation of a model on generated samples.
class ModelRuns {
 public:
  ModelRuns(const models::Model& model, const models::Sizes& sizes) : model_(model), sizes_(sizes) {
    training_ = train::build_training(ir_, model.build(sizes), nn::Optimizer::adamw(),
                                      {.accumulate = kAccumulate});
  }
  const Ir& ir() const { return ir_; }

  // Returns all results, and then the variables.
  template <typename Runner>
  Outcome run(Runner& runner) const {
    Outcome outcome;
    const auto add = [&](const auto& results, const std::vector<D2hStream>& streams) {
      for (const D2hStream& s : streams) outcome.emplace_back(s.name, entries_of(results, s));
    };
    train::StepArrays arrays(training_);
    arrays.fill(samples(kAccumulate * sizes_.micro_batch));
    for (int64_t update = 0; update < 2; ++update) {
      arrays.seed(7, update);
      const auto results = runner.run(arrays.inputs(training_), "train");
      add(results, training_.losses);
      add(results, training_.predictions);
    }
    const data::Element tests = samples(sizes_.eval_batch);
    std::vector<StreamInput> inputs;
    for (size_t i = 0; i < training_.eval_fields.size(); ++i)
      inputs.emplace_back(training_.eval_fields[i], tests[i]);
    add(runner.run(inputs, "eval"), training_.eval_predictions);
    training_.variables.for_each([&](const std::string& path, const Tensor& weight) {
      outcome.emplace_back(path, runner.read(weight));
    });
    return outcome;
  }

 private:
  static constexpr int64_t kAccumulate = 2;

  data::Element samples(int64_t count) const {
    const models::SampleSet set = model_.data->generate(count, 1, sizes_);
    return *data::BatchLoader(set.dataset, {.batch = count}).next();
  }

  const models::Model& model_;
  models::Sizes sizes_;
  Ir ir_;
  train::Training training_;
};

TEST(ValueProgram, OfTransformersEqualsTheInterpreter) {
  const auto small = [](const char* name, models::Arch arch, int64_t kv_heads) {
    const models::Model& model = models::find_model(name);
    models::Sizes sizes = model.test_sizes;
    sizes.arch = arch;
    sizes.kv_heads = kv_heads;
    EXPECT_GT(sizes.dropout, 0) << name;
    return std::pair(&model, sizes);
  };
  const std::pair<const char*, std::pair<const models::Model*, models::Sizes>> cases[] = {
      {"gpt2", small("gpt", models::Arch::kGpt2, 4)},
      {"gpt2 with grouped heads", small("gpt", models::Arch::kGpt2, 2)},
      {"llama", small("gpt", models::Arch::kLlama, 4)},
      {"llama with grouped heads", small("gpt", models::Arch::kLlama, 2)},
      {"bert", small("bert", models::Arch::kGpt2, 0)},
      {"vit", small("vit", models::Arch::kGpt2, 0)}};
  for (const auto& [name, network] : cases) {
    const auto& [model, sizes] = network;
    const ModelRuns runs(*model, sizes);
    Interpreter interpreter(runs.ir());
    const Outcome want = runs.run(interpreter);
    EXPECT_FALSE(has_nonfinite(want)) << name;
    PlanValues values(runs.ir());
    EXPECT_EQ(bit_difference(want, runs.run(values)), "") << name;
    for (const int threads : {1, 3}) {
      Session session(runs.ir(), {.device = cpu_device({.threads = threads})});
      EXPECT_EQ(bit_difference(want, runs.run(session)), "") << name << ", " << threads;
    }
  }
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
