// Compares operators and their gradients with the samples of PyTorch's operator database, which
// pytorch_samples.py computed. Samples without a batch axis get one by a reshape, since operators
// on images require it. Biases of convolutions are added by an op of their own, and the weights of
// classes of nll_loss are composed from a gather and products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "pytorch/program.h"

namespace sluice::test {
namespace {

// A projection may differ by this part of the sum of magnitudes, and by kNoise for each element.
constexpr double kTolerance = 1e-5;
constexpr double kNoise = 1e-5;

/// Samples that Sluice refuses.
struct Refusal {
  std::string op;
  std::string part;     // Part of the line.
  std::string message;  // Part of the error.
  int64_t samples;      // Samples of the database.
};
const std::vector<Refusal> kRefusals = {
    {"grid_sample", "bicubic", "grid_sample: mode must be kLinear or kNearest", 12},
    {"avg_pool2d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"avg_pool3d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"batch_norm", "x=0 ", "x must have axes (batch, channels, spatial…), got shape (0,)", 4},
    {"layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 1},
    {"native_layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
    {"rms_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 1},
    {"group_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
    {"histc", "min=0 max=0", "bins must be in [1, 2^24] and min below max", 24},
    {"clamp", "min:i32", "maximum (C2): x must have the dtype of x, float32, got", 1},
    {"clamp", "max:i32", "minimum (C2): x must have the dtype of x, float32, got", 1},
    {"gather", "index:i32=2,0", "indices must have the shape of x, (5,), except along axis 0", 1},
    {"transpose", "x=;", "swap_axes: axis 0 is outside [0, 0)", 2},
    {"cat", "x0=0 x1=5,5", "concat (C2): axis must be in [-1, 1) for shape (0,), got 1", 1},
};

// --- Comparison.

void expect_near(double have, double want, double limit, const std::string& name) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(have)) << name << " is " << have;
  } else {
    EXPECT_NEAR(have, want, limit) << name;
  }
}

void expect_near(const Line& line, const Program::Arrays& have) {
  ASSERT_EQ(have.size(), line.results.size());
  for (size_t r = 0; r < have.size(); ++r) {
    const Result& want = line.results[r];
    ASSERT_EQ(have[r].shape(), want.shape) << want.name;
    const Doubles values = have[r].to_doubles();
    const Doubles weights = hashed(line.number, kWeights + r, want.shape);
    double projection = 0, magnitudes = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      projection += weights[i] * values[i];
      magnitudes += std::fabs(values[i]);
    }
    const double limit = kTolerance * want.magnitudes + kNoise * static_cast<double>(values.size());
    expect_near(projection, want.projection, limit, want.name);
    expect_near(magnitudes, want.magnitudes, limit, want.name);
  }
}

/// Returns the message with which Sluice refuses a sample, or an empty string.
std::string compare(const Line& line) {
  std::optional<Program> program;
  try {
    program.emplace(line);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  const Program::Arrays interpreted = program->interpreted();
  const Program::Arrays executed = program->executed();
  expect_near(line, interpreted);
  for (size_t i = 0; i < executed.size(); ++i)
    EXPECT_TRUE(executed[i].same_bits(interpreted[i])) << line.results[i].name;
  return "";
}

TEST(PytorchSamples, AreEqualOrRefused) {
  const std::vector<Line> lines = read_lines();
  EXPECT_EQ(lines.size(), 3694u);
  int64_t equal = 0, added = 0;
  std::vector<int64_t> refused(kRefusals.size());
  for (const Line& line : lines) {
    SCOPED_TRACE(line.text);
    const std::string message = compare(line);
    if (message.empty()) {
      (line.samples == 0 ? added : equal) += std::max<int64_t>(line.samples, 1);
      continue;
    }
    const auto refusal = std::find_if(kRefusals.begin(), kRefusals.end(), [&](const Refusal& r) {
      return line.op == r.op && line.text.find(r.part) != std::string::npos &&
             message.find(r.message) != std::string::npos;
    });
    EXPECT_NE(refusal, kRefusals.end()) << "refused: " << message;
    if (refusal == kRefusals.end()) continue;
    refused[static_cast<size_t>(refusal - kRefusals.begin())] += line.samples;
  }
  int64_t all_refused = 0;
  for (size_t i = 0; i < kRefusals.size(); ++i) {
    EXPECT_EQ(refused[i], kRefusals[i].samples) << kRefusals[i].op << " " << kRefusals[i].part;
    all_refused += refused[i];
  }
  std::cout << fmt::format(
      "{} samples of the database are equal, {} are refused; {} added samples are equal\n", equal,
      all_refused, added);
}

}  // namespace
}  // namespace sluice::test
