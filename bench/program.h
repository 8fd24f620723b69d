#pragma once
#include <cstdint>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::bench {

/// Linear layers with GELU between them.
class Mlp : public nn::Module {
 public:
  /// `sizes`: features of the input, then of each layer's output.
  explicit Mlp(const std::vector<int64_t>& sizes) {
    for (size_t i = 1; i < sizes.size(); ++i) fc_.add(sizes[i]);
  }
  Tensor build(nn::Builder& b, Tensor x) const;

 private:
  nn::Children<nn::Linear> fc_{*this, "fc"};
};

enum class Update { kNone, kSgd, kAdam };

/// A program that trains a classifier on one batch (cross entropy, learning rate 1e-4), or only
/// applies it.
class Program {
 public:
  /// `model` computes logits (batch, classes) from an array (batch, features).
  template <typename M>
  Program(const M& model, int64_t batch, int64_t features, Update update)
      : input_(ir_.h2d_stream({{batch, features}, f32, {}}, "input")), update_(update) {
    const Tensor x = ir_.main_graph().host_load(input_);
    const auto [factories, forward] = nn::create_graph(ir_, model, x);
    complete(factories, forward, x);
  }

  const Ir& ir() const { return ir_; }
  /// Number of elements of all weights.
  int64_t parameters() const { return parameters_; }
  /// Binds the arrays that this program holds.
  Binding bind(const Session& session) const;

 private:
  void complete(const nn::NamedVariableFactories& factories, const nn::GraphWithNamedArgs& forward,
                const Tensor& x);

  Ir ir_;
  H2dStream input_, labels_;
  D2hStream result_;
  HostTensor input_data_, label_data_;
  mutable HostTensor result_data_;
  Update update_;
  int64_t parameters_ = 0;
};

}  // namespace sluice::bench
