#include "sluice/ops/random.h"

#include <cmath>

#include "sluice/base/hash.h"
#include "sluice/base/rng.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

const TensorSpec kSeedSpec{Shape{2}, u32, {}};

void require_seed(const OpView& op, int i) {
  require(op.input(i).shape == kSeedSpec.shape && op.input(i).dtype == u32,
          "{} (C2): seed must be (2,) uint32, got {}", op.def().name, to_string(op.input(i)));
}

Seed seed_of(const KernelArgs& k, int i) {
  const auto words = k.in<uint32_t>(i);
  return {words[0], words[1]};
}

HostTensor seed_value(uint32_t hi, uint32_t lo) {
  return HostTensor::of<uint32_t>({2}, u32, {hi, lo});
}

// --- dropout ---

std::vector<TensorSpec> infer_dropout(const OpView& op) {
  require_float(op.input(0), "dropout (C1): x");
  require_seed(op, 1);
  const auto o = op.options<DropoutOptions>();
  require(o.p >= 0 && o.p < 1, "dropout (C3): p must be in [0, 1), got {}", o.p);
  require(o.offset >= 0, "dropout (C3): offset must not be negative, got {}", o.offset);
  return {op.input(0)};
}

template <typename T>
void dropout_reference(const KernelArgs& k) {
  const auto options = k.options<DropoutOptions>();
  const DropoutParams params(options);
  const T scale = std::is_same_v<T, float> ? params.scale : static_cast<T>(1 / (1 - options.p));
  const Seed seed = seed_of(k, 1);
  const auto x = k.in<T>(0);
  const auto y = k.out<T>(0);
  for (size_t i = 0; i < y.size(); ++i) {
    const uint32_t bits = random_bits(seed, static_cast<uint64_t>(options.offset) + i) >> 8;
    y[i] = bits >= params.threshold ? x[i] * scale : T{0};
  }
}

Tensors dropout_grad(GradContext& g) {
  return {emit_one(dropout_def(), {g.grad(0), g.input(1)}, g.options<DropoutOptions>()), Tensor()};
}

// --- random numbers ---

template <typename Options>
std::vector<TensorSpec> infer_random(const OpView& op) {
  const auto o = op.options<Options>();
  const std::string& name = op.def().name;
  TensorSpec y{o.shape, o.dtype, {}};
  require_float(y, name + " (C1): the result");
  for (const int64_t d : o.shape)
    require(d >= 0, "{} (C1): dimensions of shape must not be negative, got {}", name,
            to_string(o.shape));
  require_seed(op, 0);
  require(o.offset >= 0, "{} (C3): offset must not be negative, got {}", name, o.offset);
  if constexpr (std::is_same_v<Options, RandomUniformOptions>) {
    require(o.low <= o.high, "{} (C3): low {} is above high {}", name, o.low, o.high);
  } else {
    require(o.std >= 0, "{} (C3): std must not be negative, got {}", name, o.std);
  }
  return {y};
}

template <typename T, typename Options>
void random_reference(const KernelArgs& k) {
  const auto o = k.options<Options>();
  const Seed seed = seed_of(k, 0);
  const auto y = k.out<T>(0);
  for (size_t i = 0; i < y.size(); ++i) {
    const uint64_t index = static_cast<uint64_t>(o.offset) + i;
    if constexpr (std::is_same_v<Options, RandomUniformOptions>) {
      y[i] = static_cast<T>(o.low) +
             static_cast<T>(o.high - o.low) * static_cast<T>(random_unit(seed, index));
    } else {
      y[i] = static_cast<T>(o.mean) +
             static_cast<T>(o.std) * static_cast<T>(sluice::random_normal(seed, index));
    }
  }
}

template <typename Options>
OpDef define_random(const char* type, const char* name, const char* doc, const Options& sample) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = fmt::format(
      "{} (C1) The result is floating point. (C2) The seed is (2,) uint32. (C3) low <= high, std "
      ">= 0, offset >= 0.",
      doc);
  d.inputs = {{"seed"}};
  d.outputs = {"y"};
  d.set_options(Options{});
  d.traits = kZeroGradient;
  d.infer = infer_random<Options>;
  d.reference_float = random_reference<float, Options>;
  d.reference_double = random_reference<double, Options>;
  d.flops_per_element = 40;
  for (const Shape& shape : {Shape{}, Shape{19}, Shape{3, 5}, Shape{0}}) {
    Options o = sample;
    o.shape = shape;
    Sample s{.inputs = {kSeedSpec}, .options = to_attrs(o), .gradient = false};
    s.values = {seed_value(3, 1234)};
    d.samples.push_back(s);
  }
  d.must_fail = {{"(C2)", {{Shape{2}, i32, {}}}, to_attrs(sample)},
                 {"(C2)", {{Shape{3}, u32, {}}}, to_attrs(sample)}};
  Options wrong = sample;
  wrong.dtype = i32;
  d.must_fail.push_back({"(C1)", {kSeedSpec}, to_attrs(wrong)});
  wrong = sample;
  wrong.offset = -1;
  d.must_fail.push_back({"(C3)", {kSeedSpec}, to_attrs(wrong)});
  return d;
}

// --- seeds ---

std::vector<TensorSpec> infer_fold(const OpView& op) {
  require_seed(op, 0);
  if (op.inputs() > 1) {
    require_index(op.input(1), "fold_seed (C3): data");
    require(op.input(1).elements() == 1, "fold_seed (C3): data must be a scalar, got {}",
            to_string(op.input(1)));
  }
  require(op.inputs() <= 2, "fold_seed (C3): must have at most one operand of data, got {}",
          op.inputs() - 1);
  return {op.input(0)};
}

void fold_reference(const KernelArgs& k) {
  auto data = static_cast<uint64_t>(k.options<FoldSeedOptions>().data);
  if (k.op().inputs() > 1) {
    data = k.in_dtype(1) == i32 ? static_cast<uint64_t>(int64_t{k.in<int32_t>(1)[0]})
                                : k.in<uint32_t>(1)[0];
  }
  const Seed seed = fold(seed_of(k, 0), data);
  const auto y = k.out<uint32_t>(0);
  y[0] = seed.hi;
  y[1] = seed.lo;
}

}  // namespace

DropoutParams::DropoutParams(const DropoutOptions& options)
    : threshold(static_cast<uint32_t>(std::ceil(options.p * 0x1p24))),
      scale(static_cast<float>(1 / (1 - options.p))) {}

const OpDef& dropout_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Dropout";
    d.name = "dropout";
    d.doc =
        "x·mask/(1 − p); element i of the mask is 0 with probability p, a function of the seed and "
        "offset + i. (C1) x "
        "is floating point. (C2) The seed is (2,) uint32. (C3) p is in [0, 1), offset not "
        "negative.";
    d.inputs = {{"x"}, {"seed"}};
    d.outputs = {"y"};
    d.set_options(DropoutOptions{});
    d.traits = kElementwise;
    d.may_coincide = {{0, 0}};
    d.infer = infer_dropout;
    d.grad = dropout_grad;
    d.reference_float = dropout_reference<float>;
    d.reference_double = dropout_reference<double>;
    d.flops_per_element = 12;
    for (const Shape& shape : {Shape{}, Shape{19}, Shape{3, 5}, Shape{0, 2}}) {
      for (const double p : {0.0, 0.3}) {
        Sample s{.inputs = {f32_spec(shape), kSeedSpec},
                 .options = to_attrs(DropoutOptions{.p = p, .offset = 5})};
        s.values = {std::nullopt, seed_value(1, 77)};
        d.samples.push_back(s);
      }
    }
    d.must_fail = {{"(C1)", {i32_spec({2}), kSeedSpec}, d.options},
                   {"(C2)", {f32_spec({2}), {Shape{2}, i32, {}}}, d.options},
                   {"(C3)", {f32_spec({2}), kSeedSpec}, to_attrs(DropoutOptions{.p = 1})},
                   {"(C3)", {f32_spec({2}), kSeedSpec}, to_attrs(DropoutOptions{.offset = -1})}};
    return d;
  }();
  return def;
}

const OpDef& random_uniform_def() {
  static const OpDef def =
      define_random("RandomUniform", "random_uniform", "low + (high − low)·u, u uniform in [0, 1).",
                    RandomUniformOptions{.low = -1, .high = 3, .offset = 6});
  return def;
}

const OpDef& random_normal_def() {
  static const OpDef def =
      define_random("RandomNormal", "random_normal", "mean + std·z, z standard normal.",
                    RandomNormalOptions{.mean = 0.5, .std = 2, .offset = 3});
  return def;
}

const OpDef& fold_seed_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ModifyRandomSeed";
    d.name = "fold_seed";
    d.doc =
        "A new seed from a seed and a word: option data, or the second operand. (C2) The seed is "
        "(2,) uint32. (C3) At "
        "most one operand of data, an int32 or uint32 scalar.";
    d.inputs = {{"seed"}, {"data"}};
    d.variadic = true;
    d.outputs = {"y"};
    d.set_options(FoldSeedOptions{});
    d.traits = kZeroGradient;
    d.infer = infer_fold;
    d.reference_float = fold_reference;
    d.reference_double = fold_reference;
    d.flops_per_element = 40;
    Sample constant{
        .inputs = {kSeedSpec}, .options = to_attrs(FoldSeedOptions{-3}), .gradient = false};
    constant.values = {seed_value(1, 2)};
    d.samples.push_back(constant);
    for (const DType dtype : {i32, u32}) {
      Sample s{
          .inputs = {kSeedSpec, {Shape{}, dtype, {}}}, .options = d.options, .gradient = false};
      s.values = {seed_value(1, 2), HostTensor::of<double>({}, f64, {41}).cast(dtype)};
      d.samples.push_back(s);
    }
    d.must_fail = {{"(C2)", {{Shape{2}, i32, {}}}, d.options},
                   {"(C3)", {kSeedSpec, f32_spec({})}, d.options},
                   {"(C3)", {kSeedSpec, i32_spec({2})}, d.options}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> random_ops() {
  return {&dropout_def(), &random_uniform_def(), &random_normal_def(), &fold_seed_def()};
}

Tensor dropout(TensorArg x, TensorArg seed, double p) {
  return emit_one(dropout_def(), {x, seed}, DropoutOptions{.p = p});
}
Tensor random_uniform(TensorArg seed, const Shape& shape, double low, double high, DType dtype) {
  return emit_one(random_uniform_def(), {seed},
                  RandomUniformOptions{.shape = shape, .dtype = dtype, .low = low, .high = high});
}
Tensor random_normal(TensorArg seed, const Shape& shape, double mean, double std, DType dtype) {
  return emit_one(random_normal_def(), {seed},
                  RandomNormalOptions{.shape = shape, .dtype = dtype, .mean = mean, .std = std});
}

Tensor fold_seed(TensorArg seed, TensorArg data) {
  return emit_one(fold_seed_def(), {seed, data}, FoldSeedOptions{});
}
Tensor fold_seed(TensorArg seed, int64_t data) {
  return emit_one(fold_seed_def(), {seed}, FoldSeedOptions{data});
}
Tensor fold_seed(TensorArg seed, std::string_view path) {
  return fold_seed(seed, static_cast<int64_t>(hash64(path)));
}

Tensors split_random_seed(TensorArg seed, int n) {
  require(n > 0, "split_random_seed: n must be greater than 0, got {}", n);
  Tensors seeds;
  for (int i = 0; i < n; ++i)
    seeds.push_back(fold_seed(seed, fmt::format("split_random_seed/{}", i)));
  return seeds;
}

}  // namespace sluice::ops
