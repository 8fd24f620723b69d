// The program of docs/tour.md. Prints a section for each block of output of that page: "== name",
// then the lines of the block.
#include <fmt/core.h>

#include <string>

#include "sluice/base/sys.h"
#include "sluice/check/checker.h"
#include "sluice/exe/text.h"
#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"

using namespace sluice;

namespace {

class Net : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return fc2_(b, ops::gelu(fc1_(b, x))); }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", 8};
  nn::Child<nn::Linear> fc2_{*this, "fc2", 3};
};

void section(const char* name, const std::string& text) { fmt::print("== {}\n{}\n", name, text); }

// Returns `count` lines of `text`, from the line with `word` on.
std::string lines_from(const std::string& text, const std::string& word, int count) {
  const size_t at = text.find(word);
  SLUICE_CHECK(at != std::string::npos);
  const size_t begin = text.rfind('\n', at) + 1;
  size_t end = begin;
  for (int i = 0; i < count; ++i) end = text.find('\n', end) + 1;
  return text.substr(begin, end - 1 - begin);
}

// Returns the plan's text, changed to write the result of the first `op` 32 bytes after its
// address.
std::string with_result_moved(std::string text, const std::string& op) {
  const size_t step = text.find(" " + op + " ");
  const size_t begin = text.find(" at frame+", text.find("write ", step)) + 10;
  const size_t end = text.find(' ', begin);
  return text.replace(begin, end - begin,
                      std::to_string(std::stoi(text.substr(begin, end - begin)) + 32));
}

void tour() {
  // nn: a module builds a graph.
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream x_stream = ir.h2d_stream({{4, 6}, f32, {}}, "x");
  const H2dStream label_stream = ir.h2d_stream({{4}, i32, {}}, "label");
  const Tensor x = main.host_load(x_stream);
  const Tensor label = main.host_load(label_stream);
  const auto [factories, forward] = nn::create_graph(ir, Net(), x);
  section("factories", keys_text(factories));
  section("forward", forward.print_schedule());

  // transforms: the gradient is a graph too.
  const nn::GraphWithNamedArgs backward = nn::autodiff(forward);
  section("backward", backward.print_schedule());

  // ir: one training step.
  const nn::NamedTensors variables = factories.init(main, {.seed = 1});
  const CallSiteInfo call = forward.bind(variables).call_with_info(x);
  const auto [loss, gradient] = ops::cross_entropy_with_grad(call.output(0), label);
  const D2hStream loss_stream = main.host_store(loss, "loss");
  const auto& info = backward.grad_graph_info();
  const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
  nn::Optimizer::sgd().apply(main, variables, info.fwd_parent_ins_to_grad_parent_outs(call, back),
                             0.5);
  section("main", print_schedule(main));

  // compiler and exe: the plan.
  Session session(ir, {.device = cpu_device({.memory = 48_KiB, .threads = 2})});
  const exe::Executable& executable = session.executable();
  section("report", report::summary(executable));
  const std::string text = exe::to_text(executable);
  section("steps", lines_from(text, "kernel cpu.fused", 12));

  // The checker: the plan is right, and a damaged one is not.
  SLUICE_CHECK(check::violations(executable).empty());
  SLUICE_CHECK(exe::to_text(exe::parse_text(text, "plan")) == text);
  const auto violations = check::violations(exe::parse_text(
      with_result_moved(text, "\"MatMul+Add+GeluGate+Mul+GeluSlope\""), "damaged plan"));
  SLUICE_CHECK(!violations.empty());
  section("violation", fmt::format("[{}] {}", violations[0].rule, violations[0].message));

  // runtime: a few steps. The interpreter computes the same losses from the graphs.
  const HostTensor images = Initializer::normal(0, 1).keyed({7, 7}).evaluate(x_stream.spec);
  HostTensor labels(label_stream.spec);
  for (int i = 0; i < 4; ++i) labels.as<int32_t>()[static_cast<size_t>(i)] = i % 3;
  Interpreter interpreter(ir);
  std::string losses;
  for (int step = 0; step < 5; ++step) {
    const HostTensors results = session.run({{x_stream, images}, {label_stream, labels}});
    const auto expected = interpreter.run({{x_stream, images}, {label_stream, labels}});
    SLUICE_CHECK(results[loss_stream].same_bits(expected[loss_stream]));
    losses += fmt::format("step {}: loss {:.4f}\n", step, results[loss_stream].as<float>()[0]);
  }
  SLUICE_CHECK(session.planned_bytes() == session.measured_bytes());
  section("run", losses + fmt::format("{} bytes planned, {} measured", session.planned_bytes(),
                                      session.measured_bytes()));
}

}  // namespace

int main() {
  try {
    tour();
  } catch (const Error& e) {
    sys::print_stderr("error ({}): {}\n", to_string(e.kind()), e.what());
    return e.exit_code();
  }
  return 0;
}
