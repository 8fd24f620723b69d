// Reads the stored samples and makes their programs.
#include "program.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "operators.h"
#include "sluice/interp/interpreter.h"

namespace sluice::test {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

namespace {

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

}  // namespace

std::vector<Line> read_lines() {
  std::ifstream file("tests/models/pytorch_samples.csv");
  std::vector<Line> lines;
  std::string text;
  std::getline(file, text);
  EXPECT_EQ(text, "operator;samples;inputs;options;labels;results");
  while (std::getline(file, text)) lines.push_back(parse_line(text, lines.size() + 1));
  return lines;
}

Program::Program(const Line& line, const Precision& precision) {
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
    if (is_float(value.dtype())) value = value.cast(precision.rounding).cast(precision.dtype);
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
  if (wanted.empty() || projected.empty() || !precision.gradients) {
    store_outputs(ops::call_with_info(main, forward, arguments));
    return;
  }
  const auto info = transforms::autodiff(forward, {.grads_provided = projected,
                                                   .grads_required = wanted,
                                                   .unreachable = transforms::Unreachable::kZeros});
  const CallSiteInfo call = ops::call_with_info(main, forward, arguments);
  store_outputs(call);
  Tensors weights;
  for (size_t i = 0; i < projected.size(); ++i) {
    const Shape& shape = projected[i].shape();
    const H2dStream stream = ir_.h2d_stream(projected[i].spec(), "weights");
    inputs_.push_back(
        {stream, values_.emplace_back(f32_array(shape, hashed(line.number, kWeights + i, shape)))});
    weights.push_back(main.host_load(stream));
  }
  const CallSiteInfo back =
      ops::call_with_info(main, info.graph(), weights, info.inputs_dict(call));
  for (size_t i = 0; i < wanted.size(); ++i) store(back.output(static_cast<int>(i)));
}

Program::Arrays Program::interpreted() const { return results(Interpreter(ir_).run(inputs_)); }

Program::Arrays Program::executed() const {
  Session session(ir_, {.device = cpu_device({.threads = 1})});
  return results(session.run(inputs_));
}

}  // namespace sluice::test
