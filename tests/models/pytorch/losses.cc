// Losses of PyTorch, composed of elementwise operators and a reduction: a row builds each.
#include <numbers>

#include "operators.h"

namespace sluice::test {
namespace {

/// Reduces the losses of the elements as option `reduction` says: to their mean by default.
Tensor reduced(const Call& c, const Tensor& losses) {
  const std::string reduction = c.text("reduction");
  if (reduction == "none") return losses;
  if (reduction == "sum") return ops::sum(losses);
  if (reduction == "batchmean") return ops::sum(losses) / static_cast<double>(losses.dim(0));
  return ops::mean(losses);
}

Tensor weighted(const Call& c, const Tensor& losses) {
  return c.has("weight") ? losses * c["weight"] : losses;
}

/// Makes a Build of the reduced losses f(call).
template <typename F>
Build loss(F f) {
  return row([f](const Call& c) { return reduced(c, f(c)); });
}

/// |d| - limit/2 where |d| is at least the limit, else d²/(2·limit).
Tensor smooth(const Tensor& d, double limit) {
  const Tensor size = ops::abs(d);
  if (limit == 0) return size;
  return ops::where(ops::less(size, limit), ops::square(d) * (0.5 / limit), size - limit / 2);
}

Tensor difference(const Call& c) { return c.x() - c["target"]; }

Tensor huber(const Call& c) {
  const double delta = c.number("delta", 1);
  return smooth(difference(c), delta) * delta;
}

Tensor binary_cross_entropy(const Call& c) {
  const Tensor& t = c["target"];
  return weighted(c, -(t * ops::log(c.x()) + (1.0 - t) * ops::log(1.0 - c.x())));
}

Tensor with_logits(const Call& c) {
  const Tensor& t = c["target"];
  const Tensor cost = ops::softplus(-c.x());
  const Tensor positive = c.has("pos_weight") ? (1.0 + (c["pos_weight"] - 1.0) * t) * cost : cost;
  return weighted(c, (1.0 - t) * c.x() + positive);
}

Tensor divergence(const Call& c) {
  const Tensor& t = c["target"];
  return c.flag("log_target") ? ops::exp(t) * (t - c.x()) : t * (ops::log(t) - c.x());
}

Tensor hinge(const Call& c) {
  const Tensor far = ops::relu(c.number("margin", 1) - c.x());
  return ops::where(ops::greater(c["target"], 0.0), c.x(), far);
}

Tensor poisson(const Call& c) {
  const Tensor& x = c.x();
  const Tensor& t = c["target"];
  const Tensor losses =
      c.flag("log_input", true) ? ops::exp(x) - t * x : x - t * ops::log(x + c.number("eps", 1e-8));
  if (!c.flag("full")) return losses;
  const Tensor stirling = t * ops::log(t) - t + 0.5 * ops::log(t * (2 * std::numbers::pi));
  return losses + ops::where(ops::greater(t, 1.0), stirling, 0.0);
}

}  // namespace

BuildTable loss_operators() {
  BuildTable t;
  t["mse_loss"] = loss([](const Call& c) { return ops::square(difference(c)); });
  t["l1_loss"] = loss([](const Call& c) { return ops::abs(difference(c)); });
  t["smooth_l1_loss"] =
      loss([](const Call& c) { return smooth(difference(c), c.number("beta", 1)); });
  t["huber_loss"] = loss(huber);
  t["binary_cross_entropy"] = loss(binary_cross_entropy);
  t["binary_cross_entropy_with_logits"] = loss(with_logits);
  t["kl_div"] = loss(divergence);
  t["soft_margin_loss"] = loss([](const Call& c) { return ops::softplus(-(c["target"] * c.x())); });
  t["margin_ranking_loss"] = loss([](const Call& c) {
    return ops::relu(c.number("margin", 0) - c["target"] * (c.x() - c["other"]));
  });
  t["hinge_embedding_loss"] = loss(hinge);
  t["poisson_nll_loss"] = loss(poisson);
  return t;
}

}  // namespace sluice::test
