#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sluice/base/safetensors.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

/// Trainings of transformers: the losses of PyTorch, and the bits of all strategies.
namespace sluice::test {

/// The arrays "<model>.*" of a file that gpt.py or encoders.py wrote.
struct StoredTraining {
  StoredTraining(const std::string& file, std::string model) : name(std::move(model)) {
    for (NamedArray& a : read_safetensors_file(file)) {
      if (a.name.starts_with(name + "."))
        arrays.emplace(a.name.substr(name.size() + 1), std::move(a.array));
    }
  }
  const HostTensor& operator[](const std::string& key) const { return arrays.at(key); }
  /// Writes the first weights to a file and returns its path.
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

/// Loads the first weights of `stored` into the model from a file.
using LoadFirst = std::function<void(train::TrainingModel&, const std::string&)>;

/// Expects the losses of the stored training by gradient descent with learning rate `rate`. Each
/// entry of `losses` is the key of an array and the stream of the loss.
inline void expect_losses_of_pytorch(const train::Network& network, const StoredTraining& stored,
                                     double rate, const std::map<std::string, std::string>& losses,
                                     const LoadFirst& load_first) {
  train::TrainingModel model = train::training_model(
      network, {.learning_rate = rate, .session = {.device = cpu_device({.threads = 2})}},
      nn::Optimizer::sgd());
  const std::string first = stored.write_first();
  load_first(model, first);
  std::remove(first.c_str());
  data::Element samples;
  for (const train::Field& f : network.fields()) {
    samples.arrays.push_back(stored[f.name]);
    samples.names.push_back(f.name);
  }
  const int64_t steps = stored[losses.begin()->first].elements();
  ASSERT_EQ(steps, 200);
  for (int64_t step = 0; step < steps; ++step) {
    const data::Element result = model(samples);
    for (const auto& [key, stream] : losses) {
      ASSERT_NEAR(result[stream].to_doubles()[0], at(stored[key].as<float>(), step), 1e-5)
          << stream << ", step " << step;
    }
  }
}

/// Returns a call that builds a model of changed sizes.
template <typename Sizes, typename Change>
std::function<void()> building(train::Network (*build)(const Sizes&), Sizes sizes, Change change) {
  change(sizes);
  return [build, sizes] { build(sizes); };
}

/// The samples of update `step`.
using SamplesOfStep = std::function<data::Element(int step)>;

/// The losses and the trained weights of two updates of two micro-batches.
inline std::vector<NamedArray> trained(const train::Network& network, const SamplesOfStep& samples,
                                       const std::vector<std::string>& losses,
                                       const train::Strategy& strategy,
                                       const train::TensorLocations& locations, int threads) {
  train::TrainingModel model =
      train::training_model(network,
                            {.strategy = strategy,
                             .accumulate = 2,
                             .locations = locations,
                             .session = {.device = cpu_device({.threads = threads})}},
                            nn::Optimizer::adam());
  std::vector<NamedArray> all;
  for (int step = 0; step < 2; ++step) {
    const data::Element result = model(samples(step));
    for (const std::string& loss : losses) all.push_back({loss, result[loss]});
  }
  const std::string file = testing::TempDir() + "trained.safetensors";
  train::save_torch_weights(model.session(), model.programs(), file);
  for (NamedArray& a : read_safetensors_file(file)) all.push_back(std::move(a));
  std::remove(file.c_str());
  return all;
}

/// Expects equal bits of the resident, phased, pipelined and sharded training of a network with the
/// blocks embedding, block.0, block.1 and head.
inline void expect_same_bits_in_every_strategy(const train::Network& network,
                                               const SamplesOfStep& samples,
                                               const std::vector<std::string>& losses) {
  const train::TensorLocations on_device, remote = train::TensorLocations::phased();
  const auto want = trained(network, samples, losses, train::resident(), on_device, 1);
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
    const auto have = trained(network, samples, losses, others[i].first, others[i].second, 2);
    ASSERT_EQ(have.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(have[k].name, want[k].name);
      EXPECT_TRUE(std::ranges::equal(have[k].array.bytes(), want[k].array.bytes())) << want[k].name;
    }
  }
}

}  // namespace sluice::test
