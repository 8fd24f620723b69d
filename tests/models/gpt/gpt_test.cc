// Language models must learn as in PyTorch from equal weights (gpt.py), and have the same bits in
// every strategy.

#include "sluice/models/gpt.h"

#include <gtest/gtest.h>

#include "learning.h"
#include "sluice/base/test_refusals.h"

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
