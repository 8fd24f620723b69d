// Tests that the trainings of docs/howto/long_runs.md do what the page describes. The page shows
// the code between the marks.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "sluice/base/error.h"
#include "sluice/data/synthetic_digits.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/fit.h"

namespace sluice {
namespace {

class LongRuns : public testing::Test {
 protected:
  LongRuns() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    std::filesystem::current_path(folder_);
  }
  ~LongRuns() override {
    std::filesystem::current_path(std::filesystem::temp_directory_path());
    std::filesystem::remove_all(folder_);
  }

  train::TrainingModel model() const {
    return train::training_model(train::classifier(nn::Linear(10), {{8, 784}, f32}), options_,
                                 nn::Optimizer::adam());
  }
  static std::string bits_of(train::TrainingModel& model) {
    const HostTensor weight = model.weight("weight");
    return {reinterpret_cast<const char*>(weight.bytes().data()), weight.bytes().size()};
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("sluice_long_runs_{}", ::getpid());
  train::Options options_{.learning_rate = 1e-3, .session = {.device = cpu_device({.threads = 1})}};
  data::Dataset digits_ = data::from_samples(data::synthetic_digits(200, 1));
};

TEST_F(LongRuns, FitContinuesACheckpoint) {
  train::TrainingModel whole = model();
  train::fit(whole, digits_, {.calls = 40});
  {
    train::TrainingModel model = this->model();
    const data::Dataset& digits = digits_;
    // --- Code of the page.
    train::Checkpoints checkpoints(model, {.folder = "run", .save_every = 500, .keep = 3});
    train::fit(model, digits, {.calls = 30, .checkpoints = &checkpoints});
    // --- End of the code.
    EXPECT_EQ(model.updates(), 30);
  }
  train::TrainingModel model = this->model();
  const data::Dataset& digits = digits_;
  // --- Code of the page.
  train::resume(model, "run");
  train::fit(model, digits, {.calls = 10});
  // --- End of the code.
  EXPECT_EQ(model.updates(), 40);
  EXPECT_EQ(bits_of(model), bits_of(whole));
}

TEST_F(LongRuns, ALoopByHandContinuesACheckpoint) {
  const train::Options options = options_;
  const data::Dataset& digits = digits_;
  const auto train_to = [&](train::TrainingModel& model, const std::string& folder, int64_t steps) {
    std::vector<float> losses;
    const auto use = [&](const HostTensor& loss) { losses.push_back(loss.as<float>()[0]); };
    // --- Code of the page.
    try {
      train::resume(model, folder);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kNoCheckpoint) throw;
    }
    train::Checkpoints checkpoints(model, {.folder = folder, .save_every = 500});
    train::DataLoader loader(options, digits,
                             {.batch_size = 8, .shuffle = data::Shuffle::kYes, .seed = 1});
    loader.start_at(model);
    while (model.updates() < steps) {
      const data::Element* item = loader.next();
      if (item == nullptr) {
        loader.start_at(model);  // The next epoch.
        continue;
      }
      const data::Element results = model(*item);
      use(results["loss"]);
      checkpoints.after_call();
    }
    checkpoints.save();
    checkpoints.wait();  // Throws the error of the last save.
    // --- End of the code.
    return losses;
  };
  train::TrainingModel whole = model(), first = model(), second = model();
  const std::vector<float> expected = train_to(whole, "whole", 60);
  std::vector<float> losses = train_to(first, "run", 33);
  const std::vector<float> others = train_to(second, "run", 60);
  EXPECT_EQ(others.size(), 27u);
  losses.insert(losses.end(), others.begin(), others.end());
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(bits_of(second), bits_of(whole));
}

TEST_F(LongRuns, TheBestVariablesRemain) {
  train::TrainingModel model = this->model();
  const data::Dataset& digits = digits_;
  // --- Code of the page.
  const std::vector<data::Dataset> parts = digits.split({0.9, 0.1}, 7);
  train::InferenceModel validation = train::inference_model(model);
  train::DataLoader held_out(validation.options(), parts[1],
                             {.batch_size = 8, .remainder = data::Remainder::kKeep});
  const train::FitResult result = train::fit(model, parts[0],
                                             {.epochs = 50,
                                              .validation_model = &validation,
                                              .validation_data = &held_out,
                                              .patience = 3,
                                              .save_best = "best.safetensors",
                                              .metric = "accuracy"});
  fmt::print("best {} {:.2f} after {} updates\n", result.best.metric, *result.best.value,
             result.best.updates);
  // --- End of the code.
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.validations.back().updates, model.updates());
  EXPECT_EQ(train::evaluate(validation, held_out)["accuracy"], result.best.value);
  EXPECT_LT(result.best.updates, model.updates());
  EXPECT_EQ(train::evaluate(validation, held_out).samples, 20);
}

}  // namespace
}  // namespace sluice
