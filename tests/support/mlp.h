#pragma once
#include <memory>
#include <string>
#include <vector>

#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {

enum class Layers { kInlined, kOutlined };
enum class Activations { kKept, kRecomputed };

struct MlpOptions {
  int layers = 4;      ///< Number of hidden layers, all of one shape.
  int64_t width = 24;  ///< Width of the input and of hidden layers.
  int64_t classes = 10;
  int64_t batch = 8;
  double learning_rate = 0.05;
  Layers style = Layers::kInlined;
  Activations activations = Activations::kKept;
};

/// A hidden layer: x + gelu(Linear(x)).
class Hidden : public nn::Module {
 public:
  explicit Hidden(int64_t width) : fc_(*this, "fc", width) {}
  Tensor build(nn::Builder& b, Tensor x) const { return x + ops::gelu(fc_(b, x)); }

 private:
  nn::Child<nn::Linear> fc_;
};

/// Hidden layers and then a Linear. The hidden layers are inlined, or all call one graph. Variables
/// have the same paths in both styles.
class Mlp : public nn::Module {
 public:
  explicit Mlp(const MlpOptions& o) : o_(o), head_(*this, "head", o.classes) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    if (o_.style == Layers::kInlined) {
      for (int i = 0; i < o_.layers; ++i) x = b.inlined(name(i), Hidden(o_.width), x);
    } else {
      const auto [factories, layer] = nn::create_graph(b.ir(), Hidden(o_.width), x);
      for (int i = 0; i < o_.layers; ++i)
        x = layer.bind(b.add_variable_inputs(name(i), factories)).call(x)[0];
    }
    return head_(b, x);
  }

 private:
  static std::string name(int i) { return "layer" + std::to_string(i); }

  MlpOptions o_;
  nn::Child<nn::Linear> head_;
};

/// A training step (entry "train": SGD on the cross entropy) and the logits of the model (entry
/// "eval"), on shared variables.
struct MlpProgram {
  explicit MlpProgram(const MlpOptions& o = {}) : options(o) {
    Graph& train = ir.entry_graph("train");
    image = ir.h2d_stream({{o.batch, o.width}, f32, {}}, "image");
    labels = ir.h2d_stream({{o.batch}, i32, {}}, "labels");
    const Tensor x = train.host_load(image);
    const Tensor truth = train.host_load(labels);
    const auto [factories, forward] = nn::create_graph(ir, Mlp(o), x);
    nn::GraphWithNamedArgs backward = nn::autodiff(forward);
    if (o.activations == Activations::kRecomputed) backward = nn::recompute_graph(backward);
    variables = factories.init(train, {.seed = 7});
    const CallSiteInfo call = forward.bind(variables).call_with_info(x);
    const auto [mean_loss, gradient] = ops::cross_entropy_with_grad(call.output(0), truth);
    loss = train.host_store(mean_loss, "loss");
    const auto& info = backward.grad_graph_info();
    const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
    const auto grads = info.fwd_parent_ins_to_grad_parent_outs(call, back);
    for (const Tensor& v : variables.tensors())
      ops::scaled_add_(v, grads.at(v), 1.0, -o.learning_rate);

    Graph& eval = ir.entry_graph("eval");
    eval_image = ir.h2d_stream({{o.batch, o.width}, f32, {}}, "eval_image");
    auto shared = variables.to_dict();
    for (auto& [key, v] : shared) v = ir.share_variable(v, eval);
    const Tensor digits = eval.host_load(eval_image);
    const auto [eval_factories, eval_graph] = nn::create_graph(ir, Mlp(o), digits);
    logits = eval.host_store(eval_graph.bind(nn::NamedTensors::from_dict(shared)).call(digits)[0],
                             "logits");
  }

  Ir ir;
  MlpOptions options;
  H2dStream image, labels, eval_image;
  D2hStream loss, logits;
  nn::NamedTensors variables;
};

/// Batch number `i`: images in [-1, 1), and labels that are a function of the images.
struct Batch {
  Batch(const MlpOptions& o, uint64_t i)
      : image(f32_spec({o.batch, o.width})), labels(i32_spec({o.batch})) {
    const Seed key = fold(Seed{1, 2}, i);
    const auto x = image.as<float>();
    for (size_t k = 0; k < x.size(); ++k) x[k] = 2 * random_unit(key, k) - 1;
    for (int64_t row = 0; row < o.batch; ++row) {
      const auto at = x.subspan(static_cast<size_t>(row * o.width), static_cast<size_t>(o.classes));
      labels.as<int32_t>()[static_cast<size_t>(row)] =
          static_cast<int32_t>(std::max_element(at.begin(), at.end()) - at.begin());
    }
  }
  HostTensor image, labels;
};

/// Runs `steps` training steps from batch `first` on and returns their losses.
inline std::vector<float> train(Session& session, const MlpProgram& p, int steps,
                                uint64_t first = 0) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    const Batch batch(p.options, first + static_cast<uint64_t>(i));
    losses.push_back(
        session.run({{p.image, batch.image}, {p.labels, batch.labels}}, "train")[p.loss]
            .as<float>()[0]);
  }
  return losses;
}

/// Returns the bytes of all variables, in order of paths.
inline std::vector<std::byte> all_bytes(const Session& session) {
  std::vector<std::byte> all;
  session.each_variable([&](const std::string&, const HostTensor& value) {
    all.insert(all.end(), value.bytes().begin(), value.bytes().end());
  });
  return all;
}

/// Returns the message of the Error of this kind that `f` throws. Fails the test if `f` throws no
/// Error or another kind.
template <typename F>
std::string error_of(ErrorKind kind, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), to_string(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::test
