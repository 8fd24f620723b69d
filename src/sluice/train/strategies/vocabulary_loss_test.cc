// Losses over a vocabulary in chunks of rows: bits, memory and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "sluice/base/checked.h"
#include "sluice/base/test_refusals.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/nn/block.h"
#include "sluice/train/cut/test_ways.h"

namespace sluice::train {
namespace {

enum class Head { kTied, kOwn };

struct LossCase {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  VocabularyLossOptions options = {};
  bool has_bias = false;
};

// The loss, the total weight if there is one, and the gradients of x and of the weight.
struct LossProgram {
  Ir ir;
  std::vector<D2hStream> results;
};

struct Operands {
  Operands(Ir& ir, const LossCase& c) {
    Graph& main = ir.main_graph();
    const auto normal = [&](const Shape& shape, uint32_t key, const char* name) {
      return main.variable(f32_spec(shape), Initializer::normal(0, 1).keyed({key, 7}), name);
    };
    x = normal({c.rows, c.width}, 1, "x");
    const Shape matrix =
        c.options.transposed ? Shape{c.vocabulary, c.width} : Shape{c.width, c.vocabulary};
    weight = normal(matrix, 2, "weight");
    std::vector<int32_t> values;
    for (int64_t i = 0; i < c.rows; ++i)
      values.push_back(static_cast<int32_t>(i * i % c.vocabulary));
    labels = main.constant(HostTensor::of<int32_t>({c.rows}, i32, values));
    options = c.options;
    if (c.has_bias) options.bias = normal({c.vocabulary}, 3, "bias");
  }
  Tensor x;
  Tensor weight;
  Tensor labels;
  VocabularyLossOptions options;
};

LossProgram loss_program(const LossCase& c) {
  LossProgram p;
  const auto [x, weight, labels, options] = Operands(p.ir, c);
  Graph& main = p.ir.main_graph();
  const bool transposed = options.transposed;
  const Loss loss = vocabulary_cross_entropy(x, weight, labels, options);
  Tensors results{loss.value};
  if (loss.total_weight.valid()) results.push_back(loss.total_weight);
  if (loss.gradients[0].first == x) {
    for (const auto& [t, gradient] : loss.gradients) results.push_back(gradient);
  } else {  // The gradient of all logits, and of the bias.
    const Tensor& g = loss.gradients[0].second;
    results.push_back(ops::matmul(g, weight, {.rhs_transposed = !transposed}));
    results.push_back(transposed ? ops::matmul(g, x, {.lhs_transposed = true})
                                 : ops::matmul(x, g, {.lhs_transposed = true}));
    if (c.has_bias) results.push_back(loss.gradients.at(1).second);
  }
  for (const Tensor& t : results) p.results.push_back(main.host_store(t, "result"));
  return p;
}

std::vector<HostTensor> values_of(const LossProgram& p, const auto& out) {
  std::vector<HostTensor> values;
  for (const D2hStream& s : p.results) values.push_back(out[s]);
  return values;
}

std::vector<HostTensor> run_program(const LossProgram& p, int threads) {
  Session session(p.ir, {.device = cpu_device({.threads = threads})});
  return values_of(p, session.run({}));
}

// The losses and classes of all rows, their loss, and the total weight if there is one.
LossProgram prediction_program(const LossCase& c) {
  LossProgram p;
  const Operands o(p.ir, c);
  const VocabularyPredictions v = vocabulary_predictions(o.x, o.weight, o.labels, o.options);
  Tensors results{v.losses, v.classes, v.loss.value};
  if (v.loss.total_weight.valid()) results.push_back(v.loss.total_weight);
  for (const Tensor& t : results) p.results.push_back(p.ir.main_graph().host_store(t, "result"));
  return p;
}

std::vector<HostTensor> run_loss(const LossCase& c, int threads) {
  return run_program(loss_program(c), threads);
}

LossCase whole(LossCase c) {
  c.options.chunk_rows = round_up(c.rows, 32);
  return c;
}

void expect_equal(const std::vector<HostTensor>& have, const std::vector<HostTensor>& want) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(have[i].same_bits(want[i])) << i;
}

TEST(VocabularyLoss, HasTheBitsOfAllLogits) {
  for (const int64_t rows : {33, 64, 160, 229}) {
    for (const int64_t vocabulary : {3, 37, 64, 301}) {
      for (const bool transposed : {false, true}) {
        for (const bool ignores : {false, true}) {
          SCOPED_TRACE(
              fmt::format("{} rows, {} tokens, {} {}", rows, vocabulary, transposed, ignores));
          LossCase c{rows,
                     19,
                     vocabulary,
                     {.transposed = transposed, .chunk_rows = 32, .weight = 0.75},
                     rows != 64};
          if (ignores) c.options.ignore_index = 1;
          const std::vector<HostTensor> want = run_loss(whole(c), 1);
          for (const int64_t chunk : {32, 96}) {
            c.options.chunk_rows = chunk;
            for (const int threads : {1, 2}) expect_equal(run_loss(c, threads), want);
          }
          const LossProgram p = loss_program(c);
          Interpreter interpreter(p.ir);
          expect_equal(values_of(p, interpreter.run({})), want);
        }
      }
    }
  }
}

TEST(VocabularyPredictions, HaveTheLossesAndClassesOfAllLogits) {
  for (const auto& [rows, vocabulary] : {std::pair(33, 37), {160, 3}, {229, 301}}) {
    for (const bool transposed : {false, true}) {
      for (const bool ignores : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows, {} {}", rows, transposed, ignores));
        LossCase c{rows, 19, vocabulary, {.transposed = transposed, .chunk_rows = 32}, rows != 160};
        if (ignores) c.options.ignore_index = 1;
        LossProgram all;
        const auto [x, weight, labels, options] = Operands(all.ir, c);
        Tensor logits = ops::matmul(x, weight, {.rhs_transposed = transposed});
        if (c.has_bias) logits = logits + options.bias;
        const ops::NllLossOptions each{
            .reduction = ops::LossReduction::kNone, .has_ignore_index = ignores, .ignore_index = 1};
        for (const Tensor& t :
             {ops::nll_loss(ops::softmax(logits), labels, each), ops::argmax(logits, {.axis = 1})})
          all.results.push_back(all.ir.main_graph().host_store(t, "result"));
        std::vector<HostTensor> want = run_program(all, 1);
        const std::vector<HostTensor> training = run_loss(c, 1);
        want.push_back(training[0]);
        if (ignores) want.push_back(training[1]);
        for (const int64_t chunk : {32, 96, 256}) {
          c.options.chunk_rows = chunk;
          const LossProgram p = prediction_program(c);
          for (const int threads : {1, 2}) expect_equal(run_program(p, threads), want);
          Interpreter interpreter(p.ir);
          expect_equal(values_of(p, interpreter.run({})), want);
        }
      }
    }
  }
}

TEST(VocabularyPredictions, MayHaveNoRows) {
  const LossProgram p = prediction_program({0, 4, 5});
  const std::vector<HostTensor> results = run_program(p, 1);
  EXPECT_EQ(results[0].elements(), 0);
  EXPECT_EQ(results[1].elements(), 0);
}

// The maximum number of bytes that a kernel of the plan writes.
int64_t largest_result(const LossProgram& program) {
  std::istringstream plan(
      exe::to_text(compile(program.ir, compile_options({.device = cpu_device()})).executable));
  int64_t largest = 0;
  for (std::string line; std::getline(plan, line);) {
    const size_t bytes = line.find(" bytes ");
    if (line.find("      write ") == 0 && bytes != std::string::npos)
      largest = std::max<int64_t>(largest, std::stoll(line.substr(bytes + 7)));
  }
  return largest;
}

int64_t peak(const LossProgram& program) {
  Session session(program.ir, {.device = cpu_device({.threads = 2})});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  return session.planned_bytes();
}

TEST(VocabularyLoss, HoldsTheLogitsOfOneChunk) {
  for (const bool transposed : {false, true}) {
    const LossCase c{1024, 16, 2000, {.transposed = transposed, .chunk_rows = 64}};
    EXPECT_EQ(largest_result(loss_program(whole(c))), 1024 * 2000 * 4);
    EXPECT_EQ(largest_result(loss_program(c)), 64 * 2000 * 4);
    // Two weights, x and its gradient, and the logits of a chunk.
    const int64_t weight = 16 * 2000 * 4, x = 1024 * 16 * 4, logits = 64 * 2000 * 4;
    EXPECT_LE(peak(loss_program(c)), 2 * weight + 2 * x + logits + (1 << 16));
    // Evaluation has the probabilities of a chunk next to its logits.
    EXPECT_EQ(largest_result(prediction_program(c)), 64 * 2000 * 4);
    // By default, at most 2²² logits and at least 32 rows.
    const auto chosen = [&](int64_t rows, int64_t vocabulary) {
      const LossCase usual{rows, 4, vocabulary, {.transposed = transposed}};
      return largest_result(prediction_program(usual)) / (4 * vocabulary);
    };
    EXPECT_EQ(chosen(1024, 4096), 1024);
    EXPECT_EQ(chosen(1024, 20000), 128);
    EXPECT_EQ(chosen(90, 60000), 64);
    EXPECT_EQ(chosen(70, 200000), 32);
    EXPECT_LE(peak(prediction_program(c)), weight + x + 2 * logits + (1 << 16));
  }
}

// Tokens, a table of their rows, a layer and the logits of all tokens.
Network language_model(Head head, int64_t chunk_rows, std::optional<int64_t> ignored = {}) {
  constexpr int64_t kVocabulary = 37;
  const auto build = [=](nn::Builder& b, const Inputs& in) {
    Tensor x;
    {
      const nn::Block block(b, "embedding");
      x = ops::gather(b.add_variable_input("table", nn::normal(0, 1), {kVocabulary, kWidth}),
                      in["tokens"]);
    }
    {
      const nn::Block block(b, "hidden");
      x = ops::tanh(linear(b, "hidden", x));
    }
    const nn::Block block(b, "head");
    const bool tied = head == Head::kTied;
    const Tensor weight =
        tied ? b.variable("table")
             : b.add_variable_input("weight", nn::normal(0, 1), {kWidth, kVocabulary});
    if (in.mode() == nn::RunMode::kEvaluate)
      return Results{.predictions = {{"y", ops::matmul(x, weight, {.rhs_transposed = tied})}}};
    return Results{.losses = {vocabulary_cross_entropy(
                       x, weight, in["labels"],
                       {.transposed = tied, .chunk_rows = chunk_rows, .ignore_index = ignored})}};
  };
  const TensorSpec tokens = i32_spec({2, 40});
  return {Written(build), {{.name = "tokens", .spec = tokens}, {.name = "labels", .spec = tokens}}};
}

TEST(VocabularyLoss, HasTheBitsOfAllLogitsInEveryStrategy) {
  for (const Head head : {Head::kTied, Head::kOwn}) {
    for (const std::optional<int64_t> ignored : {std::optional<int64_t>(), {1}}) {
      for (const int replicas : {1, 2}) {
        const Options shared{.accumulate = 3, .learning_rate = 0.1};
        const std::vector<Way> all = ways(Ways::kSome);
        const train::TrainedRun want = run(language_model(head, 96, ignored),
                                           with_reductions_of(all[0].step, shared), replicas);
        for (const Way& way : all) {
          SCOPED_TRACE(
              fmt::format("{} tied {} replicas {}", way.name, head == Head::kTied, replicas));
          const train::TrainedRun have =
              run(language_model(head, 32, ignored), with_reductions_of(way.step, shared), replicas,
                  2, way.more_devices);
          EXPECT_EQ(have.digest, want.digest);
        }
      }
    }
  }
}

// The weight of a use of the loss is named by an identity, which plans must not compute.
TEST(VocabularyLoss, CopiesNoWeight) {
  for (const Head head : {Head::kTied, Head::kOwn}) {
    for (const Way& way : ways(Ways::kSome)) {
      Ir ir;
      Options options = way.step;
      options.accumulate = 3;
      build_training(ir, language_model(head, 32), nn::Optimizer::adam(), options);
      const std::string plan = exe::to_text(
          compile(ir, compile_options({.device = cpu_device(),
                                       .more_devices = std::vector(way.more_devices, cpu_device()),
                                       .remote = "host"}))
              .executable);
      EXPECT_NE(plan.find(" MatMulAccumulate "), std::string::npos) << way.name;
      EXPECT_EQ(plan.find(" Identity "), std::string::npos) << way.name;
    }
  }
}

TEST(VocabularyLoss, ChoosesChunks) {
  const auto loops = [](const LossCase& c) {
    LossProgram p = loss_program(c);
    return std::ranges::count_if(p.ir.main_graph().ops(),
                                 [](const Op& op) { return op.def->type == "Loop"; });
  };
  EXPECT_EQ(loops({2048, 8, 2048}), 0);   // Few logits.
  EXPECT_EQ(loops({1024, 8, 20000}), 0);  // Few rows.
  EXPECT_EQ(loops({2048, 8, 2100}), 1);
}

// The gradient of a bias is the sum of the gradients of the logits.
TEST(VocabularyLoss, HasTheGradientOfABias) {
  const LossCase c{70, 5, 7, {.chunk_rows = 32}, true};
  const std::vector<HostTensor> results = run_loss(c, 1);
  Ir ir;
  const auto [x, weight, labels, options] = Operands(ir, c);
  const Loss loss = cross_entropy(ops::matmul(x, weight) + options.bias, labels);
  const D2hStream gradient =
      ir.main_graph().host_store(ops::sum(loss.gradients.at(0).second, {.axes = {0}}), "sum");
  const std::vector<double> want = Interpreter(ir).run({})[gradient].to_doubles();
  const std::vector<double> have = results.back().to_doubles();
  ASSERT_EQ(have.size(), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_NEAR(have[i], want[i], 1e-7);
}

TEST(VocabularyLoss, RefusesOtherOperands) {
  const auto with = [](LossCase c) { return [c] { loss_program(c); }; };
  const auto of = [](const TensorSpec& x, const TensorSpec& weight, const TensorSpec& labels) {
    return [=] {
      Ir ir;
      Graph& g = ir.main_graph();
      vocabulary_cross_entropy(g.variable(x, Initializer::constant(0), "x"),
                               g.variable(weight, Initializer::constant(0), "w"),
                               g.variable(labels, Initializer::constant(0), "l"));
    };
  };
  expect_refused({{"chunk", with({64, 4, 5, {.chunk_rows = 40}}),
                   "vocabulary_cross_entropy: chunk_rows must be a multiple of 32 or 0, got 40"},
                  {"negative chunk", with({64, 4, 5, {.chunk_rows = -32}}),
                   "vocabulary_cross_entropy: chunk_rows must be a multiple of 32 or 0, got -32"},
                  {"bias",
                   [] {
                     Ir ir;
                     Operands o(ir, {4, 3, 5});
                     o.options.bias = o.x;
                     vocabulary_cross_entropy(o.x, o.weight, o.labels, o.options);
                   },
                   "vocabulary_cross_entropy: bias must be (5,) float32, got 'x' (4, 3) float32"},
                  {"dtype", of({{4, 3}, f16, {}}, f32_spec({3, 5}), i32_spec({4})),
                   "vocabulary_cross_entropy: x must be float32 of shape (..., width)"},
                  {"weight", of(f32_spec({4, 3}), f32_spec({5, 3}), i32_spec({4})),
                   "vocabulary_cross_entropy: weight must be float32 of shape (width, vocabulary)"},
                  {"labels", of(f32_spec({4, 3}), f32_spec({3, 5}), i32_spec({3})),
                   "vocabulary_cross_entropy: labels must be int32 or uint32 of shape"}});
}

}  // namespace
}  // namespace sluice::train
