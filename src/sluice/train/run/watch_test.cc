// Options::watch: gradients and intermediate tensors as arrays, their numbers, and the bits of the
// calls that return them and of those that do not.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/executable.h"
#include "sluice/exe/visit_step.h"
#include "sluice/report/plan_report.h"
#include "sluice/train/cut/test_ways.h"
#include "sluice/train/fit.h"
#include "sluice/train/model.h"

namespace sluice::train {
namespace {

using Arrays = std::map<std::string, std::vector<double>>;

Arrays arrays_of(const data::Element& element) {
  Arrays all;
  for (size_t i = 0; i < element.arrays.size(); ++i)
    all.emplace(at(element.names, i), element.arrays[i].to_doubles());
  return all;
}

std::set<std::string> names_of(const data::Element& element) {
  return {element.names.begin(), element.names.end()};
}

// Equal blocks, whose weights are rows of remote variables in phases, a tied weight, a running
// variable and two values.
Network watched_network() {
  return network([](nn::Builder& b, const Inputs& in) {
    Tensor x, shared;
    {
      const nn::Block block(b, "In");
      shared = b.add_variable_input("shared", nn::normal(0, 0.4), {kWidth, kWidth});
      x = b.watch("first", b.inlined("norm", nn::BatchNorm(), ops::matmul(in["x"], shared)));
    }
    for (const char* name : {"A", "B", "C", "D"}) {
      const nn::Block block(b, name);
      x = ops::gelu(linear(b, name, x));
    }
    const nn::Block block(b, "Last");
    x = b.watch("last", ops::matmul(ops::relu(drop(b, "drop", x)), shared));
    return results(in, linear(b, "Last", x, 3) * in["scale"]);
  });
}

// The samples of a call.
data::Element call_samples(int64_t n, int64_t call) {
  HostTensor x(f32_spec({n, kWidth})), labels(i32_spec({n})), scale(f32_spec({n, 1}));
  float next = static_cast<float>(100 * call);
  for (float& v : x.as<float>()) v = std::sin(next += 1);
  for (float& v : scale.as<float>()) v = std::sin(next += 1);
  for (int32_t& v : labels.as<int32_t>()) v = static_cast<int32_t>(next += 1) % 3;
  return {{"x", std::move(x)}, {"labels", std::move(labels)}, {"scale", std::move(scale)}};
}

SessionOptions session_with(size_t more_devices = 0) {
  return {.device = cpu_device({.threads = 1}),
          .more_devices = std::vector(more_devices, cpu_device()),
          .remote = "host"};
}

struct WatchedRun {
  std::vector<double> losses = {};
  Watched watched = {};
  std::string digest = {};
};

// Trains for three calls.
WatchedRun run_watched(const Network& n, Options options, const nn::Optimizer& optimizer) {
  options.output = Output::all();
  TrainingModel model = training_model(n, options, optimizer);
  WatchedRun result;
  const int64_t samples = model.call_size().samples();
  for (int64_t call = 0; call < 3; ++call) {
    for (const double loss : model(call_samples(samples, call))["loss"].to_doubles())
      result.losses.push_back(loss);
  }
  EXPECT_EQ(model.session().planned_bytes(), model.session().measured_bytes());
  result.watched = model.watched();
  Digest digest;
  model.session().each_variable([&](const std::string& path, const HostTensor& value) {
    digest.add(std::as_bytes(std::span(path)));
    digest.add(value.bytes());
  });
  result.digest = digest.hex();
  return result;
}

// Loss w·x with the values w and x.
Network product_network() {
  return {Written([](nn::Builder& b, const Inputs& in) {
            const Tensor w = b.add_variable_input("w", nn::constant(0.5), {2});
            const Tensor product = b.watch("product", w * in["x"]);
            const Tensor loss = ops::sum(product);
            return Results{.losses = {{.value = loss}}, .predictions = {{"loss_of_eval", loss}}};
          }),
          {{.name = "x", .spec = f32_spec({2})}}};
}

// Each micro-batch of each replica has an x of its own. The gradient of w is their mean.
TEST(Watch, ReturnsReducedGradientsOfEachUpdateAndValuesOfEachMicroBatch) {
  const Options options{.accumulate = 2,
                        .device_iterations = 2,
                        .replicas = 2,
                        .learning_rate = 0.25,
                        .gradient_hook = [](const Tensor& g, const Tensor&) { return g * 2.0; },
                        .max_grad_norm = 0.5,
                        .watch = {.gradients = {"w"}, .values = {"*"}},
                        .session = session_with()};
  TrainingModel model = training_model(product_network(), options);
  EXPECT_EQ(model.watched().calls, 0);
  HostTensor x(f32_spec({2 * 2 * 2 * 2}));
  float next = 0;
  for (float& v : x.as<float>()) v = next += 1;
  model({{"x", x}});
  const Watched watched = model.watched();
  EXPECT_EQ(watched.calls, 1);
  EXPECT_EQ(watched.updates, 2);
  EXPECT_EQ(watched.gradients.names, (std::vector<std::string>{"w"}));
  EXPECT_EQ(watched.gradients["w"].shape(), Shape({2, 2}));
  // Twice the means of (1, 3, 5, 7), (2, 4, 6, 8), (9, 11, 13, 15) and (10, 12, 14, 16).
  EXPECT_EQ(watched.gradients["w"].to_doubles(), (std::vector<double>{8, 10, 24, 26}));
  EXPECT_EQ(watched.values["product"].shape(), Shape({16}));
  const std::vector<double> products = watched.values["product"].to_doubles();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(products[i], 0.5 * static_cast<double>(i + 1));
  EXPECT_NE(products[8], 4.5);  // The second update has another weight.
}

TEST(Watch, HasTheBitsOfTheRunWithoutItInEveryStrategy) {
  const nn::Optimizer adam = nn::Optimizer::adam();
  size_t draw = 0;
  for (const auto& [accumulate, replicas, iterations, clip] :
       {std::tuple{3, 2, 1, true}, {1, 1, 2, false}, {3, 1, 2, true}}) {
    Options base{.accumulate = accumulate,
                 .device_iterations = iterations,
                 .replicas = replicas,
                 .max_grad_norm = clip ? std::optional(0.05) : std::nullopt,
                 .session = session_with()};
    const WatchedRun without = run_watched(watched_network(), base, adam);
    EXPECT_EQ(without.watched.calls, 0);
    Arrays gradients, values;
    for (const Way& way : share(ways(Ways::kSome, 6), 3, draw++)) {
      Options options = with_reductions_of(way.step, base);
      options.device_iterations = iterations;
      options.replicas = replicas;
      options.session = session_with(way.more_devices);
      options.watch = {.gradients = {"*.weight", "shared"}, .values = {"first", "C", "last"}};
      options.watch.every = draw == 2 ? 2 : 1;
      if (draw == 3) options.watch.values = {};
      const WatchedRun run = run_watched(watched_network(), options, adam);
      EXPECT_EQ(run.digest, without.digest) << way.name;
      EXPECT_EQ(run.losses, without.losses) << way.name;
      EXPECT_EQ(run.watched.calls, draw == 2 ? 2 : 3) << way.name;
      if (gradients.empty()) {
        gradients = arrays_of(run.watched.gradients);
        values = arrays_of(run.watched.values);
        EXPECT_EQ(names_of(run.watched.gradients),
                  (std::set<std::string>{"A.weight", "B.weight", "C.weight", "D.weight",
                                         "Last.weight", "norm.weight", "shared"}));
        EXPECT_EQ(values.size(), draw == 3 ? 0u : 3u);
      }
      EXPECT_EQ(arrays_of(run.watched.gradients), gradients) << way.name;
      EXPECT_EQ(arrays_of(run.watched.values), values) << way.name;
    }
  }
}

// Gradient descent changes a weight by minus the rate times the gradient.
TEST(Watch, ReturnsTheGradientsThatTheUpdateReads) {
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    Options options{.strategy = strategy,
                    .accumulate = 2,
                    .learning_rate = 0.5,
                    .watch = {.gradients = {"*"}},
                    .session = session_with()};
    if (strategy.index() != Strategy(resident()).index())
      options.locations = TensorLocations::phased();
    TrainingModel model = training_model(watched_network(), options, nn::Optimizer::sgd());
    const int64_t samples = model.call_size().samples();
    std::map<std::string, HostTensor> before;
    for (int64_t call = 0; call < 2; ++call) {
      for (const std::string& path : model.programs().variables.keys_flat())
        before[path] = model.weight(path);
      model(call_samples(samples, call));
    }
    const Watched watched = model.watched();
    EXPECT_EQ(watched.gradients.names.size(), 13u);
    for (size_t i = 0; i < watched.gradients.names.size(); ++i) {
      const std::string& path = watched.gradients.names[i];
      const std::vector<double> gradient = watched.gradients.arrays[i].to_doubles();
      const std::vector<double> old = before[path].to_doubles();
      const std::vector<double> now = model.weight(path).to_doubles();
      ASSERT_EQ(gradient.size(), now.size());
      double largest = 0;
      for (size_t k = 0; k < now.size(); ++k) {
        EXPECT_NEAR((old[k] - now[k]) / 0.5, gradient[k], 1e-6) << path;
        largest = std::max(largest, std::abs(gradient[k]));
      }
      EXPECT_GT(largest, 0) << path;
    }
  }
}

// The plan of a program: its transfers, and the steps and the frames of its functions.
std::multiset<std::string> program_plan(const Options& options, const std::string& program) {
  TrainingModel model = training_model(watched_network(), options, nn::Optimizer::adam());
  model.compile();
  const exe::Executable& executable = model.session().executable();
  const report::PlanReport plan = report::plan_report(executable);
  std::multiset<std::string> lines;
  for (const report::TransferReport& t : plan.transfers) {
    if (t.program == program)
      lines.insert(fmt::format("{} {} {} {} {}", t.memory, t.loads, t.loaded_bytes, t.stores,
                               t.stored_bytes));
  }
  std::set<exe::FunctionId> functions;
  const std::function<void(exe::FunctionId)> add = [&](exe::FunctionId id) {
    if (!functions.insert(id).second) return;
    const report::FunctionReport& f = plan.functions[id];
    lines.insert(fmt::format("{} steps, {} bytes, {} program bytes", f.steps, f.frame_bytes,
                             f.program_bytes));
    for (const exe::Step& step : executable.functions[id].steps)
      exe::for_each_call(step, [&](const exe::Call& call) { add(call.function); });
  };
  for (const exe::Start& start : executable.program(program).starts) add(start.function);
  return lines;
}

TEST(Watch, LeavesTheProgramOfOtherCallsUnchanged) {
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    for (const int64_t accumulate : {1, 2}) {
      for (const Location weights : {Location::kDevice, Location::kRemote}) {
        Options options{.strategy = strategy,
                        .accumulate = accumulate,
                        .locations = {.optimizer = weights, .weights = weights},
                        .session = session_with()};
        const auto plain = program_plan(options, "train");
        EXPECT_GT(plain.size(), 1u);
        options.watch.gradients = {"*"};
        EXPECT_EQ(program_plan(options, "train"), plain) << accumulate;
        EXPECT_NE(program_plan(options, "watch"), plain) << accumulate;
        if (strategy.index() != Strategy(resident()).index()) continue;  // Loops over blocks.
        options.watch.values = {"*"};
        EXPECT_EQ(program_plan(options, "train"), plain) << accumulate;
      }
    }
  }
}

// Calls count from the begin of the run, also of one that continues.
TEST(Watch, CountsTheCallsOfTheRun) {
  const Options options{.watch = {.gradients = {"w"}, .every = 3}, .session = session_with()};
  TrainingModel model = training_model(product_network(), options);
  std::vector<int64_t> calls;
  const auto call = [&](TrainingModel& m) {
    m({{"x", HostTensor(f32_spec({2}))}});
    calls.push_back(m.watched().calls);
  };
  for (int i = 0; i < 7; ++i) call(model);
  EXPECT_EQ(calls, (std::vector<int64_t>{0, 0, 3, 3, 3, 6, 6}));
  TrainingModel resumed = training_model(product_network(), options);
  resumed.continue_run(model.run());
  calls.clear();
  for (int i = 0; i < 3; ++i) call(resumed);
  EXPECT_EQ(calls, (std::vector<int64_t>{0, 9, 9}));
}

// fit() reads a feed of its own; both programs read it.
TEST(Watch, ReadsTheFeedOfOtherCalls) {
  const auto losses = [](int prefetch, Watch watch) {
    const Options options{.prefetch = prefetch, .watch = watch, .session = session_with()};
    TrainingModel model = training_model(watched_network(), options);
    int64_t sum = 0;
    const auto after_call = [&](const CallReport&) {
      sum += model.watched().calls;
      return true;
    };
    const data::Element all = call_samples(10 * kBatch, 0);
    const FitResult result = fit(
        model,
        data::from_tensors({{"x", all["x"]}, {"labels", all["labels"]}, {"scale", all["scale"]}}),
        {.epochs = 2, .after_call = after_call});
    EXPECT_EQ(sum, watch.empty() ? 0 : 3 * (3 + 6 + 9 + 12 + 15 + 18));
    return result.losses;
  };
  const std::vector<float> want = losses(0, {});
  EXPECT_EQ(losses(2, {.values = {"last"}, .every = 3}), want);
}

// A value may have the name of a result of evaluation, of a loss, or of a field of evaluation.
TEST(Watch, KeepsTheNamesOfResults) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    const Tensor x = b.watch("eval_x", ops::relu(in["x"]));
    const Tensor logits = b.watch("logits", linear(b, "A", x, 3));
    if (in.mode() == nn::RunMode::kEvaluate) return Results{.predictions = {{"logits", logits}}};
    Loss loss = cross_entropy(logits, in["labels"]);
    loss.value = b.watch("loss", ops::identity(loss.value));
    loss.gradients = {{logits, loss.gradients[0].second}};
    return Results{.losses = {loss}};
  });
  const Options options{.watch = {.values = {"*"}}, .session = session_with()};
  TrainingModel model = training_model(n, options);
  InferenceModel test = inference_model(model);
  const data::Element samples = call_samples(kBatch, 0);
  const double loss = model(samples)["loss"].to_doubles()[0];
  EXPECT_EQ(model.watched().values["loss"].to_doubles()[0], loss);
  EXPECT_EQ(names_of(model.watched().values),
            (std::set<std::string>{"A", "eval_x", "logits", "loss"}));
  HostTensor two(f32_spec({2, kWidth}));
  EXPECT_EQ(names_of(test({{"x", two}})), (std::set<std::string>{"logits"}));
}

// A pattern with `*` leaves out results of submodules that are overwritten or have one name.
TEST(Watch, LeavesOutResultsThatCannotBeWatched) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    Tensor x = linear(b, "A", in["x"]);
    ops::relu_(x);
    for (int i = 0; i < 2; ++i) x = b.inlined("twice", nn::Dropout(0.25), x);
    return results(in, linear(b, "B", x, 3));
  });
  const auto watched = [&](std::vector<std::string> values) {
    const Options options{.watch = {.values = std::move(values)}, .session = session_with()};
    TrainingModel model = training_model(n, options);
    model(call_samples(kBatch, 0));
    return names_of(model.watched().values);
  };
  EXPECT_EQ(watched({"*"}), (std::set<std::string>{"B", "twice"}));
  expect_refused(
      {{"overwritten", [&] { watched({"A"}); }, "watch.values: 'A' must not be overwritten later"},
       {"two", [&] { watched({"twice"}); },
        "watch.values: values must have different names, got 'twice' twice"}});
}

TEST(Watch, RefusesWhatDoesNotExist) {
  const auto build = [](Watch watch, std::vector<std::string> freeze = {}) {
    return [=] {
      build_training(Ir(), watched_network(), nn::Optimizer::sgd(),
                     {.freeze = freeze, .watch = watch});
    };
  };
  const auto with = [](const Written::Build& f) {
    return [f] {
      build_training(Ir(), network(f), nn::Optimizer::sgd(), {.watch = {.values = {"*"}}});
    };
  };
  expect_refused({
      {"no weight", build({.gradients = {"E.*"}}),
       "watch.gradients: 'E.*' must match the path of a trained weight, got none; trained weights "
       "are A.bias, A.weight, "},
      {"frozen", build({.gradients = {"A.*"}}, {"A.*"}),
       "watch.gradients: 'A.*' must match the path of a trained weight, got none"},
      {"no value", build({.values = {"middle"}}),
       "watch.values: 'middle' must match a value of the network, got none; values are norm, "
       "first, "
       "A, B, C, D, drop, last, Last"},
      {"every alone", build({.every = 2}),
       "training: watch.every requires watch.gradients or values (it is none of them)"},
      {"every 0", build({.values = {"last"}, .every = 0}),
       "training: watch.every: must be an integer from 1 to "},
      {"inference",
       [] { build_inference(Ir(), watched_network(), {.watch = {.values = {"last"}}}); },
       "inference: watch.values requires an optimizer; leave it out"},
      {"twice", with([](nn::Builder& b, const Inputs& in) {
         const Tensor x = b.watch("x", ops::relu(in["x"]));
         b.watch("x", x);
         return results(in, linear(b, "B", x, 3));
       }),
       "watch.values: values must have different names, got 'x' twice"},
      {"a field", with([](nn::Builder& b, const Inputs& in) {
         return results(in, linear(b, "B", b.watch("x", in["x"]), 3));
       }),
       "watch.values: 'x' must be a tensor that build() computed, got 'x'"},
      {"overwritten", with([](nn::Builder& b, const Inputs& in) {
         const Tensor x = b.watch("x", ops::relu(in["x"]));
         ops::add_(x, 1.0);
         return results(in, linear(b, "B", x, 3));
       }),
       "watch.values: 'x' must not be overwritten later, but '"},
      {"no name", with([](nn::Builder& b, const Inputs& in) {
         return results(in, linear(b, "B", b.watch("", in["x"]), 3));
       }),
       "watch: the name of a value must not be empty"},
      {"no tensor", with([](nn::Builder& b, const Inputs&) {
         b.watch("x", Tensor());
         return Results{};
       }),
       "watch: 'x' must be a tensor of graph "},
  });
}

}  // namespace
}  // namespace sluice::train
