/// Lesson 12: stages. The network of document 002 has four blocks. Here each runs on a device of
/// its own: pipelined, where the devices work on different micro-batches, and sharded, where one
/// micro-batch at a time runs through all. The results have the bits of one device.
#include <fmt/core.h>

#include <sluice/sluice.h>

using namespace sluice;

namespace {

constexpr int64_t kMicroBatch = 40;
constexpr int64_t kAccumulate = 10;

// A 5 x 5 convolution, the largest of 2 x 2 elements, and ReLU.
class ConvLayer : public nn::Module {
 public:
  explicit ConvLayer(int64_t channels)
      : conv_(*this, "conv", nn::ConvOptions{.channels = channels, .kernel = {5}}) {}
  Tensor build(nn::Builder& b, Tensor x) const { return ops::relu(pool_(b, conv_(b, x))); }

 private:
  nn::Child<nn::Conv2d> conv_;
  nn::Child<nn::MaxPool2d> pool_{*this, "pool", ops::PoolOptions{.kernel = {2}}};
};

class Net : public nn::Module {
 public:
  Net() {
    nn::begin_block(layer1_, "B1");
    nn::begin_block(layer2_, "B2");
    nn::begin_block(layer4_, "B4");
  }

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = layer2_(b, layer1_(b, in["input"]));
    {
      const nn::Block block(b, "B3");  // The reshape belongs to B3, too.
      x = ops::relu(layer3_(b, ops::flatten(x, 1)));
    }
    x = layer4_(b, x);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x, "labels"}}};
    return {.losses = {train::cross_entropy(x, in["labels"])},
            .predictions = {{"logits", x, "labels"}}};
  }

 private:
  nn::Child<ConvLayer> layer1_{*this, "layer1", 10};
  nn::Child<ConvLayer> layer2_{*this, "layer2", 20};
  nn::Child<nn::Linear> layer3_{*this, "layer3", 256};
  nn::Child<nn::Linear> layer4_{*this, "layer4", 10};
};

// Images of a bar. Its column is the label.
data::Samples bars(int64_t n) {
  data::Samples set{HostTensor({{n, 1, 28, 28}, f32}), HostTensor({{n}, i32}), "bars"};
  const auto pixels = set.images.as<float>();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const size_t label = i * 7 % 10, first = i % 20;  // The bar's column and upper end.
    set.labels.as<int32_t>()[i] = static_cast<int32_t>(label);
    for (size_t row = first; row < first + 8; ++row)
      pixels[(i * 28 + row) * 28 + 2 + 2 * label] = 1;
  }
  return set;
}

// Trains for five steps. Returns the losses of all micro-batches.
train::FitResult fit(const char* name, const train::Strategy& strategy) {
  const TensorSpec image{{kMicroBatch, 1, 28, 28}, f32, {}};
  train::TrainingModel model = train::training_model(
      {Net(), {{.name = "input", .spec = image}, {.name = "labels", .spec = {{kMicroBatch}, i32}}}},
      {.strategy = strategy,
       .accumulate = kAccumulate,
       .output = train::Output::all(),
       .learning_rate = 1e-3,
       .session = {.device = cpu_device({.threads = 2})}},
      nn::Optimizer::adamw());
  const train::FitResult result = train::fit(model, data::from_samples(bars(2000)), {.calls = 5});
  const int devices = model.programs().devices;
  fmt::print("{:<10} {} devices, loss {:.4f}; bytes of each:", name, devices, result.loss);
  for (int d = 0; d < devices; ++d) fmt::print(" {}", model.session().planned_bytes(d));
  fmt::print("\n");
  return result;
}

}  // namespace

int main() {
  const train::FitResult one = fit("resident", train::resident());
  // Blocks on devices 0 to 3. Stages of several blocks, and their devices, have names too:
  // train::pipelined(train::Stage("B1", "B2").device(0), train::Stage("B3", "B4").device(1)).
  const train::FitResult pipelined = fit("pipelined", train::pipelined("B1", "B2", "B3", "B4"));
  const train::FitResult sharded = fit("sharded", train::sharded("B1", "B2", "B3", "B4"));
  // Two stages of about equal time, which keep fewer micro-batches in flight.
  const train::FitResult two =
      fit("two stages", train::PipelinedExecution{2, train::Schedule::kInterleaved});
  const bool same =
      one.losses == pipelined.losses && one.losses == sharded.losses && one.losses == two.losses;
  fmt::print("the same bits: {}\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
