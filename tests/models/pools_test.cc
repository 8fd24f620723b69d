// Compares pools and their gradients with those of PyTorch: with pools.csv, and with the lines
// of the file that SLUICE_POOLS names.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "sluice/interp/run_op.h"
#include "sluice/ops/pooling.h"

namespace sluice::test {
namespace {

constexpr double kTolerance = 1e-6;

struct Line {
  std::string op, values, options;
  Shape shape;
  std::vector<double> y, dx;
};

std::vector<double> numbers(const std::string& text) {
  std::vector<double> list;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) list.push_back(std::stod(word));
  return list;
}

std::vector<Line> read_lines(std::istream& in) {
  std::vector<Line> lines;
  std::string text;
  std::getline(in, text);
  EXPECT_EQ(text, "operator;values;shape;options;y;dx");
  while (std::getline(in, text)) {
    Line& line = lines.emplace_back();
    std::istringstream parts(text);
    std::string shape, y, dx;
    for (std::string* part : {&line.op, &line.values, &shape, &line.options, &y, &dx})
      std::getline(parts, *part, ';');
    std::vector<int64_t> dims;
    for (const double d : numbers(shape)) dims.push_back(static_cast<int64_t>(d));
    line.shape = Shape(dims);
    line.y = numbers(y);
    line.dx = numbers(dx);
  }
  return lines;
}

// --- The values of pools.py.

HostTensor operand(const Line& line) {
  HostTensor x(TensorSpec{line.shape, f32, {}});
  for (int64_t i = 0; i < x.elements(); ++i) {
    float& v = x.as<float>()[static_cast<size_t>(i)];
    v = static_cast<float>((37 * i * i + 11 * i) % 64 - 30) / 8;
    if (line.values == "nan" && i % 11 == 3) v = std::numeric_limits<float>::quiet_NaN();
    if (line.values == "inf" && i % 8 != 0) v = -std::numeric_limits<float>::infinity();
  }
  return x;
}

HostTensor gradient(const Shape& shape) {
  HostTensor g(TensorSpec{shape, f32, {}});
  for (int64_t i = 0; i < g.elements(); ++i)
    g.as<float>()[static_cast<size_t>(i)] = static_cast<float>((29 * i + 5) % 31 - 15) / 4;
  return g;
}

void expect_near(const std::vector<double>& have, const std::vector<double>& want) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const bool same = have[i] == want[i] || (std::isnan(have[i]) && std::isnan(want[i]));
    EXPECT_TRUE(same || std::fabs(have[i] - want[i]) <= kTolerance * (1 + std::fabs(want[i])))
        << "element " << i << ": want " << want[i] << ", got " << have[i];
  }
}

HostTensor run(const OpDef& def, const Attrs& options, const std::vector<HostTensor>& inputs) {
  return run_op(def, options, inputs, Precision::kFloat)[0];
}

void compare_max(const Line& line) {
  const Attrs options = parse_attrs(line.options);
  const HostTensor x = operand(line);
  const HostTensor y = run(ops::max_pool_def(), options, {x});
  const HostTensor taps = run(ops::max_pool_taps_def(), options, {x});
  ops::MaxPoolGradOptions o;
  static_cast<ops::PoolOptions&>(o) = from_attrs<ops::PoolOptions>(options);
  o.shape = line.shape;
  expect_near(y.to_doubles(), line.y);
  expect_near(run(ops::max_pool_grad_def(), to_attrs(o), {gradient(y.shape()), taps}).to_doubles(),
              line.dx);
}

void compare_average(const Line& line) {
  const Attrs options = parse_attrs(line.options);
  const HostTensor y = run(ops::average_pool_def(), options, {operand(line)});
  ops::AveragePoolGradOptions o;
  static_cast<ops::AveragePoolOptions&>(o) = from_attrs<ops::AveragePoolOptions>(options);
  o.shape = line.shape;
  expect_near(y.to_doubles(), line.y);
  expect_near(run(ops::average_pool_grad_def(), to_attrs(o), {gradient(y.shape())}).to_doubles(),
              line.dx);
}

void compare(const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    SCOPED_TRACE(line.op + " " + line.values + " " + to_string(line.shape) + " " + line.options);
    (line.op == "MaxPool" ? compare_max : compare_average)(line);
  }
}

TEST(Pools, AreThoseOfPyTorch) {
  std::ifstream file("tests/models/pools.csv");
  const std::vector<Line> lines = read_lines(file);
  EXPECT_EQ(lines.size(), 120u);
  compare(lines);
  const char* const more = std::getenv("SLUICE_POOLS");
  if (more == nullptr) return;
  std::ifstream more_file(more);
  compare(read_lines(more_file));
}

}  // namespace
}  // namespace sluice::test
