// Layers, losses and files must be those of PyTorch. torch_layers.py computes the stored file: the
// state_dict of a network, its output, and cases of CrossEntropyLoss with their gradients.

#include "torch_layers.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/interp/interpreter.h"
#include "sluice/nn/layers.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

// Net of torch_layers.py, with a loss so that it can train.
class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::relu(norm_(b, conv_(b, x)));
    x = bn_(b, pool_(b, up_(b, x)));
    x = rows_(b, mean_(b, x));
    return fc_(b, ops::flatten(x, 1));
  }

 private:
  nn::Child<nn::Conv2d> conv_{
      *this, "conv",
      nn::ConvOptions{.channels = 6, .kernel = {3}, .stride = {2}, .padding = {1}, .groups = 2}};
  nn::Child<nn::GroupNorm> norm_{*this, "norm", 3};
  nn::Child<nn::ConvTranspose2d> up_{
      *this, "up",
      nn::ConvTransposeOptions{
          .channels = 4, .kernel = {3}, .stride = {2}, .padding = {1}, .output_padding = {1}}};
  nn::Child<nn::MaxPool2d> pool_{*this, "pool", ops::PoolOptions{.kernel = {2}}};
  nn::Child<nn::BatchNorm2d> bn_{*this, "bn"};
  nn::Child<nn::AvgPool2d> mean_{*this, "mean",
                                 nn::AvgPoolOptions{.kernel = {3}, .stride = {1}, .padding = {1}}};
  nn::Child<nn::LayerNorm> rows_{*this, "rows", 2};
  nn::Child<nn::Linear> fc_{*this, "fc", 5};
};

train::TrainingModel model_of_net(train::Strategy strategy) {
  const bool phased = std::holds_alternative<train::PhasedExecution>(strategy);
  return train::training_model(
      train::classifier(Net(), f32_spec({3, 2, 8, 8})),
      {.strategy = strategy,
       .locations = phased ? train::TensorLocations::phased() : train::TensorLocations(),
       .session = {.device = cpu_device({.threads = 1})}},
      nn::Optimizer::adam());
}

HostTensor logits(train::TrainingModel& model, const HostTensor& input) {
  return train::inference_model(model)({{"input", input}})["logits"];
}

TEST(TorchWeights, GiveTheOutputOfPyTorchsModule) {
  const Stored stored;
  for (const auto& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    train::TrainingModel model = model_of_net(strategy);
    const std::vector<std::string> unknown =
        train::load_torch_weights(model.session(), model.programs(), kFile);
    expect_close(logits(model, stored["input"]), stored["output"], "output");
    // Only names that belong to no variable are left out.
    for (const std::string& name : unknown) {
      EXPECT_TRUE(name == "bn.num_batches_tracked" || !is_of_net(name)) << name;
    }
  }
}

TEST(TorchWeights, AreWrittenAsPyTorchWouldWriteThem) {
  const Stored stored;
  train::TrainingModel model = model_of_net(train::resident());
  train::load_torch_weights(model.session(), model.programs(), kFile);
  const std::string file = testing::TempDir() + "torch_weights.safetensors";
  train::save_torch_weights(model.session(), model.programs(), file);
  size_t expected = 0;
  for (const auto& [name, array] : stored.arrays) {
    expected += is_of_net(name) && name != "bn.num_batches_tracked";
  }
  const std::vector<NamedArray> saved = read_safetensors_file(file);
  EXPECT_EQ(saved.size(), expected);
  for (const NamedArray& a : saved) EXPECT_TRUE(a.array.same_bits(stored[a.name])) << a.name;
  std::remove(file.c_str());
}

TEST(TorchWeights, RefuseFilesOfOtherModules) {
  const Stored stored;
  train::TrainingModel model = model_of_net(train::resident());
  const std::string file = testing::TempDir() + "other_weights.safetensors";
  const HostTensor before = logits(model, stored["input"]);
  const auto load = [&](const std::string& name, std::optional<HostTensor> array) {
    return [&, name, array] {
      std::vector<NamedArray> all;
      for (const auto& [key, value] : stored.arrays) {
        if (key != name) all.push_back({key, value});
      }
      if (array) all.push_back({name, *array});
      write_safetensors_file(file, all);
      train::load_torch_weights(model.session(), model.programs(), file);
    };
  };
  expect_refused({
      {"missing", load("up.bias", {}), "weight 'up.bias' is missing", ErrorKind::kBadFile},
      {"shape", load("conv.weight", HostTensor(f32_spec({6, 2, 3, 3}))),
       "'conv.weight' must be (6, 1, 3, 3) of floating point, got (6, 2, 3, 3) float32",
       ErrorKind::kBadFile},
      {"our form", load("fc.weight", HostTensor(f32_spec({64, 5}))),
       "'fc.weight' must be (5, 64) of floating point, got (64, 5) float32", ErrorKind::kBadFile},
      {"integers", load("fc.bias", HostTensor(i32_spec({5}))),
       "'fc.bias' must be (5,) of floating point, got (5,) int32", ErrorKind::kBadFile},
  });
  EXPECT_TRUE(logits(model, stored["input"]).same_bits(before)) << "a refused file set weights";
  // Other floating dtypes are converted.
  load("fc.bias", stored["fc.bias"].cast(f64))();
  expect_close(logits(model, stored["input"]), stored["output"], "output");
  std::remove(file.c_str());
}

// Parses the options that torch_layers.py writes: "smoothing ignored reduction weights".
nn::CrossEntropyOptions options_of(const std::string& text) {
  std::istringstream in(text);
  nn::CrossEntropyOptions o;
  std::string reduction, weight;
  in >> o.label_smoothing >> o.ignore_index >> reduction >> std::ws;
  if (reduction == "sum") o.reduction = ops::LossReduction::kSum;
  if (reduction == "none") o.reduction = ops::LossReduction::kNone;
  while (std::getline(in, weight, ',')) o.class_weights.push_back(std::stod(weight));
  return o;
}

TEST(CrossEntropyLoss, IsPyTorchs) {
  const Stored stored;
  int cases = 0;
  for (const auto& [key, text] : stored.metadata) {
    const HostTensor& x = stored[key + ".logits"];
    const HostTensor& labels = stored[key + ".labels"];
    const HostTensor& want = stored[key + ".loss"];
    Ir ir;
    const auto [factories, forward] =
        nn::create_graph(ir, nn::CrossEntropyLoss(options_of(text)), x.spec(), labels.spec());
    Interpreter interpreter(ir);
    const HostTensor loss = interpreter.evaluate(forward.graph(), {x, labels})[0];
    expect_close(loss, want, key);
    Graph& main = ir.main_graph();
    const Tensor logits = main.constant(x), truth = main.constant(labels);
    const nn::GraphWithNamedArgs backward =
        nn::autodiff(forward, {.grads_provided = Tensors{forward.graph().outputs()[0]},
                               .grads_required = Tensors{forward.graph().inputs()[0]}});
    HostTensor scale(want.spec());
    float next = 0;
    for (float& s : scale.as<float>()) s = ++next;
    const CallSiteInfo call = forward.call_with_info(logits, truth);
    const Tensors gradients =
        backward.call(main.constant(scale), backward.grad_graph_info().inputs_dict(call));
    const D2hStream out = main.host_store(gradients[0], "gradient");
    Session session(ir, {.device = cpu_device({.threads = 1})});
    expect_close(session.run({})[out], stored[key + ".grad"], key + " gradient");
    ++cases;
  }
  EXPECT_EQ(cases, 12);
}

}  // namespace
}  // namespace sluice::test
