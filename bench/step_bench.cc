// Steps of multi-layer perceptrons in one process, as a user's program runs them: microseconds a step on one configuration.
//
// usage: step_bench --dims 784,512,512,512,10 --batch 8 --threads 2 [--optimizer sgd|adam|none] [--steps N] [--json]
//
// `none` is inference. The loss is cross entropy, the activation GELU, the learning rate a constant.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include "sluice/sluice.h"

namespace {

using namespace sluice;

class Mlp : public nn::Module {
 public:
  explicit Mlp(const std::vector<int64_t>& dims) {
    for (size_t i = 1; i < dims.size(); ++i) fc_.add(dims[i]);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (size_t i = 0; i < fc_.size(); ++i) {
      x = fc_[i](b, x);
      if (i + 1 < fc_.size()) x = ops::gelu(x);
    }
    return x;
  }

 private:
  nn::Children<nn::Linear> fc_{*this, "fc"};
};

struct Options {
  std::vector<int64_t> dims{784, 512, 512, 512, 10};
  int64_t batch = 8;
  int64_t steps = 300;
  int threads = 1;
  std::string optimizer = "sgd";
  bool json = false;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--json") {
      o.json = true;
      continue;
    }
    require(i + 1 < argc, "{}: a value is missing", flag);
    const std::string value = argv[++i];
    if (flag == "--dims") {
      o.dims.clear();
      std::stringstream list(value);
      for (std::string part; std::getline(list, part, ',');) o.dims.push_back(std::stoll(part));
    } else if (flag == "--batch") {
      o.batch = std::stoll(value);
    } else if (flag == "--steps") {
      o.steps = std::stoll(value);
    } else if (flag == "--threads") {
      o.threads = std::stoi(value);
    } else if (flag == "--optimizer") {
      o.optimizer = value;
    } else {
      fail(ErrorKind::kUsage, "{}: no such flag", flag);
    }
  }
  require(o.dims.size() >= 2, "--dims: at least two sizes");
  return o;
}

HostTensor numbers(const TensorSpec& spec) {
  return Initializer::normal(0, 1).keyed({1, 2}).evaluate(spec);
}

void run(const Options& o) {
  Ir ir;
  Graph& main = ir.main_graph();
  const TensorSpec image_spec{{o.batch, o.dims.front()}, f32, {}};
  const H2dStream image = ir.h2d_stream(image_spec, "image");
  const Tensor x = main.host_load(image);
  const auto [factories, forward] = nn::create_graph(ir, Mlp(o.dims), x);
  std::vector<StreamInput> inputs;
  std::vector<StreamOutput> outputs;
  const HostTensor images = numbers(image_spec);
  inputs.push_back({image, images});
  HostTensor labels({{o.batch}, i32, {}});
  HostTensor result;
  if (o.optimizer == "none") {
    const Tensor y = forward.bind(factories.init(main)).call(x)[0];
    result = HostTensor(y.spec());
    outputs.push_back({main.host_store(y, "logits"), result});
  } else {
    for (int64_t i = 0; i < o.batch; ++i)
      labels.as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % o.dims.back());
    const H2dStream label_stream = ir.h2d_stream(labels.spec(), "labels");
    const Tensor truth = main.host_load(label_stream);
    const nn::GraphWithNamedArgs backward = [&] {
      transforms::AutodiffOptions options;
      options.grads_required = Tensors(forward.args().tensors());
      return forward.autodiff(options);
    }();
    const nn::NamedTensors variables = factories.init(main);
    const CallSiteInfo call = forward.bind(variables).call_with_info(x);
    const auto [loss, gradient] = ops::cross_entropy_with_grad(call.output(0), truth);
    result = HostTensor(loss.spec());
    outputs.push_back({main.host_store(loss, "loss"), result});
    const auto& info = backward.grad_graph_info();
    const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
    nn::Optimizer optimizer = o.optimizer == "adam" ? nn::Optimizer::adam() : nn::Optimizer::sgd();
    optimizer.apply(main, variables, info.fwd_parent_ins_to_grad_parent_outs(call, back), 1e-4);
    inputs.push_back({label_stream, labels});
  }
  Session session(ir, {.device = cpu_device({.threads = o.threads})});
  Binding binding = session.bind(inputs, outputs);
  using Clock = std::chrono::steady_clock;
  for (int64_t i = 0; i < std::min<int64_t>(o.steps, 20); ++i) session.run_into(binding);
  const runtime::Counters before = session.counters();
  std::vector<double> micros;
  for (int64_t i = 0; i < o.steps; ++i) {
    const auto begin = Clock::now();
    session.run_into(binding);
    micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  const runtime::Counters after = session.counters();
  std::sort(micros.begin(), micros.end());
  const double flops = (after.flops - before.flops) / static_cast<double>(o.steps);
  const auto bytes = (after.bytes - before.bytes) / o.steps;
  const double median = micros[micros.size() / 2];
  const std::string_view form =
      o.json ? "{{\"microseconds_per_step\": {:.2f}, \"least\": {:.2f}, \"gflop\": {:.6f}, "
               "\"operand_bytes\": {}, \"planned_bytes\": {}}}\n"
             : "median {:.2f} us a step, least {:.2f}; {:.6f} GF, operands {} bytes; {} bytes "
               "planned\n";
  fmt::print(fmt::runtime(form), median, micros.front(), flops / 1e9, bytes,
             session.planned_bytes());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
  return 0;
}
