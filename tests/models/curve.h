#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "pytorch.h"
#include "sluice/sluice.h"

namespace sluice::test {

/// Largest relative difference of a loss from PyTorch's.
inline constexpr double kCurveTolerance = 1e-4;

/// Generates the numbers of Lcg in mlp_curve.py.
class Lcg {
 public:
  explicit Lcg(uint64_t seed) : state_(seed) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / 0x1p24;
  }
  HostTensor array(const Shape& shape, double scale = 1) {
    HostTensor t(f32_spec(shape));
    for (float& x : t.as<float>()) x = static_cast<float>((2 * next() - 1) * scale);
    return t;
  }

 private:
  uint64_t state_;
};

/// A loss curve of a script of this folder.
struct Curve {
  std::vector<double> single, twice;  // Losses in float32 and in float64.
};

inline Curve read_curve(std::istream& in) {
  Curve curve;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "step,float32,float64");
  while (std::getline(in, line)) {
    double step, a, b;
    if (std::sscanf(line.c_str(), "%lf,%lf,%lf", &step, &a, &b) != 3) break;
    curve.single.push_back(a);
    curve.twice.push_back(b);
  }
  return curve;
}

inline void expect_close(const std::vector<double>& got, const Curve& want, const char* what) {
  ASSERT_EQ(want.single.size(), got.size());
  double worst_single = 0;
  double worst_twice = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst_single = std::max(worst_single, std::abs(got[i] - want.single[i]) / want.single[i]);
    worst_twice = std::max(worst_twice, std::abs(got[i] - want.twice[i]) / want.twice[i]);
  }
  std::cout << fmt::format(
      "{}: largest relative difference {:.2e} (to float64: {:.2e}) over {} steps, loss {:.4f} to "
      "{:.4f}\n",
      what, worst_single, worst_twice, got.size(), got.front(), got.back());
  EXPECT_LT(worst_single, kCurveTolerance) << what;
  EXPECT_LT(worst_twice, kCurveTolerance) << what;
}

/// Compares losses with the stored values of <name>.csv, and with <name>.py if PyTorch is
/// installed.
inline void expect_pytorchs(const std::vector<double>& losses, const std::string& name) {
  std::ifstream file("tests/models/" + name + ".csv");
  ASSERT_TRUE(file) << "run in the root of the repository";
  expect_close(losses, read_curve(file), "stored values");
  if (const std::string now = run_pytorch(name + ".py"); !now.empty()) {
    std::istringstream in(now);
    expect_close(losses, read_curve(in), "PyTorch here");
  }
}

}  // namespace sluice::test
