/// Lesson 5: train four layers on the digits for an epoch and test them (document 004). Uses the
/// MNIST files in the folder given as argument, in $SLUICE_DATA or in data/mnist. Without such
/// files it uses generated digits.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

enum class Activation { kNone, kGelu };

// A linear layer whose first weights are N(0, 0.02), and its activation.
class Layer : public nn::Module {
 public:
  explicit Layer(int64_t features, Activation activation = Activation::kGelu)
      : linear_(features, nn::Bias::kAdd, nn::WeightInit::kNormal), activation_(activation) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor y = linear_.build(b, x);
    return activation_ == Activation::kGelu ? ops::gelu(y) : y;
  }
  // Blocks of equal keys and equal inputs share one graph: those of fc2 and fc3.
  std::string cache_key() const {
    return fmt::format("{} {}", linear_.cache_key(), static_cast<int>(activation_));
  }

 private:
  nn::Linear linear_;
  Activation activation_;
};

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "";
  const data::Dataset digits = data::load_digits(data::Split::kTrain, folder);
  const data::Dataset tests = data::load_digits(data::Split::kTest, folder);

  // The trainer differentiates the model, and builds one program to train and one to evaluate.
  train::Trainer trainer({.blocks = {{"fc1", Layer(512)},
                                     {"fc2", Layer(512)},
                                     {"fc3", Layer(512)},
                                     {"fc4", Layer(10, Activation::kNone)}},
                          .input = {{8, 28 * 28}, f32},
                          .eval_input = {{80, 28 * 28}, f32}},
                         nn::Optimizer::sgd(),
                         {.strategy = train::Strategy::kResident, .learning_rate = 0.05},
                         {.device = cpu_device({.memory = 16_MiB})});
  const train::FitResult fit = trainer.fit(digits, {.epochs = 1});
  fmt::print("trained {} steps on {}, last loss {:.4f}\n", fit.steps, digits.source, fit.loss);
  const double accuracy = trainer.evaluate(tests);
  fmt::print("Accuracy on test set: {:.2f}%\n", accuracy);
  return accuracy >= 96.0 ? 0 : 1;
}
