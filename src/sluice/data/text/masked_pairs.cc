#include "sluice/data/text/masked_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/draw.h"

namespace sluice::data {
namespace {

constexpr int64_t kSpecial = 3;  // Special tokens of a sample.
constexpr double kPredicted = 0.15, kShorter = 0.1;

// The random numbers of a sample.
class PairDraws {
 public:
  explicit PairDraws(Seed key) : key_(key) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_below(key_, counter_++, static_cast<uint64_t>(bound)));
  }
  bool happens(double probability) {
    return static_cast<double>(to_unit(philox(key_, counter_++)[0])) < probability;
  }

 private:
  Seed key_;
  uint64_t counter_ = 0;
};

// The arrays of a sample.
class PairSample {
 public:
  PairSample(int64_t vocabulary, int64_t context)
      : vocabulary_(vocabulary),
        tokens_({{context}, i32, {}}),
        segments_(tokens_.spec()),
        mask_(tokens_.spec()),
        labels_(tokens_.spec()),
        next_(TensorSpec{{}, i32, {}}) {
    std::ranges::fill(tokens_.as<int32_t>(), id(PairToken::kPadding));
    std::ranges::fill(labels_.as<int32_t>(), kNotPredicted);
  }

  void add(PairToken token, int32_t segment) { put(id(token), segment); }
  // Adds `count` tokens of the text from `begin` on.
  void add(const Tokens& text, int64_t begin, int64_t count, int32_t segment) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    text.read(begin, ids);
    for (const int32_t token : ids) {
      text_.push_back(size_);
      put(token, segment);
    }
  }
  void set_next(int32_t next) { next_.as<int32_t>()[0] = next; }

  // Chooses the tokens that are predicted, and masks them.
  void mask(PairDraws& draws) {
    const double share = kPredicted * static_cast<double>(text_.size());
    const auto count = std::max<int64_t>(1, std::llround(share));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t other = i + draws.below(std::ssize(text_) - i);
      std::swap(at(text_, i), at(text_, other));
      int32_t& token = at(tokens_.as<int32_t>(), at(text_, i));
      at(labels_.as<int32_t>(), at(text_, i)) = token;
      const int64_t drawn = draws.below(10);
      if (drawn < 8) token = id(PairToken::kMask);
      if (drawn == 8) token = static_cast<int32_t>(draws.below(vocabulary_));
    }
  }

  Element element() && {
    return {{"tokens", std::move(tokens_)},
            {"segments", std::move(segments_)},
            {"mask", std::move(mask_)},
            {"labels", std::move(labels_)},
            {"next", std::move(next_)}};
  }

 private:
  int32_t id(PairToken token) const {
    return static_cast<int32_t>(vocabulary_) + static_cast<int32_t>(token);
  }
  void put(int32_t token, int32_t segment) {
    at(tokens_.as<int32_t>(), size_) = token;
    at(segments_.as<int32_t>(), size_) = segment;
    at(mask_.as<int32_t>(), size_) = 1;
    ++size_;
  }

  int64_t vocabulary_;
  int64_t size_ = 0;
  std::vector<int64_t> text_;  // Positions of tokens of the text.
  HostTensor tokens_, segments_, mask_, labels_, next_;
};

// Samples whose first segment begins at `step`·k, or at a random token if `step` is 0.
Dataset masked_pairs(const Tokens& tokens, const MaskedPairOptions& options, int64_t step,
                     int64_t count) {
  const int64_t context = options.context, vocabulary = tokens.vocabulary();
  const Seed seed{static_cast<uint32_t>(options.seed >> 32), static_cast<uint32_t>(options.seed)};
  const Seed key = fold(seed, "masked pairs");
  const auto make = [=](int64_t k) {
    PairDraws draws(fold(key, static_cast<uint64_t>(k)));
    int64_t size = context - kSpecial;  // Tokens of both segments.
    if (draws.happens(kShorter)) size = 2 + draws.below(size - 1);
    const int64_t first = 1 + draws.below(size - 1), second = size - first;
    const int64_t begin = step > 0 ? step * k : draws.below(tokens.size() - size + 1);
    int64_t other = begin + first;
    const bool follows = draws.happens(0.5);
    if (!follows) {
      const int64_t drawn = draws.below(tokens.size() - second);
      other = drawn < other ? drawn : drawn + 1;
    }
    PairSample sample(vocabulary, context);
    sample.add(PairToken::kClass, 0);
    sample.add(tokens, begin, first, 0);
    sample.add(PairToken::kSeparator, 0);
    sample.add(tokens, other, second, 1);
    sample.add(PairToken::kSeparator, 1);
    sample.set_next(follows ? 0 : 1);
    sample.mask(draws);
    return std::move(sample).element();
  };
  const TensorSpec row{{context}, i32, {}}, scalar{{}, i32, {}};
  return from_function(
      count, make,
      ElementSpecs{{row, row, row, row, scalar}, {"tokens", "segments", "mask", "labels", "next"}});
}

// Refuses a text without a sample, or without another begin of its second segment.
void check_size(const Tokens& tokens, int64_t context) {
  require(context >= kMinPairContext, "context: must be at least {} tokens, got {}",
          kMinPairContext, context);
  tokens.require_size(static_cast<uint64_t>(context - kSpecial + 1), "context - 2");
}

}  // namespace

Dataset random_masked_pairs(const Tokens& tokens, const MaskedPairOptions& options) {
  check_size(tokens, options.context);
  return masked_pairs(tokens, options, 0, kForever);
}

Dataset consecutive_masked_pairs(const Tokens& tokens, const MaskedPairOptions& options) {
  check_size(tokens, options.context);
  const int64_t step = options.context - kSpecial;
  return masked_pairs(tokens, options, step, tokens.size() / step);
}

}  // namespace sluice::data
