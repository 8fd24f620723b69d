/// README's third program: trains on samples that a function makes.
#include <fmt/core.h>
#include <sluice/sluice.h>
using namespace sluice;
class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    return fc2_(b, drop_(b, ops::relu(fc1_(b, x))));  // Evaluation drops nothing.
  }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 32};
  nn::Child<nn::Dropout> drop_{*this, "drop", 0.1};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 3};
};

// Sample k: twenty features with noise; those of its class are larger.
data::Element sample(int64_t k) {
  const auto label = HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(k % 3)});
  HostTensor x({{20}, f32});
  for (int64_t i = 0; i < 20; ++i)
    x.as<float>()[i] = static_cast<float>(i % 3 == k % 3) + static_cast<float>((k * i * i) % 7) / 7;
  return {{"input", x}, {"labels", label}};
}

int main() {
  const auto samples = data::from_function(3000, sample);
  auto model =
      train::training_model(train::classifier(Net(), {{10, 20}, f32}), {}, nn::Optimizer::adam());
  train::fit(model, samples.take(2700), {.epochs = 2, .show = train::Show::kProgress});
  auto test = train::inference_model(model);
  fmt::print("{}\n", to_string(train::evaluate(test, samples.skip(2700))));
}
