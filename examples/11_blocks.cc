/// Lesson 11: blocks. A network names the parts that a strategy may run separately. Here is one
/// with a skip and two losses, trained as a whole and in phases: the results have the same bits.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <cmath>
#include <string>

using namespace sluice;

namespace {

constexpr int64_t kMicroBatch = 16;
constexpr int64_t kWidth = 32;

// A linear layer and GELU.
struct Hidden : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return ops::gelu(nn::Linear(kWidth).build(b, x)); }
};

class Net : public nn::Module {
 public:
  Net() {
    first_.in_block("B1");              // The ops of this submodule.
    nn::begin_block(middle_[0], "B2");  // From this submodule on, until another block begins.
    nn::begin_block(middle_[1], "B3");
    nn::begin_block(middle_[2], "B4");
  }

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const Tensor first = first_(b, in["input"]);
    Tensor x = first;
    for (const auto& layer : middle_) x = x + layer(b, x);
    const bool trains = in.mode() == nn::RunMode::kTrain;
    train::Results results;
    if (trains)  // Still block B4, because nothing has ended it.
      results.losses = {{.name = "size", .value = ops::mean(x * x), .weight = 0.001}};
    {
      const nn::Block block(b, "B5");             // Until the end of the scope.
      const Tensor logits = last_(b, x + first);  // A skip over B2, B3 and B4.
      results.predictions = {{"logits", logits, "labels"}};
    }
    if (trains) {
      const nn::Block again(b, "B5");  // A block may be opened again.
      results.losses.push_back(train::cross_entropy(results.predictions[0].value, in["labels"]));
    }
    return results;
  }

 private:
  using Layer = nn::Child<Hidden>;
  Layer first_{*this, "first"};
  Layer middle_[3] = {{*this, "middle0"}, {*this, "middle1"}, {*this, "middle2"}};
  nn::Child<nn::Linear> last_{*this, "last", 2};
};

// Points of a square. Those in a circle around its middle have the label 1.
data::Samples points(int64_t n) {
  data::Samples set{HostTensor({{n, 2}, f32}), HostTensor({{n}, i32}), "points"};
  const auto at = set.images.as<float>();
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    for (const auto& [axis, step] : {std::pair(0u, 0.754877666), std::pair(1u, 0.569840291)}) {
      const double turn = static_cast<double>(i + 1) * step;
      at[2 * i + axis] = static_cast<float>(2 * (turn - std::floor(turn)) - 1);
    }
    const double square = at[2 * i] * at[2 * i] + at[2 * i + 1] * at[2 * i + 1];
    set.labels.as<int32_t>()[i] = square < 0.6 ? 1 : 0;
  }
  return set;
}

// Trains the network. Returns the losses of all micro-batches.
train::FitResult fit(train::Strategy strategy) {
  const train::Location location = std::holds_alternative<train::PhasedExecution>(strategy)
                                       ? train::Location::kRemote
                                       : train::Location::kDevice;
  train::TrainingModel model = train::training_model(
      {Net(),
       {{.name = "input", .spec = {{kMicroBatch, 2}, f32}},
        {.name = "labels", .spec = {{kMicroBatch}, i32}}}},
      {.strategy = strategy,
       .accumulate = 4,
       .output = train::Output::all(),
       .locations = {.optimizer = location, .weights = location, .activations = location},
       .learning_rate = 0.005,
       .session = {.device = cpu_device({.threads = 2})}},
      nn::Optimizer::adam());
  const train::FitResult result =
      train::fit(model, data::from_samples(points(1024)), {.epochs = 20});
  fmt::print("{} steps, loss {:.4f}, training accuracy {:.1f} %, {} bytes of device memory\n",
             result.updates, result.loss, *result.accuracy, model.session().planned_bytes());
  const std::string plan = model.plan().summary();
  const size_t phases = plan.find("phases of ");
  if (phases != std::string::npos)
    fmt::print("{}\n", plan.substr(phases, plan.find('\n', phases) - phases));
  return result;
}

}  // namespace

int main() {
  // A micro-batch runs through all blocks before the next one.
  const train::FitResult whole = fit(train::resident());
  // A block runs all micro-batches before the next block. Values that cross blocks, weights and the
  // optimizer's state wait in remote memory.
  const train::FitResult phased = fit(train::phased());
  const bool same = whole.losses == phased.losses && whole.parts == phased.parts;
  fmt::print("{} losses, the same bits: {}\n", whole.losses.size(), same ? "yes" : "no");
  return same ? 0 : 1;
}
