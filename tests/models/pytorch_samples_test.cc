// Compares operators and their gradients with the samples of PyTorch's operator database, which
// pytorch_samples.py computed. Samples without a batch axis get one by a reshape, since operators
// on images require it. Biases of convolutions are added by an op of their own, and the weights of
// classes of nll_loss are composed from a gather and products.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "pytorch_operators.h"
#include "pytorch_samples.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {
namespace {

constexpr uint64_t kWeights = 16;  // Number of y's weights among the hashed tensors of a line.

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
    {"grid_sample", "bicubic", "grid_sample: mode must be kLinear or kNearest", 6},
    {"grid_sample", "x=2,3,5,5,5", "t must be (batch, channels, height, width) and not empty", 18},
    {"avg_pool2d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"avg_pool3d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"batch_norm", "x=0 ", "x must have axes (batch, channels, spatial…), got shape (0,)", 4},
    {"layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 1},
    {"native_layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
    {"group_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
    {"histc", "min=0 max=0", "bins must be in [1, 2^24] and min below max", 24},
    {"clamp", "min:i32", "maximum (C2): x must have the dtype of x, float32, got", 1},
    {"clamp", "max:i32", "minimum (C2): x must have the dtype of x, float32, got", 1},
    {"gather", "index:i32=2,0", "indices must have the shape of x, (5,), except along axis 0", 1},
    {"transpose", "x=;", "swap_axes: axis 0 is outside [0, 0)", 2},
    {"cat", "x0=0 x1=5,5", "concat (C2): axis must be in [-1, 1) for shape (0,), got 1", 1},
};

// --- The file.

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

Shape parse_shape(const std::string& text) {
  std::vector<int64_t> dims;
  for (const std::string& d : split(text, ',')) dims.push_back(std::stoll(d));
  return Shape(dims);
}

Line parse_line(const std::string& text, uint64_t number) {
  const std::vector<std::string> parts = split(text, ';');
  if (parts.size() != 6) fail(ErrorKind::kBadFile, "line {} has {} parts", number, parts.size());
  Line line{.text = text, .number = number, .op = parts[0], .samples = std::stoll(parts[1])};
  for (const std::string& word : split(parts[2], ' ')) {
    const size_t equals = word.find('='), colon = std::min(word.find(':'), equals);
    line.inputs.push_back({.name = word.substr(0, colon),
                           .shape = parse_shape(word.substr(equals + 1)),
                           .domain = word.substr(colon, equals - colon)});
    std::string& domain = line.inputs.back().domain;
    if (!domain.empty()) domain.erase(0, 1);
  }
  line.options = parse_attrs(parts[3]);
  for (const std::string& label : split(parts[4], ',')) line.labels.push_back(std::stoi(label));
  for (const std::string& word : split(parts[5], ' ')) {
    const std::vector<std::string> fields = split(word, ':');
    line.results.push_back({fields.at(0), parse_shape(fields.at(1)), std::stod(fields.at(2)),
                            std::stod(fields.at(3))});
  }
  return line;
}

std::vector<Line> read_lines() {
  std::ifstream file("tests/models/pytorch_samples.csv");
  std::vector<Line> lines;
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "operator;samples;inputs;options;labels;results");
  while (std::getline(file, text)) lines.push_back(parse_line(text, lines.size() + 1));
  return lines;
}

// --- Programs.

/// A program that computes the outputs of a sample, and the gradients of the projection of y.
class Program {
 public:
  using Arrays = std::vector<HostTensor>;

  explicit Program(const Line& line) {
    std::vector<TensorSpec> specs;
    Tensors wanted, projected;
    Graph& main = ir_.main_graph();
    Tensors arguments;
    std::vector<bool> has_gradient;
    const auto add = [&](HostTensor value, bool gradient) {
      const TensorSpec spec = value.spec();
      const H2dStream stream = ir_.h2d_stream(spec, "in");
      arguments.push_back(main.host_load(stream));
      inputs_.push_back({stream, values_.emplace_back(std::move(value))});
      specs.push_back(spec);
      has_gradient.push_back(gradient);
    };
    for (size_t i = 0; i < line.inputs.size(); ++i) {
      const LineInput& input = line.inputs[i];
      HostTensor value = input_array(line, i);
      if (input.name != "class_weights") add(std::move(value), has_result(line, "d" + input.name));
    }
    if (!line.labels.empty() && !line.has_integers()) {
      add(HostTensor::of<int32_t>(label_shape(line.inputs[0].shape), i32, line.labels), false);
    }
    const Build* build = find_build(line.op);
    Graph& forward = (build == nullptr ? nn::create_graph(ir_, Sample(line), specs)
                                       : nn::create_graph(ir_, OperatorSample(line, *build), specs))
                         .second.graph();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (has_gradient[i]) wanted.push_back(forward.inputs()[i]);
    }
    for (size_t i = 0; i < forward.outputs().size(); ++i) {
      const Tensor y = forward.outputs()[i];
      if (line.results.at(i).name.starts_with("y") && is_float(y.dtype())) projected.push_back(y);
    }
    const size_t outputs = forward.outputs().size();
    const auto store_outputs = [&](const CallSiteInfo& call) {
      for (size_t i = 0; i < outputs; ++i) store(call.output(static_cast<int>(i)));
    };
    if (wanted.empty() || projected.empty()) {
      store_outputs(ops::call_with_info(main, forward, arguments));
      return;
    }
    const auto info =
        transforms::autodiff(forward, {.grads_provided = projected,
                                       .grads_required = wanted,
                                       .unreachable = transforms::Unreachable::kZeros});
    const CallSiteInfo call = ops::call_with_info(main, forward, arguments);
    store_outputs(call);
    Tensors weights;
    for (size_t i = 0; i < projected.size(); ++i) {
      const Shape& shape = projected[i].shape();
      const H2dStream stream = ir_.h2d_stream(projected[i].spec(), "weights");
      inputs_.push_back({stream, values_.emplace_back(
                                     f32_array(shape, hashed(line.number, kWeights + i, shape)))});
      weights.push_back(main.host_load(stream));
    }
    const CallSiteInfo back =
        ops::call_with_info(main, info.graph(), weights, info.inputs_dict(call));
    for (size_t i = 0; i < wanted.size(); ++i) store(back.output(static_cast<int>(i)));
  }

  Arrays interpreted() { return results(Interpreter(ir_).run(inputs_)); }
  Arrays executed() {
    Session session(ir_, {.device = cpu_device({.threads = 1})});
    return results(session.run(inputs_));
  }

 private:
  void store(const Tensor& t) { stored_.push_back(ir_.main_graph().host_store(t, "out")); }

  template <typename Collection>
  Arrays results(const Collection& arrays) const {
    Arrays all;
    for (const D2hStream& s : stored_) all.push_back(arrays[s]);
    return all;
  }

  Ir ir_;
  std::deque<HostTensor> values_;
  std::vector<StreamInput> inputs_;  // Views of values_.
  std::vector<D2hStream> stored_;
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
  EXPECT_EQ(lines.size(), 3688u);
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
