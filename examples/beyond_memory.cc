/// README's second program: trains 100 MB of weights and state in a file in 5 MiB of device memory.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;

// A residual network of 128 linear layers.
class Deep : public nn::Module {
 public:
  Deep() {
    for (int i = 0; i < 126; ++i) layers_.add(256);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    x = in_(b, x);
    for (const auto& layer : layers_) x = x + 0.1 * ops::relu(layer(b, x));
    return out_(b, x);
  }

 private:
  nn::Child<nn::Linear> in_{*this, "in", 256};
  nn::Children<nn::Linear> layers_{*this, "layers"};
  nn::Child<nn::Linear> out_{*this, "out", 10};
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";  // Folder of the MNIST files.
  train::Options options{.strategy = train::phased(), .accumulate = 4, .learning_rate = 1e-3};
  options.locations = train::TensorLocations::phased();
  options.io_mode = IoMode::kIoOverlapped;
  options.session = {.device = cpu_device({.memory = 5_MiB}), .remote = "file:/var/tmp"};
  auto model = train::training_model(train::classifier(Deep(), {{8, 784}, f32}), options,
                                     nn::Optimizer::adam());
  int64_t bytes = 0;
  for (const nn::NamedTensors& tree : {model.programs().variables, model.programs().state})
    for (const Tensor& variable : tree.tensors()) bytes += variable.spec().bytes();
  const int64_t device = model.session().measured_bytes();
  fmt::print("{} bytes of weights and state, {} bytes of device memory\n", bytes, device);
  const auto digits = data::from_samples(data::load_digits(data::Split::kTrain, folder));
  for (int i = 0; i < 4; ++i)
    fmt::print("loss {:.4f}\n", train::fit(model, digits, {.calls = 5}).loss);
}
