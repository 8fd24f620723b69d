/// Lesson 5: train four layers on the digits for an epoch and test them (document 004). Uses the
/// MNIST files in the folder given as argument, in $SLUICE_DATA or in data/mnist. Without such
/// files it uses generated digits.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

// Four linear layers whose first weights are N(0, 0.02), with GELU between them.
class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto* layer : {&fc1_, &fc2_, &fc3_}) x = ops::gelu((*layer)(b, x));
    return fc4_(b, x);
  }

 private:
  using Layer = nn::Child<nn::Linear>;
  static constexpr auto kNormal = nn::WeightInit::kNormal;
  Layer fc1_{*this, "fc1", 512, nn::Bias::kAdd, kNormal};
  Layer fc2_{*this, "fc2", 512, nn::Bias::kAdd, kNormal};
  Layer fc3_{*this, "fc3", 512, nn::Bias::kAdd, kNormal};
  Layer fc4_{*this, "fc4", 10, nn::Bias::kAdd, kNormal};
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const data::Samples digits = data::load_digits(data::Split::kTrain, folder);
  const data::Samples tests = data::load_digits(data::Split::kTest, folder);

  // The model differentiates the network. It has one program to train and one to evaluate, which
  // share the weights.
  train::TrainingModel model = train::training_model(
      train::classifier(Net(), {{8, 28 * 28}, f32}, {.eval_input = TensorSpec{{80, 28 * 28}, f32}}),
      {.learning_rate = 0.05, .session = {.device = cpu_device({.memory = 16_MiB})}},
      nn::Optimizer::sgd());
  train::InferenceModel test = train::inference_model(model);
  const train::FitResult fit = train::fit(model, data::from_samples(digits));
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", fit.updates, digits.source, fit.loss);
  const double accuracy = *train::evaluate(test, data::from_samples(tests))["accuracy"];
  fmt::print("Accuracy on test set: {:.2f}%\n", accuracy);
  return accuracy >= 96.0 ? 0 : 1;
}
