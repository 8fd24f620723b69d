#include "sluice/models/encoders/encoder_parts.h"

#include "sluice/ops/attention.h"
#include "sluice/ops/transpose.h"

namespace sluice::models::internal {

Tensor EncoderAttention::build(nn::Builder& b, Tensor x, Tensor mask) const {
  const nn::Linear project(x.dim(2), nn::Bias::kAdd, init_);
  const auto in_heads = [&](const char* name) {
    const Tensor t = b.inlined(name, project, x);
    return ops::transpose(ops::reshape(t, {x.dim(0), x.dim(1), heads_, x.dim(2) / heads_}),
                          {0, 2, 1, 3});
  };
  const Tensor q = in_heads("query"), k = in_heads("key"), v = in_heads("value");
  ops::AttentionOptions o{.mask = mask};
  if (dropout_ > 0 && b.mode() == nn::RunMode::kTrain) {
    o.dropout = dropout_;
    o.seed = nn::fold_seed(b.seed(), b.path());
  }
  return ops::reshape(ops::transpose(ops::attention(q, k, v, o), {0, 2, 1, 3}), x.shape());
}

Tensor dense(nn::Builder& b, const std::string& name, int64_t out, nn::WeightInit init,
             const Tensor& x) {
  nn::Builder layer(b, name);
  return layer.inlined("dense", nn::Linear(out, nn::Bias::kAdd, init), x);
}

void check_size(const char* model, const char* name, int64_t size) {
  require(size >= 1, "{}: {} must be at least 1, got {}", model, name, size);
}

void check_encoder(const EncoderSizes& s) {
  check_size(s.name, "blocks", s.blocks);
  check_size(s.name, "heads", s.heads);
  check_size(s.name, "width", s.width);
  check_size(s.name, "hidden", s.hidden);
  check_size(s.name, "micro_batch", s.micro_batch);
  check_size(s.name, "eval_batch", s.eval_batch);
  require(s.width % s.heads == 0, "{}: heads must divide the width, {}, got {}", s.name, s.width,
          s.heads);
  require(s.dropout >= 0 && s.dropout < 1, "{}: dropout must be in [0, 1), got {}", s.name,
          s.dropout);
  require(s.epsilon > 0, "{}: epsilon must be positive, got {}", s.name, s.epsilon);
}

}  // namespace sluice::models::internal
