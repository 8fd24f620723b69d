#include "sluice/train/run/training_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/base/failpoint.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/losses.h"
#include "sluice/ops/reductions.h"
#include "sluice/train/fit.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

struct LoggedNet : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits = b.inlined("out", nn::Linear(3), in["input"]);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits, "labels"}}};
    return {.losses = {cross_entropy(logits, in["labels"]),
                       {.name = "a,b", .value = ops::mean(logits * logits), .weight = 0.25}},
            .predictions = {{"logits", logits, "labels"}}};
  }
};

TrainingModel new_model(int64_t iterations = 1) {
  return training_model({LoggedNet(), {{"input", {{2, 6}, f32, {}}}, {"labels", {{2}, i32, {}}}}},
                        {.accumulate = 2,
                         .device_iterations = iterations,
                         .output = Output::all(),
                         .learning_rate = 0.5,
                         .session = {.device = cpu_device({.threads = 1})}});
}

class Log : public testing::Test {
 protected:
  Log() : folder_(testing::TempDir() + fmt::format("sluice_log_{}/runs/1", ::getpid())) {}
  ~Log() override { fs::remove_all(fs::path(folder_).parent_path().parent_path()); }

  // The lines of metrics.csv without the measured columns, rates and seconds.
  std::vector<std::string> lines() const {
    std::ifstream file(folder_ + "/metrics.csv");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      std::istringstream cells(line);
      std::string kept, cell;
      for (int column = 0; std::getline(cells, cell, ','); ++column) {
        if (column != 3 && column != 5) kept += cell + ';';
      }
      lines.push_back(kept);
    }
    return lines;
  }

  std::vector<fs::path> event_files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().filename().string().find("tfevents") != std::string::npos)
        found.push_back(entry.path());
    }
    return found;
  }

  const std::string folder_;
};

TEST_F(Log, HasALineForEachCallAndContinues) {
  TrainingModel model = new_model(2), plain = new_model(2);
  // A comma in a quoted name is a separator for lines(), which does not know quotes.
  std::vector<std::string> expected{"step;loss;accuracy;learning_rate;loss/loss;\"loss/a;b\";"};
  FitOptions options{.calls = 3, .log_dir = folder_};
  options.after_call = [&](const CallReport& report) {
    const auto mean = [&](const char* name) {
      double sum = 0;
      for (const float v : report.result(name).as<float>()) sum += static_cast<double>(v) / 4;
      return sum;
    };
    expected.push_back(fmt::format("{};{};{};0.5;{};{};", 2 * expected.size(), report.loss,
                                   *report.accuracy, mean("loss"), mean("a,b")));
    return true;
  };
  const FitResult logged = fit(model, test::dataset(40), options);
  EXPECT_EQ(lines(), expected);
  EXPECT_EQ(logged.losses, fit(plain, test::dataset(40), {.calls = 3}).losses);
  EXPECT_EQ(model.weight("out.weight").to_doubles(), plain.weight("out.weight").to_doubles());
  EXPECT_EQ(logged.log_dir, folder_);
  // A second training of the model adds its lines, and events in a new file.
  fit(model, test::dataset(40), options);
  EXPECT_EQ(lines(), expected);
  EXPECT_EQ(expected.size(), 7u);
  EXPECT_EQ(event_files().size(), 2u);
  // Other trainings have folders of their own, also for their second part.
  TrainingModel other = new_model(2), third = new_model(2);
  options.calls = 1;
  options.after_call = nullptr;
  for (const char* own : {"/run-2", "/run-2"})
    EXPECT_EQ(fit(other, test::dataset(40), options).log_dir, folder_ + own);
  EXPECT_EQ(fit(third, test::dataset(40), options).log_dir, folder_ + "/run-3");
  EXPECT_EQ(lines(), expected);
  EXPECT_EQ(event_files().size(), 2u);
  EXPECT_EQ(fit(model, test::dataset(40), options).log_dir, folder_);
  EXPECT_EQ(lines().size(), 8u);
}

TEST_F(Log, AFullDiskIsOneWarning) {
  TrainingModel plain = new_model();
  const FitResult expected = fit(plain, test::dataset(40), {.calls = 4});
  // The fourth write is that of the events at the end.
  TrainingModel model = new_model();
  sys::set_failpoint({"pwrite", 4, ENOSPC});
  testing::internal::CaptureStderr();
  const FitResult result =
      fit(model, test::dataset(40), {.calls = 4, .log_dir = folder_, .log_histograms = 1});
  const std::string warning = testing::internal::GetCapturedStderr();
  sys::clear_failpoint();
  const std::string events = event_files().at(0).string();
  EXPECT_EQ(warning, "log: cannot write " + events +
                         ": No space left on device; the rest of the training is not logged\n");
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(fs::file_size(events), 40u);
}

TEST_F(Log, WritesNothingAfterAFailure) {
  testing::internal::CaptureStderr();
  {
    TrainingLog log(folder_, {}, std::nullopt, std::chrono::milliseconds(0));
    TrainingLog::Call call;
    log.add(call);
    EXPECT_EQ(lines().size(), 2u);  // At once, not at the end.
    sys::set_failpoint({"pwrite", 1, EIO});
    for (; call.step < 3; ++call.step) log.add(call);
    log.add_numbers(5, {{"number", 1}});
    EXPECT_TRUE(log.failed());
    sys::clear_failpoint();
  }
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(warning.starts_with("log: cannot write ")) << warning;
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(Log, HistogramsAreThoseOfTheVariables) {
  HostTensor large({{70001}, f32, {}});
  for (size_t i = 0; i < 70001; ++i) large.as<float>()[i] = std::sin(static_cast<float>(i));
  HostTensor wrong = HostTensor::of<float>({4}, f32, {1, -2, 4, 0});
  wrong.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const std::map<std::string, HostTensor> values{{"large", large},
                                                 {"half", large.cast(f16)},
                                                 {"brain", large.cast(bf16)},
                                                 {"wrong", wrong},
                                                 {"scalar", HostTensor::scalar(-3)}};
  Ir ir;
  nn::NamedTensors variables;
  for (const auto& [path, value] : values)
    variables.insert(path, ir.main_graph().variable(value, path));
  Session session(ir, {.device = cpu_device({.threads = 1})});
  size_t seen = 0;
  each_histogram(session, variables, [&](const std::string& path, const data::Histogram& h) {
    ++seen;
    double sum = 0, squares = 0, min = 1e9, max = -1e9;
    int64_t finite = 0;
    for (const double v : values.at(path).to_doubles()) {
      if (!std::isfinite(v)) continue;
      ++finite;
      sum += v;
      squares += v * v;
      min = std::min(min, v);
      max = std::max(max, v);
    }
    EXPECT_EQ(h.count(), finite) << path;
    EXPECT_EQ(h.non_finite(), path == "wrong" ? 1 : 0) << path;
    EXPECT_EQ(h.min(), min) << path;
    EXPECT_EQ(h.max(), max) << path;
    EXPECT_NEAR(h.sum(), sum, 1e-9) << path;
    EXPECT_NEAR(h.sum_squares(), squares, 1e-9 * squares) << path;
  });
  EXPECT_EQ(seen, values.size());
}

TEST_F(Log, Refusals) {
  TrainingModel model = new_model();
  const auto run = [&](const FitOptions& options) {
    return [&model, options] { fit(model, test::dataset(40), options); };
  };
  fs::create_directories(folder_);
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  fs::create_directories(folder_ + "/taken/metrics.csv");
  expect_refused({
      {"histograms alone", run({.log_histograms = 3}),
       "fit: log_histograms requires `log_dir`, the folder"},
      {"below zero", run({.log_dir = folder_, .log_histograms = -1}),
       "fit: log_histograms must be at least 0, got -1"},
      {"a file", run({.log_dir = file}),
       "log folder " + file + ": must be a folder that can be written; ", ErrorKind::kIo},
      {"a folder in a file", run({.log_dir = file + "/x"}), "log folder " + file + "/x: must be",
       ErrorKind::kIo},
      {"a folder in the place of the file", run({.log_dir = folder_ + "/taken"}), "metrics.csv",
       ErrorKind::kIo},
  });
  sys::set_failpoint({"pwrite", 1, ENOSPC});
  expect_refused({{"full", run({.log_dir = folder_}), "No space left on device", ErrorKind::kIo}});
  sys::clear_failpoint();
  EXPECT_EQ(model.updates(), 0);
}

}  // namespace
}  // namespace sluice::train
