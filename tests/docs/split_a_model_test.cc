// Tests that the networks and errors of docs/howto/split_a_model.md do what the page describes. The
// page shows these classes.
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/sluice.h"
#include "sluice/train/cut/cut.h"

namespace sluice {
namespace {

using train::Inputs;
using train::Results;

constexpr int64_t kBatch = 4;

std::vector<train::Field> fields() {
  return {{.name = "input", .spec = {{kBatch, 6}, f32}},
          {.name = "labels", .spec = {{kBatch}, i32}}};
}

// A linear layer and GELU.
struct Hidden : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return ops::gelu(nn::Linear(8).build(b, x)); }
};

Results finish(const Tensor& logits, const Inputs& in) {
  if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits, "labels"}}};
  return {.losses = {train::cross_entropy(logits, in["labels"])}};
}

// --- The networks of the page.

class Unnamed : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::gelu(first_(b, x));
    return last_(b, x);
  }

 private:
  nn::Child<nn::Linear> first_{*this, "first", 8};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

class InScopes : public nn::Module {
 public:
  Results build(nn::Builder& b, const Inputs& in) const {
    std::optional<nn::Block> block(std::in_place, b, "B1");
    const Tensor x = first_(b, in["input"]);
    block.reset();
    block.emplace(b, "B2");
    return finish(last_(b, x), in);
  }

 private:
  nn::Child<Hidden> first_{*this, "first"};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

class BySubmodules : public nn::Module {
 public:
  BySubmodules() {
    first_.in_block("B1");
    last_.in_block("B2");
  }
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits = last_(b, first_(b, in["input"]));
    const nn::Block block(b, "B2");
    return finish(logits, in);
  }

 private:
  nn::Child<Hidden> first_{*this, "first"};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

class Beginning : public nn::Module {
 public:
  Beginning() {
    nn::begin_block(layers_[0], "B1");
    nn::begin_block(layers_[2], "B2");
  }
  Results build(nn::Builder& b, const Inputs& in) const {
    Tensor x = in["input"];
    for (const auto& layer : layers_) x = layer(b, x);
    return finish(last_(b, x), in);
  }

 private:
  nn::Child<Hidden> layers_[4] = {{*this, "l0"}, {*this, "l1"}, {*this, "l2"}, {*this, "l3"}};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

class Centred : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor running = b.add_running_input("mean", nn::zeros(), {x.dim(-1)});
    if (b.mode() == nn::RunMode::kEvaluate) return x - running;
    const Tensor mean = ops::mean(x, {.axes = {0}});
    b.update_running(running, mean, {.keep = 0.9, .take = 0.1});
    return x - mean;
  }
};

// --- End of the networks.

std::vector<std::string> blocks_of(const train::Network& network) {
  std::vector<std::string> names;
  Ir ir;
  for (const train::BlockGraph& b : cut(network.build(ir, nn::RunMode::kTrain)).blocks)
    names.push_back(b.name);
  return names;
}

std::vector<float> losses_of(const train::Network& network, train::Strategy strategy) {
  data::Samples set{HostTensor({{32, 6}, f32}), HostTensor({{32}, i32}), "a test"};
  for (size_t i = 0; i < 32; ++i) {
    set.labels.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
    set.images.as<float>()[7 * i % 192] = static_cast<float>(i % 5) - 2;
  }
  train::TrainingModel model =
      train::training_model(network,
                            {.strategy = strategy,
                             .accumulate = 2,
                             .output = train::Output::all(),
                             .learning_rate = 0.01,
                             .session = {.device = cpu_device({.threads = 1})}},
                            nn::Optimizer::adam());
  return train::fit(model, data::from_samples(set), {.epochs = 2}).losses;
}

TEST(SplitAModel, NetworksHaveTheBlocksOfThePageAndOneSetOfBits) {
  using Names = std::vector<std::string>;
  const std::vector<std::pair<train::Network, Names>> networks = {
      {train::classifier(Unnamed(), {{kBatch, 6}, f32}), {"first", "last"}},
      {{InScopes(), fields()}, {"B1", "B2"}},
      {{BySubmodules(), fields()}, {"B1", "B2"}},
      {{Beginning(), fields()}, {"B1", "B2"}},
      {train::classifier(nn::Sequential(nn::Linear(8), Centred(), nn::Linear(3)),
                         {{kBatch, 6}, f32}),
       {"0", "1", "2"}}};
  for (const auto& [network, names] : networks) {
    EXPECT_EQ(blocks_of(network), names);
    EXPECT_EQ(losses_of(network, train::phased()), losses_of(network, train::resident()));
  }
}

// A network whose build is a function.
struct Written : nn::Module {
  using Build = std::function<Results(nn::Builder&, const Inputs&)>;
  explicit Written(Build f) : f(std::move(f)) {}
  Results build(nn::Builder& b, const Inputs& in) const { return f(b, in); }
  Build f;
};

TEST(SplitAModel, RefusesWhatThePageSays) {
  const auto cut_of = [](Written::Build build) {
    return [build] { blocks_of({Written(build), fields()}); };
  };
  const auto linear = [](nn::Builder& b, const char* name, const Tensor& x, int64_t features) {
    return b.inlined(name, nn::Linear(features), x);
  };
  expect_refused({
      {"an op outside", cut_of([&](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor logits = linear(b, "fc", in["input"], 3);
         block.reset();
         return finish(logits, in);
       }),
       "No active Block: "},
      {"a cycle", cut_of([&](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor x = linear(b, "a", in["input"], 6);
         block.reset();
         block.emplace(b, "B2");
         const Tensor y = linear(b, "b", x, 6);
         block.reset();
         block.emplace(b, "B1");
         return finish(linear(b, "c", y, 3), in);
       }),
       "blocks must not read results of each other"},
      {"a layer begun twice",
       [] {
         nn::Module parent;
         nn::Child<Hidden> layer(parent, "layer");
         layer.in_block("B1");
         nn::begin_block(layer, "B2");
       },
       "must have one block at most"},
      {"a write to another block", cut_of([&](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor x = linear(b, "a", in["input"], 3);
         block.reset();
         block.emplace(b, "B2");
         return finish(ops::scaled_add_(x, x, 1.0, 1.0), in);
       }),
       "; write a copy"},
      {"a read before a write", cut_of([&](nn::Builder& b, const Inputs& in) {
         std::optional<nn::Block> block(std::in_place, b, "B1");
         const Tensor x = linear(b, "a", in["input"], 3);
         block.reset();
         block.emplace(b, "B2");
         const Tensor y = linear(b, "b", x, 3);
         block.reset();
         block.emplace(b, "B1");
         const Tensor z = ops::scaled_add_(x, x, 1.0, 1.0);
         block.reset();
         block.emplace(b, "B3");
         return finish(y + z, in);
       }),
       "; read a copy"},
      {"a read of an updated variable", cut_of([&](nn::Builder& b, const Inputs& in) {
         const Tensor x = linear(b, "a", in["input"], 3);
         const Tensor running = b.add_running_input("r", nn::zeros(), {3});
         b.update_running(running, ops::mean(x, {.axes = {0}}));
         return finish(x - running, in);
       }),
       "must be read or updated in training, got both"},
  });
}

}  // namespace
}  // namespace sluice
