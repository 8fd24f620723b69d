#include "python/bindings/composites.h"
#include "sluice/ops/ops.h"

namespace sluice::python {
namespace {

ops::ReduceOptions reduction(const std::optional<Ints>& axes, bool keepdims) {
  return {.axes = ints_or_empty(axes), .keepdims = keepdims};
}

ops::LossReduction loss_reduction(const std::string& word, std::string_view function) {
  return from_word<ops::LossReduction>(word, fmt::format("{}: reduction", function));
}

/// Returns the parameters of a norm: none, weight, or weight and bias.
std::vector<TensorArg> parameters_of(const std::optional<Tensor>& weight,
                                     const std::optional<Tensor>& bias, std::string_view what) {
  require(weight || !bias, "{}: bias requires weight", what);
  std::vector<TensorArg> parameters;
  if (weight) parameters.emplace_back(*weight);
  if (bias) parameters.emplace_back(*bias);
  return parameters;
}

void bind_reductions(nb::module_& m) {
  bind_function(
      m,
      "def var(t: Tensor, axes: Optional[Ints] = None, keepdims: bool = False, "
      "correction: float = 0.0) -> Tensor",
      "The variance over the axes, or over all: Σ(x - mean)² / max(0, n - correction) of n "
      "elements each; NaN without elements. A correction of 0 is that of numpy, 1 that of torch.",
      +[](Tensor t, std::optional<Ints> axes, bool keepdims, double correction) {
        return ops::var(t, reduction(axes, keepdims), correction);
      });
  bind_function(
      m,
      "def standard_deviation(t: Tensor, axes: Optional[Ints] = None, keepdims: bool = False, "
      "correction: float = 0.0) -> Tensor",
      "The standard deviation √var.",
      +[](Tensor t, std::optional<Ints> axes, bool keepdims, double correction) {
        return ops::standard_deviation(t, reduction(axes, keepdims), correction);
      });
  bind_function(
      m,
      "def norm(t: Tensor, p: float = 2.0, axes: Optional[Ints] = None, keepdims: bool = False) "
      "-> Tensor",
      "The vector norm (Σ|x|ᵖ)^(1/p), as torch.linalg.vector_norm: the largest |x| for p = ∞, the "
      "smallest for p = -∞, and the number of elements that are not 0 for p = 0.",
      +[](Tensor t, double p, std::optional<Ints> axes, bool keepdims) {
        return ops::norm(t, p, reduction(axes, keepdims));
      });
  bind_function(
      m, "def any(t: Tensor, axes: Optional[Ints] = None, keepdims: bool = False) -> Tensor",
      "Whether any element is not zero, as bool. Without elements, false.",
      +[](Tensor t, std::optional<Ints> axes, bool keepdims) {
        return ops::any(t, reduction(axes, keepdims));
      });
  bind_function(
      m, "def all(t: Tensor, axes: Optional[Ints] = None, keepdims: bool = False) -> Tensor",
      "Whether each element is not zero, as bool. Without elements, true.",
      +[](Tensor t, std::optional<Ints> axes, bool keepdims) {
        return ops::all(t, reduction(axes, keepdims));
      });
  bind_function(
      m, "def argsort(t: Tensor, axis: int = -1, descending: bool = False) -> Tensor",
      "The positions (int32) of the elements in sorted order, as numpy.argsort.",
      +[](Tensor t, int64_t axis, bool descending) {
        return ops::argsort(t, {.axis = axis, .descending = descending});
      });
  bind_function(
      m,
      "def topk(t: Tensor, k: int, axis: int = -1, largest: bool = True) "
      "-> Tuple[Tensor, Tensor]",
      "The k largest elements along an axis, largest first, or the k smallest, and their positions "
      "(int32), as torch.topk. Of equal elements, the first ones are taken.",
      +[](Tensor t, int64_t k, int64_t axis, bool largest) {
        const ops::Sorted found = ops::topk(t, k, axis, largest);
        return std::pair(found.values, found.indices);
      });
  bind_function(
      m, "def median(t: Tensor, axis: int = -1) -> Tuple[Tensor, Tensor]",
      "The middle element along an axis in the order of sort(), the lower one of two, and its "
      "position (int32).",
      +[](Tensor t, int64_t axis) {
        const ops::Sorted found = ops::median(t, axis);
        return std::pair(found.values, found.indices);
      });
}

void bind_elementwise(nb::module_& m) {
  bind_function(
      m, "def square(x: Tensor) -> Tensor", "x².", +[](Tensor x) { return ops::square(x); });
  bind_function(
      m, "def hard_sigmoid(x: Tensor) -> Tensor", "(x + 3)/6 within [0, 1].",
      +[](Tensor x) { return ops::hard_sigmoid(x); });
  bind_function(
      m, "def hard_swish(x: Tensor) -> Tensor", "x·hard_sigmoid(x).",
      +[](Tensor x) { return ops::hard_swish(x); });
  bind_function(
      m, "def mish(x: Tensor) -> Tensor", "x·tanh(softplus(x)).",
      +[](Tensor x) { return ops::mish(x); });
}

using Index = std::optional<int64_t>;

ops::NllLossOptions loss_options(const std::string& function, Index ignored,
                                 const std::string& word, bool log_prob = false) {
  return {.reduction = loss_reduction(word, function),
          .has_ignore_index = ignored.has_value(),
          .ignore_index = ignored.value_or(0),
          .log_prob = log_prob};
}
ops::NllSoftmaxGradOptions loss_grad_options(const std::string& function, double loss_grad,
                                             Index ignored, const std::string& word) {
  return {.reduction = loss_reduction(word, function),
          .has_ignore_index = ignored.has_value(),
          .ignore_index = ignored.value_or(0),
          .loss_grad = loss_grad};
}

void bind_losses(nb::module_& m) {
  bind_function(
      m,
      "def nll_loss(probs: Tensor, labels: Tensor, ignore_index: Optional[int] = None, "
      "reduction: Literal['mean', 'sum', 'none'] = 'mean', log_prob: bool = False) -> Tensor",
      "-log p[label] of each sample, reduced. `probs` has shape (…, classes), and holds "
      "log-probabilities with `log_prob`; `labels` has shape (…) and is int32 or uint32. mean "
      "divides the sum by the number of samples that are not ignored. A probability below the "
      "smallest normal float32 counts as that number. A label outside [0, classes) makes its loss "
      "and gradient NaN, unless it is `ignore_index`: that has loss and gradient 0.",
      +[](Tensor probs, Tensor labels, Index ignored, std::string word, bool log_prob) {
        return ops::nll_loss(probs, labels, loss_options("nll_loss", ignored, word, log_prob));
      });
  bind_function(
      m,
      "def nll_loss_with_softmax_grad(probs: Tensor, labels: Tensor, loss_grad: float = 1.0, "
      "ignore_index: Optional[int] = None, "
      "reduction: Literal['mean', 'sum', 'none'] = 'mean') -> Tuple[Tensor, Tensor]",
      "nll_loss of the probabilities that a softmax computed, and the gradient of the softmax's "
      "operand: (probs - onehot(labels))·loss_grad, divided as the loss is.",
      +[](Tensor probs, Tensor labels, double loss_grad, Index ignored, std::string word) {
        return ops::nll_loss_with_softmax_grad(
            probs, labels,
            loss_grad_options("nll_loss_with_softmax_grad", loss_grad, ignored, word));
      });
  bind_function(
      m,
      "def cross_entropy(logits: Tensor, labels: Tensor, ignore_index: Optional[int] = None, "
      "reduction: Literal['mean', 'sum', 'none'] = 'mean') -> Tensor",
      "The negative log likelihood of the softmax of `logits` over the last axis, computed from "
      "log-probabilities. Other arguments are those of nll_loss.",
      +[](Tensor logits, Tensor labels, Index ignored, std::string word) {
        return ops::cross_entropy(logits, labels, loss_options("cross_entropy", ignored, word));
      });
  bind_function(
      m,
      "def cross_entropy_with_grad(logits: Tensor, labels: Tensor, loss_grad: float = 1.0, "
      "ignore_index: Optional[int] = None, "
      "reduction: Literal['mean', 'sum', 'none'] = 'mean') -> Tuple[Tensor, Tensor]",
      "The loss and the gradient of `logits` times `loss_grad`: softmax, then "
      "nll_loss_with_softmax_grad.",
      +[](Tensor logits, Tensor labels, double loss_grad, Index ignored, std::string word) {
        return ops::cross_entropy_with_grad(
            logits, labels, loss_grad_options("cross_entropy_with_grad", loss_grad, ignored, word));
      });
}

using Parameter = std::optional<Tensor>;

void bind_norms(nb::module_& m) {
  bind_function(
      m,
      "def layer_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, "
      "epsilon: float = 1e-05) -> Tensor",
      "(x - mean) / √(variance + epsilon)·weight + bias with the mean and the biased variance of "
      "each row: the last axis of x. weight and bias have one element for each column.",
      +[](Tensor x, Parameter weight, Parameter bias, double epsilon) {
        return ops::layer_norm(x, parameters_of(weight, bias, "layer_norm"), {epsilon});
      });
  bind_function(
      m,
      "def group_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, "
      "groups: int = 1, epsilon: float = 1e-05) -> Tensor",
      "(x - mean) / √(variance + epsilon)·weight + bias. x is (batch, channels, spatial…). The "
      "mean and the biased variance are those of a group of successive channels of one sample. "
      "weight and bias have one element for each channel.",
      +[](Tensor x, Parameter weight, Parameter bias, int64_t groups, double epsilon) {
        return ops::group_norm(x, parameters_of(weight, bias, "group_norm"), {groups, epsilon});
      });
  bind_function(
      m,
      "def rms_norm(x: Tensor, weight: Optional[Tensor] = None, epsilon: float = 2**-23) -> Tensor",
      "x / √(mean(x²) + epsilon)·weight with the mean of the squares of each row: the last axis of "
      "x. weight has one element for each column.",
      +[](Tensor x, Parameter weight, double epsilon) {
        return weight ? ops::rms_norm(x, *weight, {epsilon})
                      : ops::rms_norm(x, ops::RmsNormOptions{epsilon});
      });
  bind_function(
      m,
      "def batch_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, "
      "epsilon: float = 1e-05) -> Tuple[Tensor, Tensor, Tensor]",
      "Normalizes each channel of x (batch, channels, spatial…) by its mean and its biased "
      "variance "
      "over the batch and all positions: y = (x - mean) / √(variance + epsilon)·weight + bias. "
      "Returns y, mean and variance, with which the caller updates running statistics.",
      +[](Tensor x, Parameter weight, Parameter bias, double epsilon) {
        const Tensors y = ops::batch_norm(x, parameters_of(weight, bias, "batch_norm"), {epsilon});
        return nb::make_tuple(y[0], y[1], y[2]);
      });
  bind_function(
      m,
      "def batch_norm_inference(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], "
      "mean: Tensor, variance: Tensor, epsilon: float = 1e-05) -> Tensor",
      "The y of batch_norm() for a given mean and variance of each channel.",
      +[](Tensor x, Parameter weight, Parameter bias, Tensor mean, Tensor variance,
          double epsilon) {
        return ops::batch_norm_inference(x, parameters_of(weight, bias, "batch_norm_inference"),
                                         mean, variance, {epsilon});
      });
}

void bind_attention(nb::module_& m) {
  bind_function(
      m,
      "def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float = 0.0, "
      "window: int = 0, offset: int = 0, dropout: float = 0.0, mask: Optional[Tensor] = None, "
      "seed: Optional[Tensor] = None, position: Optional[Tensor] = None) -> Tensor",
      "softmax(scale·q·kᵀ + mask)·v for each head: scaled dot product attention.\n\n"
      "q is (batch, heads, queries, size), k is (batch, kv_heads, keys, size) and v is (batch, "
      "kv_heads, keys, value size). kv_heads divides heads. Operands may lack the heads, or the "
      "batch and the heads. Rows of scores that are all masked return zeros.\n\n"
      "causal: Query i sees the keys 0 to i + offset + position only.\n"
      "scale: Factor of each score; 0: 1/√size.\n"
      "window: A query at position p sees the keys p - window + 1 to p + window - 1 only; 0: all.\n"
      "offset: Position of query 0 among the keys.\n"
      "dropout: Probability that an element of the softmax becomes zero, in [0, 1).\n"
      "mask: Broadcasts to (batch, heads, queries, keys). A bool says which keys a query sees; a "
      "mask of the dtype of q is added to the scores.\n"
      "seed: For dropout: uint32 of shape (2,).\n"
      "position: Added to `offset`: an int32 or uint32 scalar.",
      +[](Tensor q, Tensor k, Tensor v, bool causal, double scale, int64_t window, int64_t offset,
          double dropout, Parameter mask, Parameter seed, Parameter position) {
        return ops::attention(q, k, v,
                              {.causal = causal,
                               .scale = scale,
                               .window = window,
                               .offset = offset,
                               .dropout = dropout,
                               .mask = mask.value_or(Tensor()),
                               .seed = seed.value_or(Tensor()),
                               .position = position.value_or(Tensor())});
      });
}

}  // namespace

void bind_math_functions(nb::module_& m) {
  bind_reductions(m);
  bind_elementwise(m);
  bind_losses(m);
  bind_norms(m);
  bind_attention(m);
}

}  // namespace sluice::python
