// Compares operators on float16 and bfloat16 with the samples of PyTorch's operator database. Each
// element must be within PyTorch's tolerance for its dtype, or no further from the exact result
// than PyTorch's element. The exact result is the result of float32 for the same inputs, which must
// have the stored projection of PyTorch's float64 result.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "program.h"

namespace sluice::test {
namespace {

constexpr double kAbsolute = 1e-5;  // PyTorch's tolerance for both dtypes.
constexpr double kProjection = 1e-5;

/// Samples that are composed of several operators, which round intermediate results: magnitudes of
/// these results to which the tolerance applies too. A rounded quotient may be a whole number.
const std::map<std::string, double> kIntermediates = {
    {"add", 1},
    {"addbmm", 16},
    {"addcdiv", 16},
    {"addcmul", 32},
    {"addmm", 1},
    {"addmv", 1},
    {"addr", 1},
    {"baddbmm", 16},
    {"binary_cross_entropy_with_logits", 1},
    {"conv2d", 1},
    {"conv3d", 1},
    {"conv_transpose1d", 1},
    {"cross_entropy", 1},
    {"div", 64},
    {"floor_divide", 64},
    {"huber_loss", 8},
    {"kl_div", 1},
    {"lerp", 8},
    {"linalg.vecdot", 1},
    {"linalg.multi_dot", 1},
    {"linear", 1},
    {"logaddexp", 8},
    {"logcumsumexp", 1},
    {"poisson_nll_loss", 1},
    {"tanhshrink", 1},
};

/// An output of a sample with rounded inputs.
struct HalfResult {
  size_t output = 0;
  double projection = 0, magnitudes = 0;  // PyTorch's float64 result.
  double excess = 0;  // Largest distance beyond the tolerance of an element of PyTorch's result.
};

struct Half {
  DType dtype;
  double relative;  // PyTorch's tolerance.
};
const Half kHalves[] = {{f16, 1e-3}, {bf16, 1.6e-2}};

std::vector<HalfResult> parse_results(const std::string& text) {
  std::vector<HalfResult> results;
  for (const std::string& word : split(text, ' ')) {
    const std::vector<std::string> fields = split(word, ':');
    results.push_back({std::stoul(fields.at(0)), std::stod(fields.at(1)), std::stod(fields.at(2)),
                       std::stod(fields.at(3))});
  }
  return results;
}

double projection(const Line& line, size_t output, const Shape& shape, const Doubles& values) {
  const Doubles weights = hashed(line.number, kWeights + output, shape);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

/// Compares the outputs of a sample; returns false if Sluice refuses it in float32 too.
bool compare(const Line& line, const Half& half, const std::vector<HalfResult>& wanted) {
  std::optional<Program> in_float;
  try {
    in_float.emplace(line, Precision{.rounding = half.dtype, .gradients = false});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    return false;
  }
  const Program::Arrays exact = in_float->executed();
  const Program::Arrays have = Program(line, {half.dtype, half.dtype, false}).executed();
  const auto found = kIntermediates.find(line.op);
  const double intermediate = found == kIntermediates.end() ? 0 : found->second;
  for (const HalfResult& want : wanted) {
    const Doubles reference = exact.at(want.output).to_doubles();
    const Doubles values = have.at(want.output).to_doubles();
    EXPECT_EQ(have[want.output].dtype(), line.op == "histc" ? f32 : half.dtype);
    if (values.size() != reference.size()) {
      ADD_FAILURE() << "output " << want.output << " has another size";
      continue;
    }
    const double sum = projection(line, want.output, exact[want.output].shape(), reference);
    const double limit = kProjection * (want.magnitudes + static_cast<double>(reference.size()));
    if (!std::isnan(want.projection)) {
      EXPECT_NEAR(sum, want.projection, limit) << "output " << want.output << " in float32";
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::fabs(values[i] - reference[i]);
      const double bound =
          half.relative * (std::fabs(reference[i]) + intermediate) + kAbsolute + want.excess;
      if (error <= bound || values[i] == reference[i]) continue;
      if (std::isnan(values[i]) && std::isnan(reference[i])) continue;
      ADD_FAILURE() << fmt::format("output {} at {} is {}, exactly {}, PyTorch's excess {}",
                                   want.output, i, values[i], reference[i], want.excess);
      break;
    }
  }
  return true;
}

TEST(PytorchHalves, AreAsCloseAsThoseOfPyTorch) {
  const std::vector<Line> lines = read_lines();
  std::ifstream file("tests/models/pytorch/halves.csv");
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "line;operator;float16;bfloat16");
  int64_t compared = 0, refused = 0;
  while (std::getline(file, text)) {
    const std::vector<std::string> parts = split(text, ';');
    const Line& line = lines.at(std::stoul(parts.at(0)) - 1);
    EXPECT_EQ(line.op, parts.at(1));
    for (size_t h = 0; h < std::size(kHalves); ++h) {
      if (parts.size() <= 2 + h) continue;
      SCOPED_TRACE(fmt::format("{} {}", name_of(kHalves[h].dtype), line.text));
      (compare(line, kHalves[h], parse_results(parts[2 + h])) ? compared : refused) += 1;
    }
  }
  EXPECT_GT(compared, 6000);
  std::cout << fmt::format("{} lines are equal, {} are refused\n", compared, refused);
}

}  // namespace
}  // namespace sluice::test
