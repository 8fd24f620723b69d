// Tests the code of docs/howto/from_pytorch.md: the page shows what is between the marks. The
// state_dict, an input and PyTorch's output of it are those of tests/models/torch_layers.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "sluice/base/safetensors.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

// --- Code of the page.
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
// --- End of the code.

TEST(FromPyTorch, AModuleGivesPyTorchsOutputAndGoesBack) {
  const std::string net_file = "tests/models/torch_layers.safetensors";
  const std::string trained_file = testing::TempDir() + "from_pytorch_test.safetensors";
  HostTensor input, output;
  for (NamedArray& a : read_safetensors_file(net_file)) {
    if (a.name == "input")
      input = std::move(a.array);
    else if (a.name == "output")
      output = std::move(a.array);
  }
  // --- Code of the page.
  train::TrainingModel model =
      train::training_model(train::classifier(Net(), f32_spec({3, 2, 8, 8})),
                            {.learning_rate = 0.01}, nn::Optimizer::adam());
  const std::vector<std::string> unknown =
      train::load_torch_weights(model.session(), model.programs(), net_file);
  for (const std::string& name : unknown) fmt::print("left out: {}\n", name);

  train::InferenceModel test = train::inference_model(model);
  const HostTensor logits = test({{"input", input}})["logits"];
  double largest = 0;
  for (size_t i = 0; i < logits.to_doubles().size(); ++i)
    largest = std::max(largest, std::abs(logits.to_doubles()[i] - output.to_doubles()[i]));
  fmt::print("largest difference from PyTorch: {:.1e}\n", largest);
  // --- End of the code.
  EXPECT_LT(largest, 1e-5);
  EXPECT_EQ(std::count(unknown.begin(), unknown.end(), "bn.num_batches_tracked"), 1);
  HostTensor labels = HostTensor::of<int32_t>({3}, i32, {0, 1, 2});
  // --- Code of the page.
  for (int step = 0; step < 10; ++step) model({{"input", input}, {"labels", labels}});
  train::save_torch_weights(model.session(), model.programs(), trained_file);
  // --- End of the code.
  // The file has the names and shapes of the first one, and its values are the trained ones.
  train::TrainingModel again = train::training_model(
      train::classifier(Net(), f32_spec({3, 2, 8, 8})), {}, nn::Optimizer::adam());
  EXPECT_TRUE(train::load_torch_weights(again.session(), again.programs(), trained_file).empty());
  EXPECT_TRUE(again.weight("fc.weight").same_bits(model.weight("fc.weight")));
  EXPECT_NE(test({{"input", input}})["logits"].to_doubles(), logits.to_doubles());
  std::remove(trained_file.c_str());
}

}  // namespace
}  // namespace sluice
