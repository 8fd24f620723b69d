#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "bench/figure.h"
#include "bench/steps.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/sluice.h"

namespace sluice::bench {
namespace {

constexpr int kTransformerPeaks = 5;
constexpr int64_t kVocabulary = 65, kContext = 32, kFeatures = 64, kHeads = 2, kDecoderBlocks = 2;
constexpr int64_t kSequences = 16;
constexpr int64_t kDecoderSteps = 60;  // Steps of a round.
constexpr double kDecoderGoal = 2;

// Attention to earlier tokens, then a perceptron of four times the width, each after a
// normalisation and added to its input. Attention consists of plain operators.
class DecoderBlock : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = x + attend(b, norm1_(b, x));
    return x + down_(b, ops::gelu(up_(b, norm2_(b, x))));
  }

 private:
  Tensor attend(nn::Builder& b, const Tensor& x) const {
    constexpr int64_t kSize = kFeatures / kHeads;
    const Tensors parts = ops::split(qkv_(b, x), 3, 2);
    const auto heads = [](const Tensor& t) {  // (batch, heads, context, size)
      return ops::transpose(ops::reshape(t, {kSequences, kContext, kHeads, kSize}), {0, 2, 1, 3});
    };
    const Tensor keys = ops::transpose(heads(parts[1]), {0, 1, 3, 2});
    Tensor scores = ops::matmul(heads(parts[0]), keys) * (1 / std::sqrt(1.0 * kSize));
    HostTensor later(f32_spec({kContext, kContext}));
    for (int64_t i = 0; i < kContext * kContext; ++i)
      later.as<float>()[static_cast<size_t>(i)] = i % kContext > i / kContext ? 1.0f : 0.0f;
    const Tensor is_later = b.graph().constant(later.cast(boolean), "later");
    scores = ops::where(is_later, -std::numeric_limits<double>::infinity(), scores);
    const Tensor mixed = ops::matmul(ops::softmax(scores), heads(parts[2]));
    return out_(
        b, ops::reshape(ops::transpose(mixed, {0, 2, 1, 3}), {kSequences, kContext, kFeatures}));
  }

  nn::Child<nn::LayerNorm> norm1_{*this, "norm1"}, norm2_{*this, "norm2"};
  nn::Child<nn::Linear> qkv_{*this, "qkv", 3 * kFeatures}, out_{*this, "out", kFeatures};
  nn::Child<nn::Linear> up_{*this, "up", 4 * kFeatures}, down_{*this, "down", kFeatures};
};

// Logits (tokens, vocabulary) of tokens (batch, context).
class Decoder : public nn::Module {
 public:
  Decoder() {
    for (int64_t i = 0; i < kDecoderBlocks; ++i) blocks_.add();
  }
  Tensor build(nn::Builder& b, Tensor tokens) const {
    const auto normal = Initializer::normal(0, 0.02);
    Tensor x =
        ops::gather(b.add_variable_input("tokens", normal, {kVocabulary, kFeatures}), tokens);
    x = x + b.add_variable_input("positions", normal, {kContext, kFeatures});
    for (const auto& block : blocks_) x = block(b, x);
    return ops::reshape(head_(b, norm_(b, x)), {kSequences * kContext, kVocabulary});
  }

 private:
  nn::Children<DecoderBlock> blocks_{*this, "block"};
  nn::Child<nn::LayerNorm> norm_{*this, "norm"};
  nn::Child<nn::Linear> head_{*this, "head", kVocabulary};
};

// A training step with Adam, its session and its arrays.
struct RunningTransformer {
  explicit RunningTransformer(int threads) {
    const TensorSpec tokens{{kSequences, kContext}, i32, {}},
        labels{{kSequences * kContext}, i32, {}};
    const H2dStream inputs[] = {ir.h2d_stream(tokens, "tokens"), ir.h2d_stream(labels, "labels")};
    Graph& main = ir.main_graph();
    const Tensor x = main.host_load(inputs[0]);
    const auto [factories, forward] = nn::create_graph(ir, Decoder(), x);
    const nn::NamedTensors variables = factories.init(main);
    const CallSiteInfo call = forward.bind(variables).call_with_info(x);
    const auto [loss, gradient] =
        ops::cross_entropy_with_grad(call.output(0), main.host_load(inputs[1]));
    const D2hStream result = main.host_store(loss, "loss");
    transforms::AutodiffOptions options;
    options.grads_required = Tensors(forward.args().tensors());
    const nn::GraphWithNamedArgs backward = forward.autodiff(options);
    const auto& info = backward.grad_graph_info();
    const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
    nn::Optimizer::adam().apply(main, variables,
                                info.fwd_parent_ins_to_grad_parent_outs(call, back), 1e-4);
    int32_t next = 0;
    for (const H2dStream& stream : inputs) {
      for (int32_t& token : arrays.emplace_back(stream.spec).as<int32_t>())
        token = next++ % kVocabulary;
    }
    arrays.emplace_back(loss.spec());
    session =
        std::make_unique<Session>(ir, SessionOptions{.device = cpu_device({.threads = threads})});
    binding =
        session->bind({{inputs[0], arrays[0]}, {inputs[1], arrays[1]}}, {{result, arrays[2]}});
  }

  Ir ir;
  std::vector<HostTensor> arrays;
  std::unique_ptr<Session> session;
  Binding binding;
};

}  // namespace

std::vector<Case> transformer_cases(Machine& machine) {
  std::vector<Case> cases;
  for (int threads = 1; threads <= kMaxThreads; ++threads) {
    cases.push_back({.group = "transformer",
                     .name = "2 blocks of plain operators, batch 16, Adam",
                     .threads = threads,
                     .goals = {{Goal::Of::kPyTorch, kDecoderGoal}},
                     .pytorch = fmt::format("transformer {} {} {} {} {} {} {} {}", kVocabulary,
                                            kContext, kFeatures, kHeads, kDecoderBlocks, kSequences,
                                            threads, kDecoderSteps),
                     .start = [&machine, threads]() -> std::function<Round()> {
                       auto running = std::make_shared<RunningTransformer>(threads);
                       return [&machine, threads, running] {
                         double peak = 0;
                         for (int i = 0; i < kTransformerPeaks; ++i)
                           peak = std::max(peak, machine.peak(threads));
                         const StepTimes times =
                             time_steps(*running->session, running->binding, kDecoderSteps);
                         return Round{times.median_seconds, times.flops / peak};
                       };
                     }});
  }
  return cases;
}

}  // namespace sluice::bench
