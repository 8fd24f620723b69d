#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/sluice.h"

/// The samples of pytorch_samples.csv, and the programs of Sluice for them.
namespace sluice::test {

using Doubles = std::vector<double>;

struct Result {
  std::string name;  // y, y1, …, running_mean, running_var, or d and the name of an input.
  Shape shape;
  double projection = 0;
  double magnitudes = 0;
};

struct LineInput {
  std::string name;
  Shape shape;
  std::string domain = {};  // Domain of values() in pytorch_operators.py.
};

struct Line {
  std::string text;
  uint64_t number = 0;
  std::string op;
  int64_t samples = 0;  // Samples of the database that this line represents.
  std::vector<LineInput> inputs;
  Attrs options;
  std::vector<int32_t> labels;
  std::vector<Result> results;

  /// Whether the labels are values of inputs.
  bool has_integers() const {
    return std::any_of(inputs.begin(), inputs.end(),
                       [](const LineInput& input) { return input.domain == "i32"; });
  }
};

inline bool has_result(const Line& line, const std::string& name) {
  return std::any_of(line.results.begin(), line.results.end(),
                     [&](const Result& r) { return r.name == name; });
}

// --- The values of pytorch_samples.py.

/// Element `index` of the hashed tensor `tensor` of a line: in [-1, 1), exact in float.
inline double element(uint64_t line, uint64_t tensor, uint64_t index) {
  uint64_t state = ((line << 40) + (tensor << 32) + index + 1) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((state ^ (state >> 31)) >> 40) / 0x1p23 - 1;
}

inline Doubles hashed(uint64_t line, uint64_t tensor, const Shape& shape) {
  Doubles values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(line, tensor, i);
  return values;
}

/// Maps the hash of element `index` to a domain.
inline double in_domain(const std::string& domain, double hash, size_t index) {
  if (domain == "distinct") return static_cast<double>(index * 40503 % 65536) / 8192 - 4;
  if (domain == "unit") return hash;
  if (domain == "positive") return 4 * std::fabs(hash) + 0.125;
  if (domain == "nonzero") return 4 * hash + (hash < 0 ? -0.25 : 0.25);
  if (domain == "probability") return std::fabs(hash) / 2 + 0.25;
  if (domain == "whole") return std::floor(4 * hash);
  if (domain == "sign") return hash < 0 ? -1 : 1;
  if (domain == "bool") return hash > 0 ? 1 : 0;
  if (domain != "") fail(ErrorKind::kBadFile, "unknown domain {}", domain);
  return 4 * hash;
}

inline Doubles input_values(const Line& line, size_t input) {
  const auto& [name, shape, domain] = line.inputs[input];
  Doubles values = hashed(line.number, input, shape);
  const bool not_negative =
      domain.empty() && (name == "running_var" || name == "class_weights" || name == "target");
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = not_negative ? std::fabs(values[i]) : in_domain(domain, values[i], i);
  return values;
}

inline HostTensor f32_array(const Shape& shape, const Doubles& values) {
  return HostTensor::of<double>(shape, f64, values).cast(f32);
}

/// Returns an input in the dtype of its domain. The inputs of domain i32 are the labels in order.
inline HostTensor input_array(const Line& line, size_t input) {
  const auto& [name, shape, domain] = line.inputs[input];
  if (domain != "i32") {
    HostTensor values = f32_array(shape, input_values(line, input));
    return domain == "bool" ? values.cast(boolean) : values;
  }
  int64_t begin = 0;
  for (size_t i = 0; i < input; ++i) {
    if (line.inputs[i].domain == "i32") begin += line.inputs[i].shape.elements();
  }
  const auto first = line.labels.begin() + begin;
  return HostTensor::of<int32_t>(shape, i32, {first, first + shape.elements()});
}

/// Labels have the shape of x without the axis of classes.
inline Shape label_shape(const Shape& x) {
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
    for (const LineInput& input : line_.inputs) {
      if (input.name != "class_weights") in[input.name] = inputs.at(next++);
    }
    if (!line_.labels.empty()) in["labels"] = inputs.at(next);
    const std::string& op = line_.op;
    if (op == "relu") return {ops::relu(in["x"])};
    if (op.starts_with("conv")) return {convolution(in)};
    if (op.find("pool") != std::string::npos) return {pool(in)};
    if (op.find("batch_norm") != std::string::npos) return batch_norm(in);
    if (op.find("layer_norm") != std::string::npos) return {layer_norm(in)};
    if (op == "rms_norm") return {rms_norm(in)};
    if (op == "group_norm") return {group_norm(in, option<int64_t>("groups"))};
    if (op == "instance_norm") return {group_norm(in, in["x"].dim(1))};
    if (op == "nll_loss") return {nll_loss(b, in)};
    if (op == "cross_entropy") return {cross_entropy(b, in)};
    if (op == "interpolate") return {interpolate(in["x"])};
    if (op == "grid_sample") return {grid_sample(in)};
    if (op == "pad") return {pad(in["x"])};
    if (has("keepdims")) return {reduction_over_axes(in["x"])};
    if (has("axes") || has("axis") || has("counts")) return {moved(in["x"])};
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

  bool has(const std::string& name) const {
    for (const auto& [key, value] : line_.options.items) {
      if (key == name) return true;
    }
    return false;
  }

  using List = std::vector<int64_t>;

  /// Returns a list option; empty if the text lists no element.
  List list(const std::string& name) const {
    for (const auto& [key, value] : line_.options.items) {
      if (key == name && std::holds_alternative<List>(value)) return std::get<List>(value);
    }
    return {};
  }

  Tensor reduction_over_axes(const Tensor& x) const {
    const ops::ReduceOptions options{.axes = list("axes"), .keepdims = option<bool>("keepdims")};
    const std::string& op = line_.op;
    if (op == "linalg.vector_norm") return ops::norm(x, option<double>("ord"), options);
    if (op == "std") return ops::standard_deviation(x, options, option<double>("correction"));
    if (op == "var") return ops::var(x, options, option<double>("correction"));
    if (op == "amax") return ops::max(x, options);
    if (op == "amin") return ops::min(x, options);
    if (op == "sum") return ops::sum(x, options);
    if (op == "mean") return ops::mean(x, options);
    if (op == "prod") return ops::prod(x, options);
    if (op == "logsumexp") return ops::logsumexp(x, options);
    fail(ErrorKind::kBadFile, "line {}: unknown operator {}", line_.number, op);
  }

  Tensor moved(const Tensor& x) const {
    const std::string& op = line_.op;
    if (op == "cumsum") return ops::cumsum(x, {.axis = option<int64_t>("axis")});
    if (op == "cumprod") return ops::cumprod(x, {.axis = option<int64_t>("axis")});
    if (op == "flip") return list("axes").empty() ? x : ops::flip(x, list("axes"));
    if (op == "roll") return ops::roll(x, list("shifts"), list("axes"));
    if (op == "unfold")
      return ops::unfold(x, option<int64_t>("axis"), option<int64_t>("size"),
                         option<int64_t>("step"));
    List counts = list("counts");  // tile() of PyTorch adds ones in front.
    while (op == "tile" && std::ssize(counts) < x.rank()) counts.insert(counts.begin(), 1);
    if (op == "repeat" || op == "tile") return ops::tile(x, counts);
    fail(ErrorKind::kBadFile, "line {}: unknown operator {}", line_.number, op);
  }

  Tensor pad(const Tensor& x) const {
    const std::map<std::string, ops::PadMode> modes{{"constant", ops::PadMode::kConstant},
                                                    {"reflect", ops::PadMode::kReflect},
                                                    {"replicate", ops::PadMode::kReplicate},
                                                    {"circular", ops::PadMode::kCircular}};
    const List pad = list("pad");  // Pairs, the last axis first.
    std::vector<ops::PadWidth> widths(static_cast<size_t>(x.rank()));
    for (size_t i = 0; i + 1 < pad.size(); i += 2)
      widths[widths.size() - 1 - i / 2] = {pad[i], pad[i + 1]};
    return ops::pad(x, widths, modes.at(option<std::string>("mode")), option<double>("value"));
  }

  Tensor interpolate(const Tensor& x) const {
    const std::map<std::string, ops::Interpolation> modes{
        {"nearest", ops::Interpolation::kNearest},
        {"nearest-exact", ops::Interpolation::kNearestExact},
        {"linear", ops::Interpolation::kLinear},
        {"bilinear", ops::Interpolation::kLinear},
        {"trilinear", ops::Interpolation::kLinear},
        {"bicubic", ops::Interpolation::kCubic}};
    List sizes = list("size");
    const double scale = option<double>("scale");
    const auto axes = static_cast<size_t>(x.rank() - 2);
    if (sizes.size() == 1) sizes.resize(axes, sizes[0]);
    for (size_t i = 0; sizes.size() < axes; ++i)
      sizes.push_back(static_cast<int64_t>(
          std::floor(static_cast<double>(x.dim(static_cast<int>(i) + 2)) * scale)));
    const std::string mode = option<std::string>("mode");
    if (mode == "area") return ops::adaptive_average_pool(x, sizes);
    ops::InterpolateOptions options{.mode = modes.at(mode),
                                    .align_corners = option<bool>("align_corners")};
    if (option<bool>("given")) options.scales.assign(axes, 1 / scale);
    return ops::interpolate(x, sizes, options);
  }

  Tensor grid_sample(const Named& in) const {
    const std::map<std::string, ops::Interpolation> modes{{"nearest", ops::Interpolation::kNearest},
                                                          {"bilinear", ops::Interpolation::kLinear},
                                                          {"bicubic", ops::Interpolation::kCubic}};
    const std::map<std::string, ops::GridPadding> paddings{
        {"zeros", ops::GridPadding::kZeros},
        {"border", ops::GridPadding::kBorder},
        {"reflection", ops::GridPadding::kReflect}};
    return ops::grid_sample(in.at("x"), in.at("grid"),
                            {.mode = modes.at(option<std::string>("mode")),
                             .padding = paddings.at(option<std::string>("padding")),
                             .align_corners = option<bool>("align_corners")});
  }

  /// The number of spatial axes in names such as conv2d.
  int64_t axes() const { return line_.op[line_.op.size() - 2] - '0'; }

  /// Calls f with x, after it inserts a batch axis if x lacks one.
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
    if (has("output")) {
      const List sizes = list("output");
      return line_.op.find("max") != std::string::npos
                 ? ops::adaptive_max_pool(in.at("x"), sizes)
                 : ops::adaptive_average_pool(in.at("x"), sizes);
    }
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

  /// The shape of x with the axes of a norm of rows merged to one.
  Shape norm_rows(const Shape& x) const {
    std::vector<int64_t> dims = x.dims();
    int64_t columns = 1;
    for (int64_t axis = 0; axis < option<int64_t>("axes"); ++axis) {
      columns *= dims.back();
      dims.pop_back();
    }
    dims.push_back(columns);
    return Shape(dims);
  }

  Tensor layer_norm(const Named& in) const {
    const Tensor& x = in.at("x");
    std::vector<TensorArg> flat;
    for (const TensorArg& t : parameters(in)) flat.emplace_back(ops::flatten(t));
    const Tensor y = ops::layer_norm(ops::reshape(x, norm_rows(x.shape())), flat,
                                     {.epsilon = option<double>("epsilon")});
    const Tensor whole = ops::reshape(y, x.shape());
    return in.contains("bias") && flat.empty() ? whole + in.at("bias") : whole;
  }

  Tensor rms_norm(const Named& in) const {
    const Tensor rows = ops::reshape(in.at("x"), norm_rows(in.at("x").shape()));
    const ops::RmsNormOptions options{.epsilon = option<double>("epsilon")};
    const Tensor y = in.contains("weight")
                         ? ops::rms_norm(rows, ops::flatten(in.at("weight")), options)
                         : ops::rms_norm(rows, options);
    return ops::reshape(y, in.at("x").shape());
  }

  ops::LossReduction reduction() const {
    return static_cast<ops::LossReduction>(option<int64_t>("reduction"));
  }

  Doubles class_weights() const {
    for (size_t i = 0; i < line_.inputs.size(); ++i) {
      if (line_.inputs[i].name == "class_weights") {
        const HostTensor rounded = f32_array(line_.inputs[i].shape, input_values(line_, i));
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

}  // namespace sluice::test
