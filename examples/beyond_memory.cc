/// README's second program: trains 100 MB of weights and optimizer state, which a file holds, in
/// 5 MiB of device memory.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;

// A linear layer and ReLU.
class Hidden : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return ops::relu(linear_.build(b, x)); }
  std::string cache_key() const { return linear_.cache_key(); }

 private:
  nn::Linear linear_{256, nn::Bias::kAdd, nn::WeightInit::kHe};
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";  // Folder of the MNIST files.
  train::ModelSpec model{.input = {{8, 784}, f32}};
  for (int i = 1; i < 128; ++i) model.blocks.emplace_back(fmt::format("fc.{}", i), Hidden());
  model.blocks.emplace_back("out", nn::Linear(10));
  train::Trainer trainer(model, nn::Optimizer::adam(),
                         {.strategy = train::Strategy::kPhased,
                          .accumulate = 4,
                          .offload = {.optimizer = true, .weights = true},
                          .io_mode = IoMode::kIoOverlapped,
                          .learning_rate = 1e-3},
                         {.device = cpu_device({.memory = 5_MiB}), .remote = "file:/var/tmp"});

  int64_t bytes = 0;
  for (const nn::NamedTensors& tree : {trainer.training().variables, trainer.training().state})
    for (const Tensor& variable : tree.tensors()) bytes += variable.spec().bytes();
  const int64_t device = trainer.session().measured_bytes();
  fmt::print("{} bytes of weights and state, {} bytes of device memory\n", bytes, device);
  const data::Dataset digits = data::load_digits(data::Split::kTrain, folder);
  for (int i = 0; i < 4; ++i) fmt::print("loss {:.4f}\n", trainer.fit(digits, {.steps = 5}).loss);
}
