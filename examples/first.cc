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
  const train::Options options{.learning_rate = 1e-3,
                               .session = {.device = cpu_device({.memory = 3_MiB})}};
  train::TrainingModel model = train::training_model(train::classifier(Net(), {{8, 784}, f32}),
                                                     options, nn::Optimizer::adam());

  const data::Samples digits = data::load_digits(data::Split::kTrain, folder);
  const train::FitResult fit = train::fit(model, data::from_samples(digits));
  fmt::print("trained {} steps on {}, loss {:.4f}\n", fit.updates, digits.source, fit.loss);
  train::InferenceModel test = train::inference_model(model);
  const data::Samples tests = data::load_digits(data::Split::kTest, folder);
  const double accuracy = *train::evaluate(test, data::from_samples(tests))["accuracy"];
  fmt::print("accuracy {:.2f} %\n", accuracy);
}
