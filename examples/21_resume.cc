/// Lesson 21: a training that is saved, stopped, and resumed under another strategy. The model that
/// continues runs in phases, with its variables in host memory. It ends with the bits of a training
/// that never stopped.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <unistd.h>
#include <filesystem>
#include <string>

using namespace sluice;

namespace {

constexpr int64_t kMicroBatch = 8;
constexpr int64_t kAccumulate = 4;

// Layers with dropout, whose draws depend on the update.
class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::gelu(fc1_(b, x));
    x = b.inlined("dropout", nn::Dropout(0.1), x);
    return fc2_(b, x);
  }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 64};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 3};
};

// Sample k has twenty features; those of its class are larger.
data::Dataset samples() {
  return data::from_function(1000, [](int64_t k) -> data::Element {
    HostTensor x({{20}, f32});
    for (int64_t i = 0; i < 20; ++i)
      x.as<float>()[i] = static_cast<float>(i % 3 == k % 3) + static_cast<float>(k * i * i % 7) / 7;
    return {{"input", x}, {"labels", HostTensor::of<int32_t>({}, i32, {int32_t(k % 3)})}};
  });
}

train::TrainingModel make_model(train::Strategy strategy, train::TensorLocations locations = {}) {
  return train::training_model(
      train::classifier(Net(), {{kMicroBatch, 20}, f32}),
      {.strategy = strategy, .accumulate = kAccumulate, .locations = locations, .seed = 1},
      nn::Optimizer::adam());
}

// The state of the run, and whether all variables have the bits of another model's.
void show(const char* name, train::TrainingModel& model, train::TrainingModel* other = nullptr) {
  const train::Run run = model.run();
  fmt::print("{}: {} updates, epoch {}, {} samples of it\n", name, run.updates, run.epoch,
             run.epoch_samples);
  if (other == nullptr) return;
  bool equal = run.losses_hash == other->run().losses_hash;
  for (const std::string& path : model.programs().variables.keys_flat())
    equal = equal && model.weight(path).same_bits(other->weight(path));
  fmt::print("the bits of the training that never stopped: {}\n", equal ? "yes" : "no");
}

}  // namespace

int main() {
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("sluice-lesson-{}", ::getpid()))
          .string();
  const data::Dataset data = samples();

  train::TrainingModel whole = make_model(train::resident());
  train::fit(whole, data, {.calls = 100});
  show("never stopped", whole);
  {
    train::TrainingModel first = make_model(train::resident());
    train::Checkpoints checkpoints(first, {.folder = folder, .save_every = 20, .keep = 2});
    const auto stop = [](const train::CallReport& report) { return report.call < 70; };
    train::fit(first, data, {.calls = 100, .checkpoints = &checkpoints, .after_call = stop});
    show("stopped", first);
  }
  for (const train::CheckpointInfo& c : train::inspect_checkpoints(folder))
    fmt::print("checkpoint of {} updates, {} variables\n", c.run.updates, c.variables);

  train::TrainingModel second = make_model(train::phased(), train::TensorLocations::phased());
  const train::Resumed resumed = train::resume(second, folder);
  train::fit(second, data, {.calls = 100 - resumed.run.updates});
  show("resumed in phases", second, &whole);
  std::filesystem::remove_all(folder);
  return 0;
}
