/// README's first program: trains a network of two layers on the digits and tests it.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;

// A linear layer and GELU.
class Hidden : public nn::Module {
 public:
  explicit Hidden(int64_t features) : linear_(features) {}
  Tensor build(nn::Builder& b, Tensor x) const { return ops::gelu(linear_.build(b, x)); }
  std::string cache_key() const { return linear_.cache_key(); }

 private:
  nn::Linear linear_;
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";  // Folder of the MNIST files.
  train::Trainer trainer(
      {.blocks = {{"fc1", Hidden(128)}, {"fc2", nn::Linear(10)}}, .input = {{8, 784}, f32}},
      nn::Optimizer::adam(), {.strategy = train::Strategy::kResident, .learning_rate = 1e-3},
      {.device = cpu_device({.memory = 3_MiB})});

  const data::Dataset digits = data::load_digits(data::Split::kTrain, folder);
  const train::FitResult fit = trainer.fit(digits, {.epochs = 1});
  fmt::print("trained {} steps on {}, loss {:.4f}\n", fit.steps, digits.source, fit.loss);
  const double accuracy = trainer.evaluate(data::load_digits(data::Split::kTest, folder));
  fmt::print("accuracy {:.2f} %\n", accuracy);
}
