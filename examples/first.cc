/// README's first program: trains a network of two layers on the digits and tests it.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;

class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return fc2_(b, ops::gelu(fc1_(b, x))); }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 128};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 10};
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";  // Folder of the MNIST files.
  train::Trainer trainer(train::classifier(Net(), {{8, 784}, f32}), nn::Optimizer::adam(),
                         {.strategy = train::resident(), .learning_rate = 1e-3},
                         {.device = cpu_device({.memory = 3_MiB})});

  const data::Samples digits = data::load_digits(data::Split::kTrain, folder);
  const train::FitResult fit = trainer.fit(digits, {.epochs = 1});
  fmt::print("trained {} steps on {}, loss {:.4f}\n", fit.steps, digits.source, fit.loss);
  const double accuracy = trainer.evaluate(data::load_digits(data::Split::kTest, folder));
  fmt::print("accuracy {:.2f} %\n", accuracy);
}
