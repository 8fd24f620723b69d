#include "sluice/ops/losses.h"

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/loss_rows.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/softmax.h"

namespace sluice::ops {
namespace {

void check_reduction(LossReduction reduction, std::string_view name, std::string_view constraint) {
  require(reduction >= LossReduction::kMean && reduction <= LossReduction::kNone,
          "{} {}: reduction must be mean (0), sum (1) or none (2), got {}", name, constraint,
          static_cast<int>(reduction));
}

/// Checks (C1) to (C4) and returns the spec of the loss.
TensorSpec infer_loss(const OpView& op, LossReduction reduction) {
  const std::string& name = op.def().name;
  const TensorSpec& probs = op.input(0);
  const TensorSpec& labels = op.input(1);
  require_float(probs, name + " (C1): probs");
  require_index(labels, name + " (C2): labels");
  require(probs.shape.rank() >= 1, "{} (C3): probs must have an axis of classes, got a scalar",
          name);
  const Shape samples(std::vector<int64_t>(probs.shape.begin(), probs.shape.end() - 1));
  require(labels.shape == samples, "{} (C3): probs is {}, so labels must have shape {}, got {}",
          name, to_string(probs), to_string(samples), to_string(labels));
  check_reduction(reduction, name, "(C4)");
  return {reduction == LossReduction::kNone ? samples : Shape{}, probs.dtype, {}};
}

std::vector<TensorSpec> infer_nll(const OpView& op) {
  return {infer_loss(op, op.options<NllLossOptions>().reduction)};
}

std::vector<TensorSpec> infer_with_grad(const OpView& op) {
  return {infer_loss(op, op.options<NllSoftmaxGradOptions>().reduction),
          {op.input(0).shape, op.input(0).dtype, {}}};
}

template <typename T>
void reference_nll(const KernelArgs& k) {
  const auto o = k.options<NllLossOptions>();
  const int64_t classes = k.in_shape(0).dim(-1);
  write_loss(Labels(k, 1, classes, o), o.reduction, k.in<T>(0).data(), classes, o.log_prob,
             k.out<T>(0).data());
}

template <typename T>
void write_softmax_grad(const Labels& labels, const NllSoftmaxGradOptions& o, const T* probs,
                        int64_t classes, T* dx) {
  const T scale = softmax_grad_scale<T>(labels, o);
  const auto multiply = [&](const T* from, T by, T* to) {
    for (int64_t c = 0; c < classes; ++c) to[c] = from[c] * by;
  };
  for (int64_t i = 0; i < labels.size(); ++i, probs += classes, dx += classes)
    softmax_grad_row(labels, i, classes, scale, probs, dx, multiply);
}

template <typename T>
void reference_with_grad(const KernelArgs& k) {
  const auto o = k.options<NllSoftmaxGradOptions>();
  const int64_t classes = k.in_shape(0).dim(-1);
  const Labels labels(k, 1, classes, o);
  const T* probs = k.in<T>(0).data();
  write_loss(labels, o.reduction, probs, classes, false, k.out<T>(0).data());
  write_softmax_grad(labels, o, probs, classes, k.out<T>(1).data());
}

// Stages of a loss: the loss of each sample, then the mean or sum if there is one.
std::vector<OpStage> parts_of_loss(const NllLossOptions& o) {
  NllLossOptions each = o;
  each.reduction = LossReduction::kNone;
  if (o.reduction == LossReduction::kNone) return {{&nll_loss_def(), to_attrs(each), {0, 1}, 0}};
  const NllTotalOptions total{o.reduction, o.has_ignore_index, o.ignore_index};
  return {{&nll_loss_def(), to_attrs(each), {0, 1}, -1},
          {&nll_total_def(), to_attrs(total), {~0, 1}, 0}};
}

std::vector<OpStage> parts_of_nll(const OpView& op) {
  return parts_of_loss(op.options<NllLossOptions>());
}

std::vector<OpStage> parts_of_nll_with_grad(const OpView& op) {
  const auto o = op.options<NllSoftmaxGradOptions>();
  auto parts = parts_of_loss({o.reduction, o.has_ignore_index, o.ignore_index});
  parts.push_back({&nll_softmax_grad_def(), to_attrs(o), {0, 1}, 1});
  return parts;
}

std::vector<TensorSpec> infer_total(const OpView& op) {
  const TensorSpec& losses = op.input(0);
  const TensorSpec& labels = op.input(1);
  const auto reduction = op.options<NllTotalOptions>().reduction;
  require_float(losses, "nll_total (C1): losses");
  require_index(labels, "nll_total (C2): labels");
  require(losses.shape == labels.shape,
          "nll_total (C3): labels must have the shape of losses, {}, got {}",
          to_string(losses.shape), to_string(labels));
  check_reduction(reduction, "nll_total", "(C4)");
  require(reduction != LossReduction::kNone,
          "nll_total (C4): reduction must be mean (0) or sum (1), got none (2)");
  return {{Shape{}, losses.dtype, {}}};
}

template <typename T>
void reference_total(const KernelArgs& k) {
  const auto o = k.options<NllTotalOptions>();
  const T* losses = k.in<T>(0).data();
  *k.out<T>(0).data() =
      total_loss<T>(Labels(k, 1, 0, o), o.reduction, [&](int64_t i) { return losses[i]; });
}

std::vector<TensorSpec> infer_nll_softmax_grad(const OpView& op) {
  infer_loss(op, op.options<NllSoftmaxGradOptions>().reduction);
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

template <typename T>
void reference_nll_softmax_grad(const KernelArgs& k) {
  const auto o = k.options<NllSoftmaxGradOptions>();
  const int64_t classes = k.in_shape(0).dim(-1);
  write_softmax_grad(Labels(k, 1, classes, o), o, k.in<T>(0).data(), classes, k.out<T>(0).data());
}

std::vector<TensorSpec> infer_nll_grad(const OpView& op) {
  const auto o = op.options<NllGradOptions>();
  const TensorSpec& grad = op.input(0);
  const TensorSpec& labels = op.input(1);
  require_float(grad, "nll_grad (C1): grad");
  require_index(labels, "nll_grad (C2): labels");
  check_reduction(o.reduction, "nll_grad", "(C3)");
  require(o.classes >= 0, "nll_grad (C3): classes must not be negative, got {}", o.classes);
  const Shape want = o.reduction == LossReduction::kNone ? labels.shape : Shape{};
  require(grad.shape == want, "nll_grad (C4): grad must have shape {}, got {}", to_string(want),
          to_string(grad));
  std::vector<int64_t> dims = labels.shape.dims();
  dims.push_back(o.classes);
  const TensorSpec result{Shape(std::move(dims)), grad.dtype, {}};
  require(op.inputs() <= 3, "nll_grad (C5): must have 2 or 3 operands, got {}", op.inputs());
  if (op.inputs() == 3) {
    require(op.input(2).shape == result.shape && op.input(2).dtype == grad.dtype,
            "nll_grad (C5): probs must be {}, got {}", to_string(result), to_string(op.input(2)));
  }
  return {result};
}

template <typename T>
void reference_nll_grad(const KernelArgs& k) {
  const auto o = k.options<NllGradOptions>();
  const Labels labels(k, 1, o.classes, o);
  const T* grad = k.in<T>(0).data();
  for (int64_t i = 0; i < labels.size(); ++i) {
    nll_grad_row(labels, i, o.reduction, grad[o.reduction == LossReduction::kNone ? i : 0],
                 k.op().inputs() == 3 ? k.in<T>(2).data() + i * o.classes : nullptr, o.classes,
                 k.out<T>(0).data() + i * o.classes);
  }
}

Tensors grad_nll(GradContext& g) {
  const auto o = g.options<NllLossOptions>();
  std::vector<TensorArg> inputs{g.grad(0), g.input(1)};
  if (!o.log_prob) inputs.emplace_back(g.input(0));
  const NllGradOptions options{.reduction = o.reduction,
                               .has_ignore_index = o.has_ignore_index,
                               .ignore_index = o.ignore_index,
                               .classes = g.op().input(0).shape.dim(-1)};
  return {emit_one(nll_grad_def(), inputs, options), {}};
}

// --- formulas, as graphs of other ops: an op is linear in an operand if it is applied to constants
// and the result is multiplied by the operand. Labels have no gradient. ---

Tensor filled_like(const Tensor& t, double value) {
  return broadcast_to(scalar_like(t, value), t.shape());
}

// -onehot(labels)/divisor·grad/p, where the op computes the first factor for grad = 1 without
// probs.
Tensors nll_grad_formula(const OpView& op, const Tensors& in) {
  const Tensor at_labels = emit(nll_grad_def(), {filled_like(in[0], 1), in[1]}, op.attrs())[0];
  const bool each = op.options<NllGradOptions>().reduction == LossReduction::kNone;
  const Tensor dx = at_labels * (each ? unsqueeze(in[0], -1) : in[0]);
  if (in.size() < 3) return {dx};
  const double min = in[2].dtype() == f16 ? 0x1p-24 : std::numeric_limits<float>::min();
  return {dx / maximum(in[2], min)};
}

// The op is linear in probs, plus a constant.
Tensor softmax_grad_of(const OpView& op, const Tensors& in) {
  const auto of_constant = [&](double value) {
    return emit(nll_softmax_grad_def(), {filled_like(in[0], value), in[1]}, op.attrs())[0];
  };
  const Tensor at_zero = of_constant(0);
  return in[0] * (of_constant(1) - at_zero) + at_zero;
}

Tensors nll_softmax_grad_formula(const OpView& op, const Tensors& in) {
  return {softmax_grad_of(op, in)};
}

Tensors loss_with_grad_formula(const OpView& op, const Tensors& in) {
  const auto o = op.options<NllSoftmaxGradOptions>();
  return {nll_loss(in[0], in[1], {o.reduction, o.has_ignore_index, o.ignore_index}),
          softmax_grad_of(op, in)};
}

// The divisor is the number of samples divided by the op's result for losses of 1.
Tensors nll_total_formula(const OpView& op, const Tensors& in) {
  const Tensor of_ones = emit(nll_total_def(), {filled_like(in[0], 1), in[1]}, op.attrs())[0];
  return {mean(in[0]) * of_ones};
}

HostTensor labels_of(Shape shape, const std::vector<int32_t>& values) {
  return HostTensor::of<int32_t>(std::move(shape), i32, values);
}

const char* const kLossRules =
    " A label outside [0, classes) yields NaN. (C1) probs is floating point. (C2) labels is int32 "
    "or uint32. (C3) labels "
    "has the shape of probs without its last axis. (C4) The reduction is mean (0), sum (1) or none "
    "(2).";

/// Adds the samples that the losses share; `with` makes their options.
template <typename With>
void add_loss_samples(OpDef& d, With with) {
  const std::pair<double, double> domain{0.1, 1.0};
  const auto labels = labels_of({4}, {0, 2, 1, 2});
  d.samples = {{.inputs = {f32_spec({4, 3}), i32_spec({4})},
                .domain = domain,
                .values = {std::nullopt, labels}},
               {.inputs = {f32_spec({4, 3}), i32_spec({4})},
                .options = with(LossReduction::kSum, true, 2),
                .domain = domain,
                .values = {std::nullopt, labels}},
               {.inputs = {f32_spec({2, 2, 3}), {{2, 2}, u32, {}}},
                .options = with(LossReduction::kNone, false, 0),
                .domain = domain,
                .values = {std::nullopt, labels.reshaped({2, 2}).cast(u32)}},
               {.inputs = {f32_spec({4, 3}), i32_spec({4})},
                .options = with(LossReduction::kMean, true, 2),
                .domain = domain,
                .values = {std::nullopt, labels_of({4}, {0, 2, -1, 2})},
                .gradient = false},
               {.inputs = {f32_spec({5}), i32_spec({})},
                .options = with(LossReduction::kMean, true, 3),
                .domain = domain,
                .values = {std::nullopt, labels_of({}, {3})}}};
  d.must_fail = {
      {"(C1)", {i32_spec({4, 3}), i32_spec({4})}, {}},
      {"(C2)", {f32_spec({4, 3}), f32_spec({4})}, {}},
      {"(C3)", {f32_spec({4, 3}), i32_spec({3})}, {}},
      {"(C3)", {f32_spec({}), i32_spec({})}, {}},
      {"(C4)", {f32_spec({4, 3}), i32_spec({4})}, with(static_cast<LossReduction>(7), false, 0)}};
}

Attrs some_softmax_grad_options(LossReduction reduction, bool has_ignore, int64_t ignore) {
  return to_attrs(NllSoftmaxGradOptions{.reduction = reduction,
                                        .has_ignore_index = has_ignore,
                                        .ignore_index = ignore,
                                        .loss_grad = 8.0});
}

}  // namespace

const OpDef& nll_loss_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Nll";
    d.name = "nll_loss";
    d.doc = std::string(
                "-log p[label] of each sample, or -p[label] with log_prob; then mean over those "
                "not ignored, sum, "
                "or none. Probabilities count as at least 2⁻¹²⁶.") +
            kLossRules;
    d.inputs = {{"probs"}, {"labels"}};
    d.outputs = {"loss"};
    d.set_options(NllLossOptions{});
    d.infer = infer_nll;
    d.grad = grad_nll;
    d.parts = parts_of_nll;
    d.reference_float = reference_nll<float>;
    d.reference_double = reference_nll<double>;
    d.flops = [](const OpView& op) { return 2.0 * static_cast<double>(op.input(1).elements()); };
    add_loss_samples(d, [](LossReduction reduction, bool has_ignore, int64_t ignore) {
      return to_attrs(NllLossOptions{
          .reduction = reduction, .has_ignore_index = has_ignore, .ignore_index = ignore});
    });
    d.samples.push_back({.inputs = {f32_spec({4, 3}), i32_spec({4})},
                         .options = to_attrs(NllLossOptions{.log_prob = true}),
                         .values = {std::nullopt, labels_of({4}, {0, 2, 1, 2})}});
    return d;
  }();
  return def;
}

const OpDef& nll_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "NllGrad";
    d.name = "nll_grad";
    d.audience = Audience::kOperators;
    d.doc =
        "Gradient of nll_loss: -grad/p at each label (-grad where probs is not given: "
        "log-probabilities), divided by "
        "the samples that count for a mean; zero elsewhere. (C1) grad is floating point. (C2) "
        "labels is int32 or "
        "uint32. (C3) The reduction is known and classes is not negative. (C4) grad is a scalar, "
        "or has the shape of "
        "labels without reduction. (C5) probs, if given, has the shape of labels with the classes, "
        "and grad's dtype.";
    d.inputs = {{"grad"}, {"labels"}, {"probs"}};
    d.variadic = true;
    d.outputs = {"dx"};
    d.set_options(NllGradOptions{});
    d.infer = infer_nll_grad;
    d.formula = nll_grad_formula;
    d.reference_float = reference_nll_grad<float>;
    d.reference_double = reference_nll_grad<double>;
    d.flops_per_element = 1;
    const auto with = [](LossReduction reduction, int64_t classes) {
      return to_attrs(NllGradOptions{.reduction = reduction, .classes = classes});
    };
    const auto labels = labels_of({4}, {0, 2, 1, 2});
    d.samples = {{.inputs = {f32_spec({}), i32_spec({4}), f32_spec({4, 3})},
                  .options = with(LossReduction::kMean, 3),
                  .domain = {0.1, 1},
                  .values = {std::nullopt, labels}},
                 {.inputs = {f32_spec({4}), i32_spec({4})},
                  .options = with(LossReduction::kNone, 3),
                  .values = {std::nullopt, labels}}};
    d.must_fail = {
        {"(C1)", {i32_spec({}), i32_spec({4})}, with(LossReduction::kMean, 3)},
        {"(C2)", {f32_spec({}), f32_spec({4})}, with(LossReduction::kMean, 3)},
        {"(C3)", {f32_spec({}), i32_spec({4})}, with(LossReduction::kMean, -1)},
        {"(C4)", {f32_spec({}), i32_spec({4})}, with(LossReduction::kNone, 3)},
        {"(C5)", {f32_spec({}), i32_spec({4}), f32_spec({4, 2})}, with(LossReduction::kMean, 3)}};
    return d;
  }();
  return def;
}

const OpDef& nll_loss_with_softmax_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "NlllWithSoftmaxGradDirect";
    d.name = "nll_loss_with_softmax_grad";
    d.doc = std::string(
                "nll_loss of a softmax's probabilities, and the gradient of loss_grad times it "
                "with respect to the "
                "softmax's operand: (probs - onehot(labels))·loss_grad, divided by the samples "
                "that count for a "
                "mean. The loss itself is not scaled. Probabilities count as at least 2⁻¹²⁶ in the "
                "loss.") +
            kLossRules;
    d.inputs = {{"probs"}, {"labels"}};
    d.outputs = {"loss", "dx"};
    d.set_options(NllSoftmaxGradOptions{});
    d.may_coincide = {{0, 1}};
    d.parts = parts_of_nll_with_grad;
    d.infer = infer_with_grad;
    d.formula = loss_with_grad_formula;
    d.reference_float = reference_with_grad<float>;
    d.reference_double = reference_with_grad<double>;
    d.flops = [](const OpView& op) { return 2.0 * static_cast<double>(op.input(0).elements()); };
    add_loss_samples(d, some_softmax_grad_options);
    return d;
  }();
  return def;
}

const OpDef& nll_total_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "NllTotal";
    d.name = "nll_total";
    d.audience = Audience::kOperators;
    d.doc =
        "Mean over the samples that are not ignored, or sum, of the losses of nll_loss "
        "without reduction. (C1) losses is floating point. (C2) labels is int32 or uint32. (C3) "
        "Both have one shape. (C4) The reduction is mean (0) or sum (1).";
    d.inputs = {{"losses"}, {"labels"}};
    d.outputs = {"loss"};
    d.set_options(NllTotalOptions{});
    d.infer = infer_total;
    d.formula = nll_total_formula;
    d.reference_float = reference_total<float>;
    d.reference_double = reference_total<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto with = [](LossReduction reduction) {
      return to_attrs(
          NllTotalOptions{.reduction = reduction, .has_ignore_index = true, .ignore_index = 2});
    };
    const auto labels = labels_of({4}, {0, 2, 1, 2});
    d.samples = {{.inputs = {f32_spec({4}), i32_spec({4})}, .values = {std::nullopt, labels}},
                 {.inputs = {f32_spec({4}), i32_spec({4})},
                  .options = with(LossReduction::kMean),
                  .values = {std::nullopt, labels}},
                 {.inputs = {f32_spec({2, 2}), {{2, 2}, u32, {}}},
                  .options = with(LossReduction::kSum),
                  .values = {std::nullopt, labels.reshaped({2, 2}).cast(u32)}}};
    d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, {}},
                   {"(C2)", {f32_spec({4}), f32_spec({4})}, {}},
                   {"(C3)", {f32_spec({4}), i32_spec({3})}, {}},
                   {"(C4)", {f32_spec({4}), i32_spec({4})}, with(LossReduction::kNone)},
                   {"(C4)", {f32_spec({4}), i32_spec({4})}, with(static_cast<LossReduction>(7))}};
    return d;
  }();
  return def;
}

const OpDef& nll_softmax_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "NllSoftmaxGrad";
    d.name = "nll_softmax_grad";
    d.audience = Audience::kOperators;
    d.doc =
        std::string("The gradient of nll_loss_with_softmax_grad, without the loss.") + kLossRules;
    d.inputs = {{"probs"}, {"labels"}};
    d.outputs = {"dx"};
    d.set_options(NllSoftmaxGradOptions{});
    d.may_coincide = {{0, 0}};
    d.infer = infer_nll_softmax_grad;
    d.formula = nll_softmax_grad_formula;
    d.reference_float = reference_nll_softmax_grad<float>;
    d.reference_double = reference_nll_softmax_grad<double>;
    d.flops_per_element = 1;
    add_loss_samples(d, some_softmax_grad_options);
    return d;
  }();
  return def;
}

Tensor nll_loss(TensorArg probs, TensorArg labels, const NllLossOptions& options) {
  return emit_one(nll_loss_def(), {probs, labels}, options);
}

std::pair<Tensor, Tensor> nll_loss_with_softmax_grad(TensorArg probs, TensorArg labels,
                                                     const NllSoftmaxGradOptions& options) {
  const Tensors y = emit(nll_loss_with_softmax_grad_def(), {probs, labels}, to_attrs(options));
  return {y[0], y[1]};
}

Tensor cross_entropy(TensorArg logits, TensorArg labels, const NllLossOptions& options) {
  NllLossOptions o = options;
  o.log_prob = true;
  return nll_loss({log_softmax(logits), logits.where}, labels, o);
}

std::pair<Tensor, Tensor> cross_entropy_with_grad(TensorArg logits, TensorArg labels,
                                                  const NllSoftmaxGradOptions& options) {
  return nll_loss_with_softmax_grad({softmax(logits), logits.where}, labels, options);
}

std::vector<const OpDef*> losses_ops() {
  return {&nll_loss_def(), &nll_grad_def(), &nll_loss_with_softmax_grad_def(), &nll_total_def(),
          &nll_softmax_grad_def()};
}

}  // namespace sluice::ops
