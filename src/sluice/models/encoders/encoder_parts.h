#pragma once
#include <cstdint>
#include <string>

#include "sluice/nn/layers.h"

/// The parts that bert() and vit() share.
namespace sluice::models::internal {

/// Self-attention without its output projection: the linear layers `query`, `key` and `value`.
class EncoderAttention : public nn::Module {
 public:
  EncoderAttention(int64_t heads, double dropout, nn::WeightInit init)
      : heads_(heads), dropout_(dropout), init_(init) {}
  /// x is (samples, rows, width). `mask` is that of ops::attention(), or empty.
  Tensor build(nn::Builder& b, Tensor x, Tensor mask) const;

 private:
  int64_t heads_;
  double dropout_;
  nn::WeightInit init_;
};

/// Builds the linear layer `dense` as part of submodule `name`: its weights are `name.dense.*`.
Tensor dense(nn::Builder& b, const std::string& name, int64_t out, nn::WeightInit init,
             const Tensor& x);

/// The sizes that all encoders have; `name` is that of the model in errors.
struct EncoderSizes {
  const char* name;
  int64_t blocks, heads, width, hidden, micro_batch, eval_batch;
  double dropout, epsilon;
};
/// Error{kUsage} unless sizes are at least 1, the heads divide the width, dropout is in [0, 1) and
/// epsilon is positive.
void check_encoder(const EncoderSizes& sizes);
/// Error{kUsage} unless `size` is at least 1.
void check_size(const char* model, const char* name, int64_t size);

}  // namespace sluice::models::internal
