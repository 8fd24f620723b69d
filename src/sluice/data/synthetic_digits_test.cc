#include "sluice/data/synthetic_digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/base/rng.h"
#include "sluice/base/test_refusals.h"

namespace sluice::data {
namespace {

constexpr size_t kPixels = 784;

/// Percentage of the samples for which `f(sample)` returns the label.
template <typename F>
double accuracy(const Samples& set, F f) {
  int right = 0;
  for (size_t k = 0; k < static_cast<size_t>(set.size()); ++k) {
    right += f(set.images.as<float>().subspan(k * kPixels, kPixels)) == set.labels.as<int32_t>()[k]
                 ? 1
                 : 0;
  }
  return 100.0 * right / static_cast<double>(set.size());
}

/// A network of 784 inputs, 32 hidden units with relu and 10 outputs. It is trained with softmax
/// cross entropy and plain SGD, one sample at a time.
class TinyMlp {
 public:
  TinyMlp() {
    for (size_t i = 0; i < w1_.size(); ++i) w1_[i] = 0.036f * random_normal({1, 1}, i);
    for (size_t i = 0; i < w2_.size(); ++i) w2_[i] = 0.2f * random_normal({1, 2}, i);
  }

  int32_t predict(std::span<const float> x) {
    forward(x);
    return static_cast<int32_t>(std::max_element(out_.begin(), out_.end()) - out_.begin());
  }

  void learn(std::span<const float> x, int32_t label, float rate) {
    forward(x);
    const float top = *std::max_element(out_.begin(), out_.end());
    float total = 0;
    for (float& o : out_) total += o = std::exp(o - top);
    for (size_t k = 0; k < 10; ++k)
      out_[k] = out_[k] / total - (k == static_cast<size_t>(label) ? 1.0f : 0.0f);
    std::array<float, kHidden> back{};
    for (size_t j = 0; j < kHidden; ++j) {
      for (size_t k = 0; k < 10; ++k) {
        if (hidden_[j] > 0) back[j] += out_[k] * w2_[j * 10 + k];
        w2_[j * 10 + k] -= rate * hidden_[j] * out_[k];
      }
      b1_[j] -= rate * back[j];
    }
    for (size_t k = 0; k < 10; ++k) b2_[k] -= rate * out_[k];
    for (size_t i = 0; i < kPixels; ++i) {
      for (size_t j = 0; j < kHidden; ++j) w1_[i * kHidden + j] -= rate * x[i] * back[j];
    }
  }

 private:
  static constexpr size_t kHidden = 32;

  void forward(std::span<const float> x) {
    hidden_ = b1_;
    for (size_t i = 0; i < kPixels; ++i) {
      for (size_t j = 0; j < kHidden; ++j) hidden_[j] += x[i] * w1_[i * kHidden + j];
    }
    out_ = b2_;
    for (size_t j = 0; j < kHidden; ++j) {
      hidden_[j] = std::max(hidden_[j], 0.0f);
      for (size_t k = 0; k < 10; ++k) out_[k] += hidden_[j] * w2_[j * 10 + k];
    }
  }

  std::vector<float> w1_ = std::vector<float>(kPixels * kHidden);
  std::array<float, kHidden * 10> w2_{};
  std::array<float, kHidden> b1_{}, hidden_{};
  std::array<float, 10> b2_{}, out_{};
};

TEST(SyntheticDigits, AreAFunctionOfSeedAndIndex) {
  const Samples few = synthetic_digits(5, 1);
  const Samples many = synthetic_digits(20, 1);
  EXPECT_EQ(few.images.spec(), (TensorSpec{{5, 28, 28}, f32, {}}));
  EXPECT_EQ(few.labels.spec(), (TensorSpec{{5}, i32, {}}));
  EXPECT_TRUE(
      std::ranges::equal(few.images.bytes(), many.images.bytes().first(few.images.bytes().size())));
  EXPECT_TRUE(
      std::ranges::equal(few.labels.bytes(), many.labels.bytes().first(few.labels.bytes().size())));
  EXPECT_TRUE(synthetic_digits(20, 1).images.same_bits(many.images));
  EXPECT_FALSE(synthetic_digits(20, 2).images.same_bits(many.images));
  EXPECT_FALSE(synthetic_digits(20, uint64_t{1} << 32).images.same_bits(many.images));
  expect_refused({
      {"none", [] { synthetic_digits(0, 1); },
       "synthetic digits: the number of samples must be at least 1, got 0"},
      {"less", [] { synthetic_digits(-1, 1); }, "must be at least 1, got -1"},
  });
}

// The bits must be equal on every machine and with every compiler optimisation, so that losses from
// different machines can be compared.
TEST(SyntheticDigits, BitsAreFixed) {
  const Samples set = synthetic_digits(500, 1);
  Digest digest;
  digest.add(set.images.bytes());
  digest.add(set.labels.bytes());
  EXPECT_EQ(digest.hex(), "a183fabb9fa1832bc1021aded3b45ac1");
}

TEST(SyntheticDigits, LookLikeMnistInNumbers) {
  const Samples set = synthetic_digits(3000, 1);
  std::array<int, 10> counts{};
  for (const int32_t label : set.labels.as<int32_t>()) ++counts.at(static_cast<size_t>(label));
  for (const int count : counts) EXPECT_NEAR(count, 300, 85);
  double sum = 0;
  double squares = 0;
  for (const float pixel : set.images.as<float>()) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
    ASSERT_GE(pixel, normalised_pixel(0));
    ASSERT_LE(pixel, normalised_pixel(255));
  }
  const auto pixels = static_cast<double>(set.images.elements());
  EXPECT_NEAR(sum / pixels, 0, 0.2);
  EXPECT_NEAR(squares / pixels, 1, 0.4);
  // The digits do not reach the corner of the image.
  for (size_t k = 0; k < 3000; ++k)
    EXPECT_LT(set.images.as<float>()[k * kPixels], normalised_pixel(128));
}

TEST(SyntheticDigits, AnMlpLearnsThemAndTemplatesDoNot) {
  const Samples train = synthetic_digits(8000, 1);
  const Samples test = synthetic_digits(1000, 2);
  const auto images = train.images.as<float>();
  const auto labels = train.labels.as<int32_t>();

  TinyMlp mlp;
  for (const float rate : {0.01f, 0.005f, 0.002f}) {
    for (size_t k = 0; k < labels.size(); ++k)
      mlp.learn(images.subspan(k * kPixels, kPixels), labels[k], rate);
  }
  EXPECT_GT(accuracy(test, [&](std::span<const float> x) { return mlp.predict(x); }), 95.0);

  std::vector<std::array<double, kPixels>> means(10);
  std::array<double, 10> counts{};
  for (size_t k = 0; k < labels.size(); ++k) {
    const auto label = static_cast<size_t>(labels[k]);
    ++counts[label];
    for (size_t p = 0; p < kPixels; ++p) means[label][p] += images[k * kPixels + p];
  }
  const auto nearest_mean = [&](std::span<const float> x) {
    int32_t best = 0;
    double best_distance = HUGE_VAL;
    for (size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (size_t p = 0; p < kPixels; ++p) {
        const double off = x[p] - means[c][p] / counts[c];
        distance += off * off;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = static_cast<int32_t>(c);
      }
    }
    return best;
  };
  const double templates = accuracy(test, nearest_mean);
  EXPECT_GT(templates, 60.0);
  EXPECT_LT(templates, 90.0);
}

}  // namespace
}  // namespace sluice::data
