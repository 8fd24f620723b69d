// Language models must learn as in PyTorch from equal weights (gpt.py), and have the same bits in
// every strategy.

#include "sluice/models/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "learning.h"
#include "sluice/base/numbers/argmax.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/base/test_refusals.h"
#include "sluice/compiler/compile.h"
#include "sluice/exe/text.h"

namespace sluice::test {
namespace {

constexpr const char* kStored = "tests/models/gpt/gpt.safetensors";

// The sizes of gpt.py.
models::GptSizes sizes(models::Arch arch) {
  return {.arch = arch,
          .blocks = 2,
          .heads = 4,
          .kv_heads = arch == models::Arch::kLlama ? 2 : 4,
          .width = 16,
          .hidden = 40,
          .context = 12,
          .vocabulary = 11,
          .micro_batch = 3,
          .eval_batch = 3};
}

TEST(Gpt, LearnsAsInPyTorch) {
  for (const auto& [name, arch] :
       {std::pair("gpt2", models::Arch::kGpt2), std::pair("llama", models::Arch::kLlama)}) {
    SCOPED_TRACE(name);
    expect_losses_of_pytorch(
        models::gpt(sizes(arch)), StoredTraining(kStored, name), 0.05, {{"losses", "loss"}},
        [](train::TrainingModel& model, const std::string& first) {
          EXPECT_TRUE(train::load_torch_weights(model.session(), model.programs(), first).empty());
        });
  }
}

data::Element samples(int step) {
  std::vector<int32_t> tokens, labels;
  for (int i = 0; i < 2 * 6 * 12; ++i) {
    tokens.push_back((i * i + 3 * step) % 11);
    labels.push_back((i * 7 + step) % 11);
  }
  const auto batch = [](const std::vector<int32_t>& values) {
    return HostTensor::of<int32_t>({12, 12}, i32, values);
  };
  return {{"tokens", batch(tokens)}, {"labels", batch(labels)}};
}

TEST(Gpt, HasTheSameBitsInEveryStrategy) {
  for (const models::Arch arch : {models::Arch::kGpt2, models::Arch::kLlama}) {
    models::GptSizes s = sizes(arch);
    s.dropout = 0.2;
    s.micro_batch = 6;  // 72 rows: two chunks of 32 rows, and a rest.
    s.loss_rows = 32;
    expect_same_bits_in_every_strategy(models::gpt(s), samples, {"loss"});
  }
}

// The losses and tokens of an evaluation, with an equal first seed.
data::Element evaluated(const models::GptSizes& s, const train::Options& options) {
  train::TrainingModel training =
      train::training_model(models::gpt(s), options, nn::Optimizer::sgd());
  train::InferenceModel model = train::inference_model(training);
  data::Element all = samples(1);
  if (s.results == models::TokenResults::kLogits) {
    all.names.pop_back();
    all.arrays.pop_back();
  }
  return model(all);
}

TEST(Gpt, EvaluatesInChunksWithTheBitsOfAllLogits) {
  for (const models::Arch arch : {models::Arch::kGpt2, models::Arch::kLlama}) {
    models::GptSizes s = sizes(arch);
    s.eval_batch = 12;  // 144 rows.
    const train::Options one_thread{.session = {.device = cpu_device({.threads = 1})}};
    s.loss_rows = 160;
    const data::Element want = evaluated(s, one_thread);
    EXPECT_EQ(want.names, (std::vector<std::string>{"losses", "predicted"}));
    EXPECT_EQ(to_string(want["predicted"].spec()), "(12, 12) int32");
    s.results = models::TokenResults::kLogits;
    const HostTensor logits = evaluated(s, one_thread)["logits"];
    const HostTensor labels = samples(1)["labels"];
    for (int64_t i = 0; i < 144; ++i) {
      const auto row = Slices(logits.as<float>(), 144)[i];
      ASSERT_EQ(at(want["predicted"].as<int32_t>(), i), static_cast<int32_t>(argmax(row)));
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x));
      const double loss = std::log(sum) - static_cast<double>(at(row, at(labels.as<int32_t>(), i)));
      ASSERT_NEAR(at(want["losses"].as<float>(), i), loss, 1e-5);
    }
    s.results = models::TokenResults::kLosses;
    s.loss_rows = 32;
    const train::Strategy resident = train::resident(), phased = train::phased();
    const train::Stage first("embedding", "block.0"), second("block.1", "head");
    const train::Strategy sharded = train::sharded(first, second);
    const train::Strategy pipelined = train::pipelined(first, second);
    for (const train::Strategy& strategy : {resident, phased, sharded, pipelined}) {
      const data::Element have =
          evaluated(s, {.strategy = strategy, .session = {.device = cpu_device({.threads = 2})}});
      for (const char* name : {"losses", "predicted"})
        EXPECT_TRUE(have[name].same_bits(want[name])) << name;
    }
  }
}

// The training and the evaluation of the plan write the logits of one chunk at most.
TEST(Gpt, HoldsTheLogitsOfOneChunk) {
  for (const models::Arch arch : {models::Arch::kGpt2, models::Arch::kLlama}) {
    models::GptSizes s = sizes(arch);
    s.vocabulary = 1000;
    s.micro_batch = s.eval_batch = 16;  // 192 rows.
    const auto largest = [&](int64_t loss_rows) {
      s.loss_rows = loss_rows;
      Ir ir;
      train::build_training(ir, models::gpt(s), nn::Optimizer::adam(), {});
      std::istringstream plan(
          exe::to_text(compile(ir, compile_options({.device = cpu_device()})).executable));
      int64_t bytes = 0;
      for (std::string line; std::getline(plan, line);) {
        const size_t size = line.find(" bytes ");
        if (line.find("      write ") == 0 && size != std::string::npos)
          bytes = std::max<int64_t>(bytes, std::stoll(line.substr(size + 7)));
      }
      return bytes;
    };
    EXPECT_EQ(largest(192), 192 * 1000 * 4);
    EXPECT_EQ(largest(32), 32 * 1000 * 4);
  }
}

TEST(Gpt, RefusesSizesThatDoNotFit) {
  const auto with = [](auto change) {
    return building(models::gpt, sizes(models::Arch::kGpt2), change);
  };
  expect_refused({{"heads", with([](models::GptSizes& s) { s.heads = 3; }),
                   "gpt: heads must divide the width, 16, got 3"},
                  {"kv_heads", with([](models::GptSizes& s) { s.kv_heads = 3; }),
                   "gpt: kv_heads must divide the heads, 4, got 3"},
                  {"dropout", with([](models::GptSizes& s) { s.dropout = 1; }),
                   "gpt: dropout must be in [0, 1), got 1"},
                  {"odd head", with([](models::GptSizes& s) {
                     s.arch = models::Arch::kLlama;
                     s.width = 12;
                   }),
                   "gpt: a head of Llama must have an even number of elements, got 3 of width 12"},
                  {"epsilon", with([](models::GptSizes& s) { s.epsilon = 0; }),
                   "gpt: epsilon must be positive, got 0"},
                  {"vocabulary", with([](models::GptSizes& s) { s.vocabulary = 0; }),
                   "gpt: vocabulary must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::test
