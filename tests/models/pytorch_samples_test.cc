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

#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using Doubles = std::vector<double>;

constexpr uint64_t kWeights = 16;  // Number of y's weights among the hashed tensors of a line.

// A projection may differ by this part of the sum of magnitudes, and by kNoise for each element.
constexpr double kTolerance = 1e-5;
constexpr double kNoise = 1e-5;

struct Result {
  std::string name;  // y, running_mean, running_var, or d and the name of an input.
  Shape shape;
  double projection = 0;
  double magnitudes = 0;
};

struct Line {
  std::string text;
  uint64_t number = 0;
  std::string op;
  int64_t samples = 0;  // Samples of the database that this line represents.
  std::vector<std::pair<std::string, Shape>> inputs;
  Attrs options;
  std::vector<int32_t> labels;
  std::vector<Result> results;
  std::string absent;  // Why Sluice has no operator for it.
};

/// Samples that Sluice refuses.
struct Refusal {
  std::string op;
  std::string part;     // Part of the line.
  std::string message;  // Part of the error.
  int64_t samples;      // Samples of the database.
};
const std::vector<Refusal> kRefusals = {
    {"avg_pool2d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"avg_pool3d", "divisor=-2", "average_pool (C6): divisor must be at least 0, got -2", 1},
    {"batch_norm", "x=0 ", "x must have axes (batch, channels, spatial…), got shape (0,)", 4},
    {"layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 1},
    {"native_layer_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
    {"group_norm", "epsilon=-0.5", "epsilon must be finite and >= 0, got -0.5", 4},
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
    const size_t equals = word.find('=');
    line.inputs.emplace_back(word.substr(0, equals), parse_shape(word.substr(equals + 1)));
  }
  line.options = parse_attrs(parts[3]);
  for (const std::string& label : split(parts[4], ',')) line.labels.push_back(std::stoi(label));
  if (parts[5].starts_with("absent: ")) {
    line.absent = parts[5];
    return line;
  }
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

// --- The values of pytorch_samples.py.

/// Element `index` of the hashed tensor `tensor` of a line: in [-1, 1), exact in float.
double element(uint64_t line, uint64_t tensor, uint64_t index) {
  uint64_t state = ((line << 40) + (tensor << 32) + index + 1) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((state ^ (state >> 31)) >> 40) / 0x1p23 - 1;
}

Doubles hashed(uint64_t line, uint64_t tensor, const Shape& shape) {
  Doubles values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(line, tensor, i);
  return values;
}

Doubles input_values(const Line& line, size_t input) {
  const auto& [name, shape] = line.inputs[input];
  Doubles values = hashed(line.number, input, shape);
  const bool not_negative = name == "running_var" || name == "class_weights" || name == "target";
  for (double& v : values) v = not_negative ? std::fabs(v) : 4 * v;
  return values;
}

HostTensor f32_array(const Shape& shape, const Doubles& values) {
  return HostTensor::of<double>(shape, f64, values).cast(f32);
}

/// Labels have the shape of x without the axis of classes.
Shape label_shape(const Shape& x) {
  std::vector<int64_t> dims = x.dims();
  dims.erase(dims.begin() + (dims.size() > 1 ? 1 : 0));
  return Shape(dims);
}

// --- The operators.

/// Builds a sample. Inputs are those of the line without the weights of classes, then the labels.
class Sample : public nn::Module {
 public:
  explicit Sample(const Line& line) : line_(line) {}

  Tensors build(nn::Builder& b, const Tensors& inputs) const {
    Named in;
    size_t next = 0;
    for (const auto& [name, shape] : line_.inputs) {
      if (name != "class_weights") in[name] = inputs.at(next++);
    }
    if (!line_.labels.empty()) in["labels"] = inputs.at(next);
    const std::string& op = line_.op;
    if (op == "relu") return {ops::relu(in["x"])};
    if (op.starts_with("conv")) return {convolution(in)};
    if (op.find("pool") != std::string::npos) return {pool(in)};
    if (op.find("batch_norm") != std::string::npos) return batch_norm(in);
    if (op.find("layer_norm") != std::string::npos) return {layer_norm(in)};
    if (op == "group_norm") return {group_norm(in, option<int64_t>("groups"))};
    if (op == "instance_norm") return {group_norm(in, in["x"].dim(1))};
    if (op == "nll_loss") return {nll_loss(b, in)};
    if (op == "cross_entropy") return {cross_entropy(b, in)};
    fail(ErrorKind::kBadFile, "line {}: unknown operator {}", line_.number, op);
  }

 private:
  using Named = std::map<std::string, Tensor>;

  template <typename T>
  T option(const std::string& name) const {
    for (const auto& [key, value] : line_.options.items) {
      if (key == name) return std::get<T>(value);
    }
    fail(ErrorKind::kBadFile, "line {}: no option {}", line_.number, name);
  }

  /// The number of spatial axes in names such as conv2d.
  int64_t axes() const { return line_.op[line_.op.size() - 2] - '0'; }

  /// Calls f with x, which gets a batch axis if it has none.
  template <typename F>
  Tensor with_batch(const Tensor& x, const F& f) const {
    if (x.rank() == axes() + 2) return f(x);
    const Tensor y = f(ops::unsqueeze(x, 0));
    return ops::squeeze(y, {0});
  }

  Tensor convolution(const Named& in) const {
    return with_batch(in.at("x"), [&](const Tensor& x) {
      const Tensor& w = in.at("weight");
      const bool transposed = line_.op.starts_with("conv_transpose");
      const Tensor y = transposed ? ops::conv_transpose(
                                        x, w, from_attrs<ops::ConvTransposeOptions>(line_.options))
                                  : ops::conv(x, w, from_attrs<ops::ConvOptions>(line_.options));
      return in.contains("bias") ? y + of_channels(in.at("bias"), y) : y;
    });
  }

  Tensor pool(const Named& in) const {
    return with_batch(in.at("x"), [&](const Tensor& x) {
      if (line_.op.find("max") != std::string::npos)
        return ops::max_pool(x, from_attrs<ops::PoolOptions>(line_.options));
      return ops::average_pool(x, from_attrs<ops::AveragePoolOptions>(line_.options));
    });
  }

  /// Reshapes t (channels) so that it is broadcast along the other axes of y (batch, channels, …).
  static Tensor of_channels(const Tensor& t, const Tensor& y) {
    std::vector<int64_t> dims(static_cast<size_t>(y.rank() - 1), 1);
    dims[0] = t.dim(0);
    return ops::reshape(t, Shape(dims));
  }

  static std::vector<TensorArg> parameters(const Named& in) {
    std::vector<TensorArg> list;
    if (in.contains("weight")) list.emplace_back(in.at("weight"));
    if (in.contains("weight") && in.contains("bias")) list.emplace_back(in.at("bias"));
    return list;
  }

  Tensors batch_norm(const Named& in) const {
    const Tensor& x = in.at("x");
    const ops::BatchNormOptions options{.epsilon = option<double>("epsilon")};
    if (!option<bool>("training")) {
      return {ops::batch_norm_inference(x, parameters(in), in.at("running_mean"),
                                        in.at("running_var"), options)};
    }
    const Tensors y = ops::batch_norm(x, parameters(in), options);
    if (!in.contains("running_mean")) return {y[0]};
    const double momentum = option<double>("momentum");
    const auto values = static_cast<double>(x.shape().elements() / x.dim(1));
    const Tensor variance = y[2] * (values / (values - 1));
    const auto updated = [&](const Tensor& running, const Tensor& value) {
      return running * (1 - momentum) + value * momentum;
    };
    return {y[0], updated(in.at("running_mean"), y[1]), updated(in.at("running_var"), variance)};
  }

  Tensor group_norm(const Named& in, int64_t groups) const {
    return ops::group_norm(in.at("x"), parameters(in),
                           {.groups = groups, .epsilon = option<double>("epsilon")});
  }

  Tensor layer_norm(const Named& in) const {
    const Tensor& x = in.at("x");
    std::vector<int64_t> dims = x.shape().dims();
    int64_t columns = 1;
    for (int64_t axis = 0; axis < option<int64_t>("axes"); ++axis) {
      columns *= dims.back();
      dims.pop_back();
    }
    dims.push_back(columns);
    std::vector<TensorArg> flat;
    for (const TensorArg& t : parameters(in)) flat.emplace_back(ops::flatten(t));
    const Tensor y =
        ops::layer_norm(ops::reshape(x, Shape(dims)), flat, {.epsilon = option<double>("epsilon")});
    const Tensor whole = ops::reshape(y, x.shape());
    return in.contains("bias") && flat.empty() ? whole + in.at("bias") : whole;
  }

  ops::LossReduction reduction() const {
    return static_cast<ops::LossReduction>(option<int64_t>("reduction"));
  }

  Doubles class_weights() const {
    for (size_t i = 0; i < line_.inputs.size(); ++i) {
      if (line_.inputs[i].first == "class_weights") {
        const HostTensor rounded = f32_array(line_.inputs[i].second, input_values(line_, i));
        return rounded.to_doubles();
      }
    }
    return {};
  }

  Tensor nll_loss(nn::Builder& b, const Named& in) const {
    Tensor x = in.at("x");
    const Tensor& labels = in.at("labels");
    if (x.rank() > 2) {
      std::vector<int64_t> order{0};
      for (int64_t axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
      order.push_back(1);
      x = ops::transpose(x, order);
    }
    const Doubles weights = class_weights();
    ops::NllLossOptions options{.reduction = reduction(),
                                .has_ignore_index = true,
                                .ignore_index = option<int64_t>("ignore_index"),
                                .log_prob = true};
    if (weights.empty()) return ops::nll_loss(x, labels, options);
    options.reduction = ops::LossReduction::kNone;
    const Tensor each = ops::nll_loss(x, labels, options);
    const Tensor factors = b.graph().constant(
        f32_array({static_cast<int64_t>(weights.size())}, weights), "class_weights");
    const Tensor own = ops::gather(factors, labels, {.zero_out_of_range = true});
    const Tensor counted =
        ops::where(ops::not_equal(labels, static_cast<double>(options.ignore_index)), own, 0.0);
    const Tensor losses = each * counted;
    if (reduction() == ops::LossReduction::kNone) return losses;
    const Tensor total = ops::sum(losses);
    return reduction() == ops::LossReduction::kSum ? total : total / ops::sum(counted);
  }

  Tensor cross_entropy(nn::Builder& b, const Named& in) const {
    const nn::CrossEntropyLoss loss({.class_weights = class_weights(),
                                     .label_smoothing = option<double>("label_smoothing"),
                                     .ignore_index = option<int64_t>("ignore_index"),
                                     .reduction = reduction()});
    return loss.build(b, in.at("x"), in.contains("labels") ? in.at("labels") : in.at("target"));
  }

  const Line& line_;
};

// --- Programs.

/// A program that computes the outputs of a sample, and the gradients of the projection of y.
class Program {
 public:
  using Arrays = std::vector<HostTensor>;

  explicit Program(const Line& line) {
    std::vector<TensorSpec> specs;
    Tensors wanted;
    Graph& main = ir_.main_graph();
    Tensors arguments;
    std::vector<bool> has_gradient;
    const auto add = [&](const TensorSpec& spec, HostTensor value, bool gradient) {
      const H2dStream stream = ir_.h2d_stream(spec, "in");
      arguments.push_back(main.host_load(stream));
      inputs_.push_back({stream, values_.emplace_back(std::move(value))});
      specs.push_back(spec);
      has_gradient.push_back(gradient);
    };
    for (size_t i = 0; i < line.inputs.size(); ++i) {
      const auto& [name, shape] = line.inputs[i];
      if (name != "class_weights")
        add({shape, f32, {}}, f32_array(shape, input_values(line, i)),
            !name.starts_with("running"));
    }
    if (!line.labels.empty()) {
      const Shape shape = label_shape(line.inputs[0].second);
      add({shape, i32, {}}, HostTensor::of<int32_t>(shape, i32, line.labels), false);
    }
    Graph& forward = nn::create_graph(ir_, Sample(line), specs).second.graph();
    for (size_t i = 0; i < specs.size(); ++i) {
      if (has_gradient[i]) wanted.push_back(forward.inputs()[i]);
    }
    const Tensor y = forward.outputs()[0];
    const size_t outputs = forward.outputs().size();
    const auto info =
        transforms::autodiff(forward, {.grads_provided = Tensors{y}, .grads_required = wanted});
    const CallSiteInfo call = ops::call_with_info(main, forward, arguments);
    const H2dStream weights = ir_.h2d_stream(y.spec(), "weights");
    inputs_.push_back({weights, values_.emplace_back(f32_array(
                                    y.shape(), hashed(line.number, kWeights, y.shape())))});
    const CallSiteInfo back =
        ops::call_with_info(main, info.graph(), {main.host_load(weights)}, info.inputs_dict(call));
    for (size_t i = 0; i < outputs; ++i) store(call.output(static_cast<int>(i)));
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
    EXPECT_NEAR(projection, want.projection, limit) << want.name;
    EXPECT_NEAR(magnitudes, want.magnitudes, limit) << want.name;
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
  EXPECT_EQ(lines.size(), 955u);
  int64_t equal = 0, absent = 0, added = 0;
  std::vector<int64_t> refused(kRefusals.size());
  for (const Line& line : lines) {
    SCOPED_TRACE(line.text);
    if (!line.absent.empty()) {
      absent += line.samples;
      continue;
    }
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
  EXPECT_EQ(absent, 66);  // Adaptive pools with windows of several sizes.
  std::cout << fmt::format(
      "{} samples of the database are equal, {} are refused, {} have no operator; {} added "
      "samples are equal\n",
      equal, all_refused, absent, added);
}

}  // namespace
}  // namespace sluice::test
