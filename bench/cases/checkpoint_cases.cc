#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include <unistd.h>

#include "bench/figure.h"
#include "sluice/base/sys.h"
#include "sluice/base/system/folder.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/models/model.h"
#include "sluice/train/checkpoints/checkpoints.h"
#include "sluice/train/fit.h"

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Goals: a training waits for a save at most 1.5 times as long as for a copy of the bytes; resuming
// takes at most twice the time of reading; with a save every 200 steps of 10 ms or more, the rate
// falls by at most 3 % with a free core, and by 8 % without.
constexpr double kCopyPart = 1 / 1.5, kReadPart = 0.5, kFreePart = 0.97, kSharedPart = 0.92;
constexpr int64_t kStepsOfSave = 200;

template <typename F>
double seconds_of(const F& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Widths of perceptrons with 99 MB and 1.0 GB of weights and momentum.
constexpr int64_t kSavedWidth = 2300, kLargeSavedWidth = 7710;

/// A perceptron with momentum, its samples, and a folder for checkpoints.
class SavedTraining {
 public:
  explicit SavedTraining(int threads, int64_t width = kSavedWidth)
      : folder_((std::filesystem::temp_directory_path() /
                 fmt::format("sluice-bench-{}-{}", ::getpid(), threads))
                    .string()),
        model_(make_model(threads, width)) {
    std::filesystem::remove_all(folder_);
    HostTensor input({{kBatch, 28, 28}, f32}), labels({{kBatch}, i32});
    for (float& x : input.as<float>()) x = 0.5f;
    item_ = {{"input", std::move(input)}, {"labels", std::move(labels)}};
    model_(item_);
  }
  ~SavedTraining() { std::filesystem::remove_all(folder_); }
  SavedTraining(const SavedTraining&) = delete;
  SavedTraining& operator=(const SavedTraining&) = delete;

  train::Checkpoints& checkpoints() {
    if (!checkpoints_)
      checkpoints_.emplace(model_, train::CheckpointOptions{.folder = folder_, .keep = 1});
    return *checkpoints_;
  }
  void step() { model_(item_); }
  train::TrainingModel& model() { return model_; }

 private:
  static constexpr int64_t kBatch = 32;

  static train::TrainingModel make_model(int threads, int64_t width) {
    models::Sizes sizes;
    sizes.width = width;
    sizes.micro_batch = kBatch;
    train::Options options{.learning_rate = 1e-4};
    options.session.device = cpu_device({.threads = threads});
    return train::training_model(models::find_model("mnist").build(sizes), options,
                                 nn::Optimizer::sgd({.momentum = 0.9}));
  }

  std::string folder_;
  train::TrainingModel model_;
  data::Element item_;
  std::optional<train::Checkpoints> checkpoints_;
};

Case wait_case() {
  return {.group = "checkpoint",
          .name = "wait for a save, limit: a copy of the bytes",
          .unit = Unit::kMilliseconds,
          .goals = {{Goal::Of::kPart, kCopyPart}},
          .start = []() -> std::function<Round()> {
            auto training = std::make_shared<SavedTraining>(1);
            auto& checkpoints = training->checkpoints();
            const auto bytes = static_cast<size_t>(checkpoints.statistics().bytes);
            auto from = std::make_shared<std::vector<std::byte>>(bytes, std::byte(1));
            auto to = std::make_shared<std::vector<std::byte>>(bytes);
            return [training, &checkpoints, from, to] {
              training->step();
              const double saved = seconds_of([&] { checkpoints.save(); });
              checkpoints.wait();
              const double copied =
                  seconds_of([&] { std::memcpy(to->data(), from->data(), from->size()); });
              return Round{saved, copied};
            };
          }};
}

Case resume_case(const char* name, int64_t width) {
  return {.group = "checkpoint",
          .name = name,
          .unit = Unit::kMilliseconds,
          .goals = {{Goal::Of::kPart, kReadPart}},
          .start = [width]() -> std::function<Round()> {
            auto training = std::make_shared<SavedTraining>(1, width);
            training->checkpoints().save();
            training->checkpoints().wait();
            return [training] {
              const std::string path = training->checkpoints().newest();
              const double read = seconds_of([&] {
                for (const std::string& name : sys::names_in(path))
                  sys::read_file(path + "/" + name);
              });
              const double resumed = seconds_of([&] { train::resume(training->model(), path); });
              return Round{resumed, read};
            };
          }};
}

Case rate_case(int threads, double part) {
  return {.group = "checkpoint",
          .name = fmt::format("step with a save every {}, limit: without", kStepsOfSave),
          .threads = threads,
          .unit = Unit::kMilliseconds,
          .goals = {{Goal::Of::kPart, part}},
          .start = [threads]() -> std::function<Round()> {
            auto training = std::make_shared<SavedTraining>(threads);
            auto& checkpoints = training->checkpoints();
            return [training, &checkpoints] {
              const auto steps = [&] {
                for (int64_t i = 0; i < kStepsOfSave; ++i) training->step();
              };
              const double without = seconds_of(steps);
              const double with = seconds_of([&] {
                checkpoints.save();
                steps();
              });
              checkpoints.wait();
              return Round{with / kStepsOfSave, without / kStepsOfSave};
            };
          }};
}

}  // namespace

std::vector<Case> checkpoint_cases() {
  std::vector<Case> cases = {wait_case(),
                             resume_case("resume, limit: reading its files", kSavedWidth),
                             resume_case("resume 1 GB, limit: reading its files", kLargeSavedWidth),
                             rate_case(1, kFreePart)};
  cases.push_back(rate_case(2, kSharedPart));
  return cases;
}

}  // namespace sluice::bench
