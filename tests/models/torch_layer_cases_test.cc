// Single layers, rotary embeddings and a training with a tied weight must equal PyTorch's, in
// values and gradients (torch_layers.py).

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"
#include "torch_layers.h"

namespace sluice::test {
namespace {

constexpr double kLayerTolerance = 1e-5;

// Expects elements that differ by little of the largest one: sums of products cancel.
void expect_close_array(const HostTensor& got, const HostTensor& want, const std::string& what) {
  double largest = 1;
  for (const double x : want.to_doubles()) largest = std::max(largest, std::abs(x));
  expect_close(got, want, what, kLayerTolerance * largest);
}

using Created = std::pair<nn::NamedVariableFactories, nn::GraphWithNamedArgs>;
using Create = std::function<Created(const Ir& ir, const TensorSpec& x)>;

template <typename M>
Create layer(const M& module) {
  return [module](const Ir& ir, const TensorSpec& x) { return nn::create_graph(ir, module, x); };
}

// A rotary embedding of rows `first` and following of a longer table. The position is a number or
// data.
class Rotary : public nn::Module {
 public:
  enum class Position { kNumber, kData };
  Rotary(ops::RotaryTableOptions table, int64_t first, bool interleaved, Position position)
      : table_(table), first_(first), interleaved_(interleaved), position_(position) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor table = ops::rotary_table(b.graph(), table_);
    const int64_t length = x.dim(-2);
    if (position_ == Position::kNumber)
      return ops::rotary(x, ops::rotary_rows(table, first_, length), {interleaved_});
    const Tensor first =
        b.graph().constant(HostTensor::scalar(static_cast<float>(first_)).cast(u32));
    return ops::rotary(x, ops::rotary_rows(table, first, length), {interleaved_});
  }

 private:
  ops::RotaryTableOptions table_;
  int64_t first_;
  bool interleaved_;
  Position position_;
};

// Layers whose memory is the last two rows of the input, doubled.
Tensor memory_of(const Tensor& x) {
  return 2.0 * ops::slice(x, {0, x.dim(1) - 2, 0}, {x.dim(0), x.dim(1), x.dim(2)});
}
struct CrossAttention : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    return nn::MultiHeadAttention({.heads = 2}).build(b, x, memory_of(x), {});
  }
};
struct Decoder : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    const nn::TransformerDecoderLayer layer({.heads = 2, .hidden = 6, .dropout = 0});
    return layer.build(b, x, memory_of(x));
  }
};

std::map<std::string, Create> layers() {
  using ops::Interpolation;
  constexpr auto kNumber = Rotary::Position::kNumber, kData = Rotary::Position::kData;
  return {
      {"rms_norm", layer(nn::RMSNorm())},
      {"rms_norm.axes", layer(nn::RMSNorm(2, 0.25))},
      {"gelu", layer(nn::Gelu())},
      {"gelu.tanh", layer(nn::Gelu(nn::Approximation::kTanh))},
      {"silu", layer(nn::Silu())},
      {"softplus", layer(nn::Softplus())},
      {"hard_sigmoid", layer(nn::HardSigmoid())},
      {"hard_swish", layer(nn::HardSwish())},
      {"mish", layer(nn::Mish())},
      {"leaky_relu", layer(nn::LeakyRelu(0.2))},
      {"elu", layer(nn::Elu(0.5))},
      {"softmax", layer(nn::Softmax(1))},
      {"log_softmax", layer(nn::LogSoftmax())},
      {"embedding", layer(nn::Embedding(7, 4))},
      {"embedding.padding", layer(nn::Embedding(7, 4, {.padding_index = -5}))},
      {"swiglu", layer(nn::SwiGLU(6))},
      {"swiglu.bias", layer(nn::SwiGLU(6, nn::Bias::kAdd))},
      {"upsample.nearest", layer(nn::Upsample({.scale = {2}}))},
      {"upsample.fraction", layer(nn::Upsample({.scale = {1.7, 0.6}}))},
      {"upsample.size", layer(nn::Upsample({.size = {5, 4}, .mode = Interpolation::kLinear}))},
      {"upsample.bilinear", layer(nn::Upsample({.scale = {1.7}, .mode = Interpolation::kLinear}))},
      {"upsample.corners",
       layer(
           nn::Upsample({.scale = {2.5}, .mode = Interpolation::kLinear, .align_corners = true}))},
      {"upsample.linear", layer(nn::Upsample({.size = {7}, .mode = Interpolation::kLinear}))},
      {"upsample.cubic", layer(nn::Upsample({.scale = {2}, .mode = Interpolation::kCubic}))},
      {"attention", layer(nn::MultiHeadAttention({.heads = 3}))},
      {"attention.causal",
       layer(nn::MultiHeadAttention({.heads = 2, .bias = nn::Bias::kNone, .causal = true}))},
      {"attention.cross", layer(CrossAttention())},
      {"attention.grouped", layer(nn::MultiHeadAttention({.heads = 4,
                                                          .kv_heads = 2,
                                                          .bias = nn::Bias::kNone,
                                                          .projections = nn::Projections::kSeparate,
                                                          .causal = true,
                                                          .rotary_base = 100}))},
      {"encoder", layer(nn::TransformerEncoderLayer({.heads = 2, .hidden = 6, .dropout = 0}))},
      {"encoder.first", layer(nn::TransformerEncoderLayer({.heads = 2,
                                                           .hidden = 6,
                                                           .dropout = 0,
                                                           .activation = nn::Activation::kGelu,
                                                           .norm_first = true,
                                                           .causal = true}))},
      {"decoder", layer(Decoder())},
      {"rotary", layer(Rotary({.positions = 3, .size = 6}, 0, false, kNumber))},
      {"rotary.offset", layer(Rotary({.positions = 9, .size = 4, .base = 500}, 5, false, kNumber))},
      {"rotary.pairs", layer(Rotary({.positions = 4, .size = 6}, 0, true, kData))},
      {"rotary.partial", layer(Rotary({.positions = 9, .size = 4, .base = 500}, 5, true, kData))},
  };
}

HostTensor transposed(const HostTensor& matrix) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  HostTensor result(f32_spec({columns, rows}));
  for (int64_t i = 0; i < rows * columns; ++i)
    at(result.as<float>(), i % columns * rows + i / columns) = at(matrix.as<float>(), i);
  return result;
}

// A tensor whose gradient is compared.
struct Wanted {
  Tensor tensor;
  std::string key;          // Key of the stored gradient after that of the layer.
  bool transposed = false;  // PyTorch stores the weight with its axes exchanged.
};

// Compares the result of a layer, and the gradients of Σ y·scale.
void expect_layer(const Stored& stored, const std::string& name, const Create& create) {
  const std::string key = "layer." + name + ":";
  const HostTensor& x = stored[key + "x"];
  Ir ir;
  const auto [factories, forward] = create(ir, x.spec());
  Graph& main = ir.main_graph();
  nn::NamedTensors variables;
  std::vector<Wanted> wanted;
  if (is_float(x.dtype())) wanted.push_back({forward.graph().inputs()[0], "grad"});
  factories.for_each([&, &graph = forward](const std::string& k, const nn::VariableFactory& f) {
    const HostTensor& weight = stored[key + "weight:" + k];
    wanted.push_back({graph.args()[k], "grad:" + k, f.torch() && f.torch()->transposed});
    variables.merge(k, main.constant(wanted.back().transposed ? transposed(weight) : weight));
  });
  Tensors required;
  for (const Wanted& w : wanted) required.push_back(w.tensor);
  const nn::GraphWithNamedArgs backward = nn::autodiff(
      forward,
      {.grads_provided = Tensors{forward.graph().outputs()[0]}, .grads_required = required});
  const CallSiteInfo call = forward.bind(variables).call_with_info(main.constant(x));
  const Tensors gradients = backward.call(main.constant(stored[key + "scale"]),
                                          backward.grad_graph_info().inputs_dict(call));
  const D2hStream result = main.host_store(call.output(0), "y");
  std::vector<D2hStream> streams;
  for (size_t i = 0; i < wanted.size(); ++i)
    streams.push_back(main.host_store(gradients[i], wanted[i].key));
  Session session(ir, {.device = cpu_device({.threads = 1})});
  const auto out = session.run({});
  expect_close_array(out[result], stored[key + "y"], key + "y");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const HostTensor& gradient = out[streams[i]];
    expect_close_array(wanted[i].transposed ? transposed(gradient) : gradient,
                       stored[key + wanted[i].key], key + wanted[i].key);
  }
}

TEST(TorchLayers, HaveTheValuesAndGradientsOfPyTorch) {
  const Stored stored;
  const std::map<std::string, Create> all = layers();
  for (const auto& [name, create] : all) expect_layer(stored, name, create);
  for (const auto& [name, array] : stored.arrays) {
    if (name.starts_with("layer.")) {
      EXPECT_TRUE(all.contains(name.substr(6, name.find(':') - 6))) << name;
    }
  }
}

// Tied of torch_layers.py.
class Tied : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor tokens) const {
    Tensor x = ops::mean(tokens_(b, tokens), {.axes = {1}});
    x = norm_(b, x + mlp_(b, x));
    return ops::matmul(x, ops::transpose(b.variable("tokens.weight")));
  }

 private:
  nn::Child<nn::Embedding> tokens_{*this, "tokens", 9, 6, nn::EmbeddingOptions{.padding_index = 0}};
  nn::Child<nn::SwiGLU> mlp_{*this, "mlp", 8};
  nn::Child<nn::RMSNorm> norm_{*this, "norm"};
};

// The table has two uses, and each adds to its gradient.
TEST(TiedEmbedding, TrainsAsInPyTorch) {
  const Stored stored;
  const auto arrays = [&](const std::string& prefix) {
    std::vector<NamedArray> list;
    for (const auto& [name, array] : stored.arrays) {
      if (name.starts_with(prefix)) list.push_back({name.substr(prefix.size()), array});
    }
    return list;
  };
  const std::string file = testing::TempDir() + "tied_weights.safetensors";
  write_safetensors_file(file, arrays("tied.first."));
  for (const auto& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    const bool phased = std::holds_alternative<train::PhasedExecution>(strategy);
    train::TrainingModel model = train::training_model(
        train::classifier(Tied(), i32_spec({3, 4})),
        {.strategy = strategy,
         .locations = phased ? train::TensorLocations::phased() : train::TensorLocations(),
         .learning_rate = 0.25,
         .session = {.device = cpu_device({.threads = 1})}},
        nn::Optimizer::sgd());
    EXPECT_EQ(train::load_torch_weights(model.session(), model.programs(), file),
              std::vector<std::string>{"head.weight"});
    std::vector<float> losses;
    for (int step = 0; step < 20; ++step) {
      const data::Element result =
          model({{"input", stored["tied.tokens"]}, {"labels", stored["tied.labels"]}});
      losses.push_back(static_cast<float>(result["loss"].to_doubles()[0]));
    }
    expect_close(HostTensor::of<float>({20}, f32, losses), stored["tied.losses"], "losses",
                 kLayerTolerance);
    const std::string trained = testing::TempDir() + "tied_trained.safetensors";
    train::save_torch_weights(model.session(), model.programs(), trained);
    std::vector<NamedArray> saved = read_safetensors_file(trained);
    EXPECT_EQ(saved.size(), 5u);
    for (const NamedArray& a : saved)
      expect_close(a.array, stored["tied.last." + a.name], a.name, kLayerTolerance);
    std::remove(trained.c_str());
  }
  std::remove(file.c_str());
}

}  // namespace
}  // namespace sluice::test
