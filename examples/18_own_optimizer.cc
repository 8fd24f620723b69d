/// Lesson 18: an optimizer of one's own. A module with named state, which updates one variable,
/// trains a model in any strategy. Lesson 6 calls such a module by hand.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

// Lion (Chen et al., 2023): the update is the sign of an averaged gradient.
struct Lion : nn::Module {
  void build(nn::Builder& b, Tensor variable, Tensor grad, Tensor step_size) const {
    const Tensor mean = nn::add_state(b, "mean", variable);
    const Tensor g = ops::cast(grad, f32);
    ops::scaled_add_(variable, ops::sign(mean * 0.9 + g * 0.1), 1.0, step_size);
    ops::accumulate_moving_average_(mean, g, 0.99);
  }
  std::string cache_key() const { return ""; }
};

data::Element sample(int64_t k) {
  const float x = static_cast<float>(k % 17) / 8 - 1, y = static_cast<float>(k % 5) / 2 - 1;
  return {{"input", HostTensor::of<float>({2}, f32, {x, y})},
          {"labels", HostTensor::of<int32_t>({}, i32, {x * y > 0 ? 1 : 0})}};
}

int main() {
  const nn::Sequential net(nn::Linear(32), nn::Tanh(), nn::Linear(2));
  const auto samples = data::from_function(1000, sample);
  for (const auto& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    train::TrainingModel model =
        train::training_model(train::classifier(net, {{10, 2}, f32}), {.strategy = strategy},
                              nn::Optimizer::custom(Lion(), 0.01));
    const train::FitResult result = train::fit(model, samples, {.epochs = 3});
    fmt::print("loss {:.4f} after {} updates\n", result.loss, result.updates);
  }
}
