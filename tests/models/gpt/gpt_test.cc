// Language models must learn as in PyTorch from equal weights (gpt.py), and have the same bits in
// every strategy.

#include "sluice/models/gpt.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/report/report.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

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

struct Stored {
  explicit Stored(std::string model) : name(std::move(model)) {
    for (NamedArray& a : read_safetensors_file(kStored)) {
      if (a.name.starts_with(name + "."))
        arrays.emplace(a.name.substr(name.size() + 1), std::move(a.array));
    }
  }
  std::string write_first() const {
    std::string path = testing::TempDir() + name + "_first.safetensors";
    std::vector<NamedArray> weights;
    for (const auto& [key, array] : arrays) {
      if (key.starts_with("first.")) weights.push_back({key.substr(6), array});
    }
    write_safetensors_file(path, weights);
    return path;
  }
  std::string name;
  std::map<std::string, HostTensor> arrays;
};

TEST(Gpt, LearnsAsInPyTorch) {
  for (const auto& [name, arch] :
       {std::pair("gpt2", models::Arch::kGpt2), std::pair("llama", models::Arch::kLlama)}) {
    SCOPED_TRACE(name);
    const Stored stored(name);
    train::TrainingModel model = train::training_model(
        models::gpt(sizes(arch)),
        {.learning_rate = 0.05, .session = {.device = cpu_device({.threads = 2})}},
        nn::Optimizer::sgd());
    const std::string first = stored.write_first();
    EXPECT_TRUE(train::load_torch_weights(model.session(), model.programs(), first).empty());
    std::remove(first.c_str());
    const HostTensor& losses = stored.arrays.at("losses");
    for (int64_t step = 0; step < losses.elements(); ++step) {
      const data::Element result =
          model({{"tokens", stored.arrays.at("tokens")}, {"labels", stored.arrays.at("labels")}});
      ASSERT_NEAR(result["loss"].to_doubles()[0], at(losses.as<float>(), step), 1e-4)
          << "step " << step;
    }
  }
}

// The losses and the trained weights of two updates with dropout.
std::vector<NamedArray> trained(models::Arch arch, const train::Strategy& strategy,
                                const train::TensorLocations& locations, int threads) {
  models::GptSizes s = sizes(arch);
  s.dropout = 0.2;
  train::TrainingModel model =
      train::training_model(models::gpt(s),
                            {.strategy = strategy,
                             .accumulate = 2,
                             .locations = locations,
                             .session = {.device = cpu_device({.threads = threads})}},
                            nn::Optimizer::adam());
  std::vector<NamedArray> all;
  for (int step = 0; step < 2; ++step) {
    std::vector<int32_t> tokens, labels;
    for (int i = 0; i < 2 * 3 * 12; ++i) {
      tokens.push_back((i * i + 3 * step) % 11);
      labels.push_back((i * 7 + step) % 11);
    }
    const auto batch = [](const std::vector<int32_t>& values) {
      return HostTensor::of<int32_t>({6, 12}, i32, values);
    };
    const data::Element result = model({{"tokens", batch(tokens)}, {"labels", batch(labels)}});
    all.push_back({"loss", result["loss"]});
  }
  const std::string file = testing::TempDir() + "gpt_trained.safetensors";
  train::save_torch_weights(model.session(), model.programs(), file);
  for (NamedArray& a : read_safetensors_file(file)) all.push_back(std::move(a));
  std::remove(file.c_str());
  return all;
}

TEST(Gpt, HasTheSameBitsInEveryStrategy) {
  const train::TensorLocations on_device, remote = train::TensorLocations::phased();
  for (const models::Arch arch : {models::Arch::kGpt2, models::Arch::kLlama}) {
    const auto want = trained(arch, train::resident(), on_device, 1);
    EXPECT_GT(want.size(), 20u);
    const std::vector<std::pair<train::Strategy, train::TensorLocations>> others{
        {train::resident(), on_device},
        {train::phased(), remote},
        {train::pipelined(train::Stage("embedding", "block.0"), train::Stage("block.1", "head")),
         on_device},
        {train::sharded(train::Stage("embedding", "block.0"), train::Stage("block.1", "head")),
         on_device}};
    for (size_t i = 0; i < others.size(); ++i) {
      SCOPED_TRACE(i);
      const auto have = trained(arch, others[i].first, others[i].second, 2);
      ASSERT_EQ(have.size(), want.size());
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(have[k].name, want[k].name);
        EXPECT_TRUE(std::ranges::equal(have[k].array.bytes(), want[k].array.bytes()))
            << want[k].name;
      }
    }
  }
}

TEST(Gpt, RefusesSizesThatDoNotFit) {
  const auto with = [](void (*change)(models::GptSizes&)) {
    return [change] {
      models::GptSizes s = sizes(models::Arch::kGpt2);
      change(s);
      models::gpt(s);
    };
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
                  {"vocabulary", with([](models::GptSizes& s) { s.vocabulary = 0; }),
                   "gpt: vocabulary must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::test
