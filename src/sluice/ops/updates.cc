#include "sluice/ops/updates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sluice/base/numbers/extended_range.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/elementwise.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/update_functors.h"

namespace sluice::ops {

namespace functor {
namespace {

float narrow(double x) { return static_cast<float>(x); }

// The norm whose square x is in extended range.
double root(double x) { return std::sqrt(from_extended(x)); }

// The factor of LAMB's step: min(‖w‖, largest) / ‖u‖, or 1 if a norm is 0.
double lamb_ratio(const double* h) {
  return h[0] == 0 || h[1] == 0 ? 1 : std::min(root(h[0]), h[3]) / root(h[1]);
}

float bias_correction(double beta, double time_step) {
  return time_step == 0 ? 1 : narrow(1 / (1 - std::pow(beta, time_step)));
}

}  // namespace

ScaledAdd ScaledAdd::make(const double* h) { return {narrow(h[0]), narrow(h[1])}; }
AccumulateAdd AccumulateAdd::make(const double* h) { return {narrow(h[0])}; }
AccumulateSquare AccumulateSquare::make(const double* h) { return {narrow(h[0])}; }
AccumulateMean AccumulateMean::make(const double* h) {
  return {narrow(h[0] / (h[0] + 1)), narrow(1 / (h[0] + 1))};
}
AccumulateMovingAverage AccumulateMovingAverage::make(const double* h) {
  return {narrow(h[0]), narrow(1 - h[0])};
}
AccumulateMovingAverageSquare AccumulateMovingAverageSquare::make(const double* h) {
  return {narrow(h[0]), narrow(1 - h[0])};
}
AccumulateInfinity AccumulateInfinity::make(const double* h) { return {narrow(h[0])}; }
AccumulatorScale AccumulatorScale::make(const double* h) { return {narrow(h[0])}; }

AdamUpdater AdamUpdater::make(const double* h) {
  return {bias_correction(h[1], h[0]), bias_correction(h[2], h[0]), narrow(h[3])};
}

AdamaxUpdater AdamaxUpdater::make(const double* h) {
  return {bias_correction(h[1], h[0]), narrow(h[3])};
}

AdamVarUpdate AdamVarUpdate::make(const double* h) { return {narrow(h[2] * lamb_ratio(h))}; }

}  // namespace functor

namespace {

using namespace elementwise;  // NOLINT
constexpr auto kScaledAdd = [](const double* h, double x, double y) { return h[0] * x + h[1] * y; };
constexpr auto kAccumulatorScale = [](const double* h, double t) {
  return h[0] == 0 ? 0 : h[0] * t;
};
double one_minus_power(double beta, double time_step) {
  return time_step == 0 ? 1 : 1 - std::pow(beta, time_step);
}
constexpr auto kAdamUpdater = [](const double* h, double m, double v) {
  return m / one_minus_power(h[1], h[0]) / (std::sqrt(v / one_minus_power(h[2], h[0])) + h[3]);
};
constexpr auto kAdamaxUpdater = [](const double* h, double m, double v) {
  return m / one_minus_power(h[1], h[0]) / (v + h[3]);
};
constexpr auto kAdamUpdaterDecay = [](const double* h, double m, double v, double w) {
  return kAdamUpdater(h, m, v) + h[4] * w;
};
constexpr auto kAdamaxUpdaterDecay = [](const double* h, double m, double v, double w) {
  return kAdamaxUpdater(h, m, v) + h[4] * w;
};
constexpr auto kAdamVarUpdate = [](const double* h, double t, double x) {
  return t - h[2] * functor::lamb_ratio(h) * x;
};
constexpr auto kAccumulateAdd = [](const double* h, double t, double x) { return t + h[0] * x; };
constexpr auto kSquare = [](const double* h, double t, double x) { return t + h[0] * x * x; };
constexpr auto kMean = [](const double* h, double t, double x) {
  return (h[0] * t + x) / (h[0] + 1);
};
constexpr auto kMoving = [](const double* h, double t, double x) {
  return h[0] * t + (1 - h[0]) * x;
};
constexpr auto kMovingSquare = [](const double* h, double t, double x) {
  return h[0] * t + (1 - h[0]) * x * x;
};
constexpr auto kInfinity = [](const double* h, double t, double x) {
  const double size = std::abs(x);
  return std::isnan(t) || h[0] * t > size ? h[0] * t : size;
};

/// One of the formulas of an operator; option `kind` chooses it.
template <typename FunctorType, auto formula, int inputs>
struct Variant {
  using Functor = FunctorType;
  static constexpr auto kFormula = formula;
  static constexpr int kInputs = inputs;
};

/// Shape rule of updates: floating-point operands (C1) of one shape (C2), then the hyperparameters
/// (C3). The result has the spec of operand `like`.
std::vector<TensorSpec> infer_update(const OpView& op, int like) {
  const auto& def = op.def();
  const auto fixed = static_cast<int>(def.inputs.size()) - 1;
  for (int i = 0; i < fixed; ++i) {
    const std::string& name = at(def.inputs, i).name;
    require_float(op.input(i), fmt::format("{} (C1): {}", def.name, name));
    require(op.input(i).shape == op.input(0).shape,
            "{} (C2): {} must have the shape of {}, {}, got {}; updates do not broadcast", def.name,
            name, def.inputs[0].name, to_string(op.input(0).shape), to_string(op.input(i)));
  }
  require_hypers(op, "(C3)");
  return {op.input(like)};
}

template <int like>
std::vector<TensorSpec> infer_like(const OpView& op) {
  return infer_update(op, like);
}
constexpr auto infer_like_first = infer_like<0>;
constexpr auto infer_like_third = infer_like<2>;

/// Adds the common parts of updates: hyperparameter operands, documentation of the constraints,
/// samples, failures.
template <typename Options>
OpDef with_hypers(OpDef d, const Options& options, std::pair<double, double> domain = {0.1, 2}) {
  const size_t fixed = d.inputs.size();
  d.inputs.push_back(InputDef{"hypers"});
  d.variadic = true;
  d.set_options(options);
  d.doc += fmt::format(
      " (C1) Operands are floating point; the result has the type of {}.{} (C3) Operands after "
      "them "
      "are the hyperparameters that option operands lists, floating-point scalars.",
      d.inputs[d.infer == infer_like_third ? 2 : 0].name,
      fixed > 1 ? " (C2) They have one shape." : "");
  for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 5}, Shape{0, 2}}) {
    d.samples.push_back(
        {.inputs = std::vector(fixed, f32_spec(shape)), .options = d.options, .domain = domain});
  }
  if (fixed > 1) {
    Sample mixed{
        .inputs = std::vector(fixed, f32_spec({9})), .options = d.options, .domain = domain};
    mixed.inputs[1].dtype = f16;
    d.samples.push_back(mixed);
  }
  for (Sample& s : d.samples) s.gradient = false;
  d.must_fail = {{"(C1)", std::vector(fixed, i32_spec({2})), d.options},
                 {"(C3)", std::vector(fixed + 1, f32_spec({})), d.options}};
  if (fixed > 1) {
    d.must_fail.push_back({"(C2)", std::vector(fixed, f32_spec({2})), d.options});
    d.must_fail.back().inputs[1] = f32_spec({3});
  }
  return d;
}

/// Adds a sample in which all hyperparameters in `names` are operands of value 0.75.
void add_operand_sample(OpDef& d, std::string_view names) {
  Sample s = d.samples[1];
  for (auto& [name, value] : s.options.items) {
    if (name == "operands") value = std::string(names);
  }
  s.values.resize(s.inputs.size());
  const auto count = std::count(names.begin(), names.end(), ',') + 1;
  for (int64_t i = 0; i < count; ++i) {
    s.inputs.push_back(f32_spec({}));
    s.values.push_back(HostTensor::scalar(0.75f));
  }
  MustFail wrong{"(C3)", s.inputs, s.options};
  wrong.inputs.back() = f32_spec({1});
  d.must_fail.push_back(wrong);
  d.samples.push_back(std::move(s));
}

/// The kinds of an operator whose result has the spec of operand `like`. Before `add_to`, the
/// definition has the shape rule and kernels of the first kind.
template <int like, typename Options, typename... Variants>
struct Kinds {
  template <typename T>
  static void reference(const KernelArgs& k) {
    const std::string kind = k.options<Options>().kind;
    const auto run = [&]<typename V>(V) {
      if (kind == V::Functor::kVariant)
        elementwise::reference<T, V::kInputs, typename V::Functor, V::kFormula>(k);
    };
    (run(Variants{}), ...);
  }

  static std::vector<TensorSpec> infer(const OpView& op) {
    const std::string kind = op.options<Options>().kind;
    require(((kind == Variants::Functor::kVariant) || ...),
            "{} (C4): kind must be one of {}, got '{}'", op.def().name,
            fmt::join(std::array{Variants::Functor::kVariant...}, ", "), kind);
    return infer_update(op, like);
  }

  /// Adds the shape rule and kernels of all kinds, two samples per kind, and the failure for an
  /// unknown kind.
  static void add_to(OpDef& d) {
    d.doc += " (C4) The kind is one of these.";
    d.infer = infer;
    d.reference_float = reference<float>;
    d.reference_double = reference<double>;
    const auto with_kind = [&](Sample sample, const char* kind) {
      std::get<std::string>(sample.options.items.at(0).second) = kind;
      return sample;
    };
    const Sample in_f32 = d.samples[1];
    const Sample mixed = d.samples[4];
    for (const char* kind : {Variants::Functor::kVariant...}) {
      d.samples.push_back(with_kind(in_f32, kind));
      d.samples.push_back(with_kind(mixed, kind));
    }
    d.must_fail.push_back({"(C4)", in_f32.inputs, with_kind(in_f32, "median").options});
  }
};

/// Makes the first operand written in place.
OpDef updating(OpDef d) {
  d.inputs[0].mode = Mode::kUpdate;
  d.aliases = {{0, 0}};
  return d;
}

OpDef define_scaled_add() {
  OpDef d = define<functor::ScaledAdd, kScaledAdd, 2>("scaled_add", "a·x + b·y.", {"x", "y"},
                                                      infer_like_first, nullptr);
  d = with_hypers(std::move(d), ScaledAddOptions{.a = 0.5, .b = -0.25});
  d.set_options(ScaledAddOptions{});
  d.flops_per_element = 3;
  add_operand_sample(d, "a,b");
  add_operand_sample(d, "b");
  return d;
}

// --- accumulate ---

using AccumulateKinds =
    Kinds<0, AccumulateOptions, Variant<functor::AccumulateAdd, kAccumulateAdd, 2>,
          Variant<functor::AccumulateSquare, kSquare, 2>,
          Variant<functor::AccumulateMean, kMean, 2>,
          Variant<functor::AccumulateMovingAverage, kMoving, 2>,
          Variant<functor::AccumulateMovingAverageSquare, kMovingSquare, 2>,
          Variant<functor::AccumulateInfinity, kInfinity, 2>>;

Tensor accumulate(const TensorArg& t, const TensorArg& x, const char* kind, const HyperArg& f) {
  HyperArgs args({t, x});
  AccumulateOptions options{.kind = kind};
  options.f = args.add("f", f, 1);
  options.operands = args.operands;
  return emit_one(accumulate_def(), args.inputs, options);
}

// --- copy ---

std::vector<TensorSpec> infer_copy(const OpView& op) {
  const TensorSpec& t = op.input(0);
  const TensorSpec& x = op.input(1);
  require_device_dtype(t, "copy_var_update_ (C1): t");
  require_device_dtype(x, "copy_var_update_ (C1): x");
  require(t.dtype == x.dtype || (is_float(t.dtype) && is_float(x.dtype)),
          "copy_var_update_ (C1): x must have the dtype of t, {}, or both must be floating point, "
          "got {}",
          name_of(t.dtype), to_string(x));
  require(t.shape == x.shape, "copy_var_update_ (C2): x must have the shape of t, {}, got {}",
          to_string(t.shape), to_string(x));
  return {t};
}

template <typename T>
void copy_reference(const KernelArgs& k) {
  visit_element<T>(k.in_dtype(1), [&]<typename E>(E) {
    const auto x = k.in<E>(1);
    const auto y = k.out<E>(0);
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
  });
}

}  // namespace

const OpDef& scaled_add_def() {
  static const OpDef def = define_scaled_add();
  return def;
}

const OpDef& scaled_add_in_place_def() {
  static const OpDef def = [] {
    OpDef d = updating(define_scaled_add());
    d.type = "ScaledAddLhsInplace";
    d.name = "scaled_add_";
    return d;
  }();
  return def;
}

const OpDef& accumulate_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::AccumulateAdd, kAccumulateAdd, 2>(
        "accumulate_",
        "t = t + f·x (kind add), t + f·x² (add_square), (f·t + x)/(f + 1) (mean), f·t + (1 − f)·x "
        "(moving_average), f·t + (1 − f)·x² (moving_average_square), max(f·t, |x|) (infinity).",
        {"t", "x"}, infer_like_first, nullptr);
    d = with_hypers(updating(std::move(d)), AccumulateOptions{.f = 0.75}, {-1, 1});
    d.set_options(AccumulateOptions{});
    d.flops_per_element = 3;
    AccumulateKinds::add_to(d);
    d.samples.push_back({.inputs = {f32_spec({17}), f32_spec({17})},
                         .options = to_attrs(AccumulateOptions{.kind = "mean", .f = 3}),
                         .gradient = false});
    add_operand_sample(d, "f");
    return d;
  }();
  return def;
}

const OpDef& accumulator_scale_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::AccumulatorScale, kAccumulatorScale, 1>(
        "accumulator_scale_", "t = f·t; zero if f is.", {"t"}, infer_like_first, nullptr);
    d = with_hypers(updating(std::move(d)), AccumulatorScaleOptions{.f = 0.75});
    d.set_options(AccumulatorScaleOptions{});
    Sample zero{.inputs = {f32_spec({3})},
                .options = to_attrs(AccumulatorScaleOptions{.f = 0}),
                .gradient = false};
    zero.values = {HostTensor::of<float>({3}, f32, {HUGE_VALF, std::nanf(""), 1})};
    d.samples.push_back(zero);
    add_operand_sample(d, "f");
    return d;
  }();
  return def;
}

const OpDef& copy_var_update_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "CopyVarUpdate";
    d.name = "copy_var_update_";
    d.doc = "t = x. (C1) Both of one dtype, or both floating point. (C2) Both of one shape.";
    d.inputs = {{"t", Mode::kWrite}, {"x"}};
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.may_coincide = {{1, 0}};
    d.traits = kElementwise;
    d.infer = infer_copy;
    d.grad = [](GradContext& g) { return Tensors{{}, cast(g.grad(0), g.op().input(1).dtype)}; };
    d.reference_float = copy_reference<float>;
    d.reference_double = copy_reference<double>;
    for (const DType x : {f32, f16}) {
      d.samples.push_back({.inputs = {f32_spec({3, 5}), {Shape{3, 5}, x, {}}}});
    }
    d.samples.push_back({.inputs = {i32_spec({}), i32_spec({})}, .gradient = false});
    d.samples.push_back(
        {.inputs = {{Shape{3}, boolean, {}}, {Shape{3}, boolean, {}}}, .gradient = false});
    d.must_fail = {{"(C1)", {f32_spec({2}), i32_spec({2})}, {}},
                   {"(C1)", {{Shape{2}, i64, {}}, {Shape{2}, i64, {}}}, {}},
                   {"(C2)", {f32_spec({2}), f32_spec({1})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& adam_updater_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::AdamUpdater, kAdamUpdater, 2>(
        "adam_updater",
        "(m/c1) / (√(v/c2) + epsilon) (kind adam), (m/c1) / (v + epsilon) (adamax), with c1 = 1 − "
        "beta1^time_step, c2 = 1 − beta2^time_step, both 1 if time_step is 0.",
        {"m", "v"}, infer_like_first, nullptr);
    d = with_hypers(
        std::move(d),
        AdamUpdaterOptions{.time_step = 3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-5});
    d.set_options(AdamUpdaterOptions{});
    d.flops_per_element = 20;
    Kinds<0, AdamUpdaterOptions, Variant<functor::AdamUpdater, kAdamUpdater, 2>,
          Variant<functor::AdamaxUpdater, kAdamaxUpdater, 2>>::add_to(d);
    d.samples.push_back({.inputs = {f32_spec({9}), f32_spec({9})},
                         .options = d.options,
                         .domain = {0.1, 2},
                         .gradient = false});
    add_operand_sample(d, "time_step,beta1,beta2,epsilon");
    return d;
  }();
  return def;
}

const OpDef& adam_updater_decay_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::AdamUpdaterDecay, kAdamUpdaterDecay, 3>(
        "adam_updater_decay", "AdamUpdater's result + weight_decay·weight, of the weight's type.",
        {"m", "v", "weight"}, infer_like_third, nullptr);
    d = with_hypers(std::move(d),
                    AdamUpdaterDecayOptions{
                        .time_step = 2, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.01});
    d.set_options(AdamUpdaterDecayOptions{});
    d.audience = Audience::kOperators;
    d.flops_per_element = 22;
    Kinds<2, AdamUpdaterDecayOptions, Variant<functor::AdamUpdaterDecay, kAdamUpdaterDecay, 3>,
          Variant<functor::AdamaxUpdaterDecay, kAdamaxUpdaterDecay, 3>>::add_to(d);
    add_operand_sample(d, "time_step,weight_decay");
    return d;
  }();
  return def;
}

const OpDef& adam_var_update_def() {
  static const OpDef def = [] {
    OpDef d = define<functor::AdamVarUpdate, kAdamVarUpdate, 2>(
        "adam_var_update",
        "t = t − learning_rate·(min(√r1, max_weight_norm)/√r2)·x; the ratio is 1 where r1 or r2 is "
        "0.",
        {"t", "x"}, infer_like_first, nullptr);
    d = with_hypers(updating(std::move(d)),
                    AdamVarUpdateOptions{.r1 = 4, .r2 = 9, .learning_rate = 0.5});
    d.set_options(AdamVarUpdateOptions{});
    d.flops_per_element = 2;
    d.samples.push_back(
        {.inputs = {f32_spec({9}), f32_spec({9})}, .options = d.options, .gradient = false});
    add_operand_sample(d, "r1,r2");
    add_operand_sample(d, "r1,r2,learning_rate,max_weight_norm");
    return d;
  }();
  return def;
}

std::vector<const OpDef*> updates_ops() {
  return {&scaled_add_def(),         &scaled_add_in_place_def(), &accumulate_def(),
          &accumulator_scale_def(),  &copy_var_update_def(),     &adam_updater_def(),
          &adam_updater_decay_def(), &adam_var_update_def()};
}

namespace {

Tensor scaled_add(const OpDef& def, const TensorArg& x, const TensorArg& y, const HyperArg& a,
                  const HyperArg& b) {
  HyperArgs args({x, y});
  ScaledAddOptions options;
  options.a = args.add("a", a, 1);
  options.b = args.add("b", b, 1);
  options.operands = args.operands;
  return emit_one(def, args.inputs, options);
}

}  // namespace

Tensor scaled_add(TensorArg x, TensorArg y, const HyperArg& a, const HyperArg& b) {
  return scaled_add(scaled_add_def(), x, y, a, b);
}
Tensor scaled_add_(TensorArg x, TensorArg y, const HyperArg& a, const HyperArg& b) {
  return scaled_add(scaled_add_in_place_def(), x, y, a, b);
}

Tensor accumulate_(TensorArg t, TensorArg x, const HyperArg& f) {
  return accumulate(t, x, functor::AccumulateAdd::kVariant, f);
}
Tensor accumulate_square_(TensorArg t, TensorArg x, const HyperArg& f) {
  return accumulate(t, x, functor::AccumulateSquare::kVariant, f);
}
Tensor accumulate_mean_(TensorArg t, TensorArg x, const HyperArg& step) {
  return accumulate(t, x, functor::AccumulateMean::kVariant, step);
}
Tensor accumulate_moving_average_(TensorArg t, TensorArg x, const HyperArg& f) {
  return accumulate(t, x, functor::AccumulateMovingAverage::kVariant, f);
}
Tensor accumulate_moving_average_square_(TensorArg t, TensorArg x, const HyperArg& f) {
  return accumulate(t, x, functor::AccumulateMovingAverageSquare::kVariant, f);
}

Tensor accumulate_infinity_(TensorArg t, TensorArg x, const HyperArg& f) {
  return accumulate(t, x, functor::AccumulateInfinity::kVariant, f);
}

Tensor accumulator_scale_(TensorArg t, const HyperArg& f) {
  HyperArgs args({t});
  AccumulatorScaleOptions options;
  options.f = args.add("f", f, 1);
  options.operands = args.operands;
  return emit_one(accumulator_scale_def(), args.inputs, options);
}
Tensor accumulator_zero_(TensorArg t) { return accumulator_scale_(t, 0.0); }

Tensor copy_var_update_(TensorArg t, TensorArg x) {
  return emit_one(copy_var_update_def(), {t, x});
}

namespace {

Tensor updater(const char* kind, std::string_view name, const TensorArg& m, const TensorArg& v,
               const AdamUpdaterArgs& args) {
  const bool decays = args.weight_decay &&
                      (args.weight_decay->tensor() != nullptr || args.weight_decay->number() != 0);
  require(!decays || args.weight.valid(), "{}: weight_decay requires weight", name);
  HyperArgs operands(decays ? std::vector<TensorArg>{m, v, {args.weight, m.where}}
                            : std::vector<TensorArg>{m, v});
  AdamUpdaterDecayOptions options{.kind = kind};
  if (args.time_step.valid()) {
    require(args.beta1 && args.beta2, "{}: time_step (bias correction) requires beta1 and beta2",
            name);
    const Tensor step = add_({args.time_step, m.where}, scalar_like(args.time_step, 1));
    options.time_step = operands.add("time_step", HyperArg(step, m.where));
    options.beta1 = operands.add("beta1", *args.beta1);
    options.beta2 = operands.add("beta2", *args.beta2);
  }
  options.epsilon = operands.add("epsilon", args.epsilon);
  if (decays) {
    options.weight_decay = operands.add("weight_decay", *args.weight_decay);
    options.operands = operands.operands;
    return emit_one(adam_updater_decay_def(), operands.inputs, options);
  }
  return emit_one(adam_updater_def(), operands.inputs,
                  AdamUpdaterOptions{.kind = kind,
                                     .time_step = options.time_step,
                                     .beta1 = options.beta1,
                                     .beta2 = options.beta2,
                                     .epsilon = options.epsilon,
                                     .operands = operands.operands});
}

}  // namespace

Tensor adam_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args) {
  return updater(functor::AdamUpdater::kVariant, "adam_updater", m, v, args);
}
Tensor lamb_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args) {
  return updater(functor::AdamUpdater::kVariant, "lamb_updater", m, v, args);
}
Tensor adamax_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args) {
  require(args.time_step.valid(), "adamax_updater: requires time_step, got none");
  AdamUpdaterArgs full = args;
  if (!full.beta1) full.beta1 = 0.9;
  full.beta2 = 0.0;
  return updater(functor::AdamaxUpdater::kVariant, "adamax_updater", m, v, full);
}

Tensor adam_var_update(TensorArg t, TensorArg x, TensorArg r1, TensorArg r2,
                       const HyperArg& learning_rate, const HyperArg& max_weight_norm) {
  HyperArgs args({t, x});
  AdamVarUpdateOptions options;
  options.r1 = args.add("r1", HyperArg(r1, r1.where));
  options.r2 = args.add("r2", HyperArg(r2, r2.where));
  options.learning_rate = args.add("learning_rate", learning_rate, 1);
  options.max_weight_norm = args.add("max_weight_norm", max_weight_norm, HUGE_VAL);
  options.operands = args.operands;
  return emit_one(adam_var_update_def(), args.inputs, options);
}

}  // namespace sluice::ops
