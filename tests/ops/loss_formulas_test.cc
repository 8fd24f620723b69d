// Compares losses and their gradients with the formulas, written here as plain loops. Kernels and
// reference kernels share the code that reads labels. Comparing only these two would not find
// errors in it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "sluice/interp/interpreter.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

using ops::LossReduction;
using Doubles = std::vector<double>;

constexpr size_t kRows = 4;
constexpr double kSeed = 2;  // Gradient of the loss; without a reduction, of each loss.
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Labels {
  DType dtype;
  std::vector<int64_t> values;  // One per row.
  std::optional<int64_t> ignored;
};

/// The ops with which a program computes cross entropy and its gradient with respect to the logits.
enum class LossFormula { kCrossEntropy, kWithGrad, kOfProbabilities };

struct Result {
  Doubles loss;
  Doubles gradient;
};

Result formula(const Doubles& logits, const Labels& labels, LossReduction reduction) {
  const size_t classes = logits.size() / kRows;
  double counted = 0;
  for (const int64_t label : labels.values) {
    if (!labels.ignored.has_value() || label != *labels.ignored) counted += 1;
  }
  const double divisor = reduction == LossReduction::kMean && counted > 0 ? counted : 1;
  Result r{Doubles(kRows), Doubles(logits.size())};
  for (size_t row = 0; row < kRows; ++row) {
    const double* x = logits.data() + row * classes;
    double top = -kInf, total = 0;
    for (size_t c = 0; c < classes; ++c) top = std::max(top, x[c]);
    for (size_t c = 0; c < classes; ++c) total += std::exp(x[c] - top);
    const int64_t label = labels.values[row];
    const bool is_ignored = labels.ignored.has_value() && label == *labels.ignored;
    const bool is_class = label >= 0 && label < static_cast<int64_t>(classes);
    if (is_ignored) continue;
    r.loss[row] = is_class ? -(x[label] - top - std::log(total)) : kNan;
    for (size_t c = 0; c < classes; ++c) {
      const double p = std::exp(x[c] - top) / total;
      const double hit = static_cast<int64_t>(c) == label ? 1 : 0;
      r.gradient[row * classes + c] = is_class ? (p - hit) * kSeed / divisor : kNan;
    }
  }
  if (reduction == LossReduction::kNone) return r;
  double sum = 0;
  for (const double loss : r.loss) sum += loss;
  r.loss = {sum / divisor};
  return r;
}

/// A program that reads streams "logits" and "labels", and writes "loss" and "gradient".
class Program {
 public:
  Program(LossFormula form, DType dtype, size_t classes, const Labels& labels,
          LossReduction reduction)
      : logits_(ir_.h2d_stream({{kRows, static_cast<int64_t>(classes)}, dtype, {}}, "logits")),
        labels_(ir_.h2d_stream({{kRows}, labels.dtype, {}}, "labels")) {
    Graph& main = ir_.main_graph();
    const Tensor x = main.host_load(logits_);
    const Tensor at = main.host_load(labels_);
    const bool ignores = labels.ignored.has_value();
    const int64_t ignored = labels.ignored.value_or(0);
    if (form == LossFormula::kWithGrad) {
      const auto [loss, gradient] = ops::cross_entropy_with_grad(x, at,
                                                                 {.reduction = reduction,
                                                                  .has_ignore_index = ignores,
                                                                  .ignore_index = ignored,
                                                                  .loss_grad = kSeed});
      show(loss, gradient);
      return;
    }
    Graph& forward = ir_.create_graph(
        "f",
        [&](Graph&, Tensor logits, Tensor labels) {
          const ops::NllLossOptions options{
              .reduction = reduction, .has_ignore_index = ignores, .ignore_index = ignored};
          if (form == LossFormula::kCrossEntropy)
            return ops::cross_entropy(logits, labels, options);
          return ops::nll_loss(ops::softmax(logits), labels, options);
        },
        x, at);
    const auto info = transforms::autodiff(forward);
    const CallSiteInfo call = ops::call_with_info(main, forward, {x, at});
    const TensorSpec& spec = call.output(0).spec();
    const HostTensor ones = HostTensor::of<double>(
        spec.shape, f64, Doubles(static_cast<size_t>(spec.elements()), kSeed));
    const CallSiteInfo back = ops::call_with_info(
        main, info.graph(), {main.constant(ones.cast(dtype))}, info.inputs_dict(call));
    show(call.output(0), back.output(0));
  }

  Result interpreted(Precision precision, const HostTensor& logits, const HostTensor& labels) {
    const Collected out = Interpreter(ir_, precision).run({{logits_, logits}, {labels_, labels}});
    return {out[loss_].to_doubles(), out[gradient_].to_doubles()};
  }
  Result executed(const std::vector<std::string>& disable, const HostTensor& logits,
                  const HostTensor& labels) {
    Session session(ir_, {.device = cpu_device({.threads = 1}), .disable = disable});
    const HostTensors out = session.run({{logits_, logits}, {labels_, labels}});
    return {out[loss_].to_doubles(), out[gradient_].to_doubles()};
  }

 private:
  void show(const Tensor& loss, const Tensor& gradient) {
    loss_ = ir_.main_graph().host_store(loss, "loss");
    gradient_ = ir_.main_graph().host_store(gradient, "gradient");
  }

  Ir ir_;
  H2dStream logits_, labels_;
  D2hStream loss_, gradient_;
};

void expect_near(const Doubles& got, const Doubles& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << " " << i << " is " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << what << " " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
          << what << " " << i;
    }
  }
}

/// Checks one loss in every way. The logits must be exact in `dtype`.
void check(LossFormula form, DType dtype, const Doubles& logits, const Labels& labels,
           LossReduction reduction) {
  SCOPED_TRACE(fmt::format("form {}, {}, {} classes, reduction {}, {} labels from {}, ignored {}",
                           static_cast<int>(form), name_of(dtype), logits.size() / kRows,
                           static_cast<int>(reduction), name_of(labels.dtype), labels.values[0],
                           labels.ignored.value_or(-999)));
  const Result want = formula(logits, labels, reduction);
  const auto classes = static_cast<int64_t>(logits.size() / kRows);
  const HostTensor x = HostTensor::of<double>({kRows, classes}, f64, logits).cast(dtype);
  const HostTensor at = HostTensor::of<int64_t>({kRows}, i64, labels.values).cast(labels.dtype);
  const auto expect = [&](const Result& got, double tolerance, const char* way) {
    SCOPED_TRACE(way);
    expect_near(got.loss, want.loss, tolerance, "loss");
    expect_near(got.gradient, want.gradient, tolerance, "gradient");
  };
  const double rounding = dtype == f32 ? 2e-6 : 0.03;
  Program program(form, dtype, static_cast<size_t>(classes), labels, reduction);
  expect(program.interpreted(Precision::kDouble, x, at), 1e-12, "double");
  expect(program.interpreted(Precision::kFloat, x, at), rounding, "float");
  expect(program.executed({}, x, at), rounding, "compiled");
  expect(program.executed({"fuse"}, x, at), rounding, "compiled without fusion");
}

void check_every_form(const Doubles& logits, const Labels& labels) {
  for (const LossFormula form :
       {LossFormula::kCrossEntropy, LossFormula::kWithGrad, LossFormula::kOfProbabilities}) {
    for (const auto reduction : {LossReduction::kMean, LossReduction::kSum, LossReduction::kNone}) {
      for (const DType dtype : {f32, bf16}) check(form, dtype, logits, labels, reduction);
    }
  }
}

/// Multiples of 1/4 in [-2, 2], exact in every dtype.
Doubles some_logits(size_t classes) {
  Doubles x(kRows * classes);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7 % 17) / 4 - 2;
  return x;
}

TEST(LossFormulas, OfLabelsIgnoredAndStrange) {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMaxUnsigned = std::numeric_limits<uint32_t>::max();
  const std::vector<Labels> all{
      {i32, {0, 2, 1, 1}, {}},
      {i32, {-100, 1, 2, 0}, -100},
      {i32, {-1, 1, -1, 0}, -1},
      {i32, {-100, -100, -100, -100}, -100},
      {i32, {kMin, 1, 2, 0}, kMin},
      {i32, {kMax, 1, 2, 0}, kMax},
      {i32, {2, 0, 2, 1}, 2},
      {u32, {2, 0, 2, 1}, 2},
      {u32, {kMaxUnsigned, 1, 2, 0}, kMaxUnsigned},
      {u32, {kMaxUnsigned, kMaxUnsigned, kMaxUnsigned, kMaxUnsigned}, kMaxUnsigned},
      // Labels with the bits of the ignored label but another value. They are not classes.
      {u32, {kMaxUnsigned, 1, 2, 0}, -1},
      {i32, {-1, 1, 2, 0}, kMaxUnsigned},
      {i32, {0, 1, 2, 0}, 4294967296},
      // Labels that are not classes.
      {i32, {-1, 1, 2, 0}, {}},
      {u32, {kMaxUnsigned, 1, 2, 0}, {}},
      {i32, {40, 1, -100, 0}, -100},
  };
  for (const Labels& labels : all) {
    check_every_form(some_logits(3), labels);
    check_every_form(some_logits(40), labels);
  }
}

// A class that a mask excludes has probability 0, and its logit has gradient 0.
TEST(LossFormulas, OfMaskedLogits) {
  Doubles logits = some_logits(20);
  for (const size_t c : {0, 1, 19, 20, 57}) logits[c] = -kInf;
  check_every_form(logits, {i32, {2, 3, 16, 4}, {}});
  check_every_form(logits, {i32, {2, -100, 16, 4}, -100});
}

// The logarithm of a softmax is exact even where the probability rounds to 0.
TEST(LossFormulas, OfLabelsThatAreImpossible) {
  Doubles logits = some_logits(5);
  logits[3] = -kInf;
  logits[7] = -300;
  for (const auto reduction : {LossReduction::kSum, LossReduction::kNone})
    check(LossFormula::kCrossEntropy, f32, logits, {i32, {3, 2, 1, 0}, {}}, reduction);
}

}  // namespace
}  // namespace sluice::test
