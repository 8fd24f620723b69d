// Samples of masked pairs: their parts, the shares that are drawn, and refusals.
#include "sluice/data/text/masked_pairs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "sluice/base/test_refusals.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kText = 1000;  // Tokens, whose ids are their positions.

// The ids 0, 1, …, so that a segment shows where it begins.
Tokens counted(int32_t size = kText) {
  Ids ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return {ids, size};
}

int32_t id(PairToken token) { return kText + static_cast<int32_t>(token); }

// A sample and its tokens before they were masked.
struct Read {
  explicit Read(const Element& e) {
    const auto array = [&](const char* name) {
      return Ids(e[name].as<int32_t>().begin(), e[name].as<int32_t>().end());
    };
    tokens = original = array("tokens");
    segments = array("segments");
    mask = array("mask");
    labels = array("labels");
    next = array("next").at(0);
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != kNotPredicted) original[i] = labels[i];
    }
  }
  Ids tokens, original, segments, mask, labels;
  int32_t next = 0;
};

// Checks a sample and returns the positions of the text where its segments begin, and its end.
struct Segments {
  int32_t first = 0, second = 0, first_size = 0, second_size = 0;
};

Segments check(const Read& r) {
  const auto is = [&](size_t i, PairToken t) { return r.tokens[i] == id(t); };
  EXPECT_TRUE(is(0, PairToken::kClass));
  size_t at = 1;
  const auto segment = [&](int32_t number) {
    const size_t begin = at;
    for (; r.original.at(at) < kText; ++at) {
      EXPECT_EQ(r.original[at], r.original[begin] + static_cast<int32_t>(at - begin));
      EXPECT_EQ(r.segments[at], number);
    }
    EXPECT_GT(at, begin);
    EXPECT_EQ(r.original[at], id(PairToken::kSeparator));
    EXPECT_EQ(r.segments[at], number);
    ++at;
    return std::pair(r.original[begin], static_cast<int32_t>(at - 1 - begin));
  };
  Segments s;
  std::tie(s.first, s.first_size) = segment(0);
  std::tie(s.second, s.second_size) = segment(1);
  EXPECT_EQ(r.next, s.second == s.first + s.first_size ? 0 : 1);
  for (size_t i = 0; i < r.mask.size(); ++i) {
    EXPECT_EQ(r.mask[i], i < at ? 1 : 0);
    if (i < at) continue;
    EXPECT_TRUE(is(i, PairToken::kPadding));
    EXPECT_EQ(r.segments[i], 0);
  }
  int predicted = 0;
  for (const int32_t label : r.labels) predicted += label != kNotPredicted;
  EXPECT_EQ(predicted, std::max(1L, std::lround(0.15 * (s.first_size + s.second_size))));
  return s;
}

TEST(MaskedPairs, HaveTheSharesOfBert) {
  constexpr int kSamples = 4000;
  constexpr int64_t kContext = 40;
  const Dataset pairs = random_masked_pairs(counted(), {.context = kContext, .seed = 3});
  int following = 0, shorter = 0, predicted = 0, masked = 0, kept = 0, sizes = 0;
  std::set<int32_t> begins, places;
  for (int k = 0; k < kSamples; ++k) {
    const Read r(pairs.node()->at(k, 0));
    const Segments s = check(r);
    following += r.next == 0;
    shorter += s.first_size + s.second_size < kContext - 3;
    sizes += s.first_size;
    begins.insert(s.first);
    for (size_t i = 0; i < r.labels.size(); ++i) {
      if (r.labels[i] == kNotPredicted) continue;
      ++predicted;
      masked += r.tokens[i] == id(PairToken::kMask);
      kept += r.tokens[i] == r.labels[i];
      places.insert(static_cast<int32_t>(i));
    }
  }
  const auto share = [](int count, int of) { return static_cast<double>(count) / of; };
  EXPECT_NEAR(share(following, kSamples), 0.5, 0.03);
  EXPECT_NEAR(share(shorter, kSamples), 0.1 * 35 / 36, 0.02);
  EXPECT_NEAR(share(masked, predicted), 0.8, 0.02);
  EXPECT_NEAR(share(kept, predicted), 0.1, 0.015);
  EXPECT_NEAR(share(sizes, kSamples), 18, 1);
  EXPECT_GT(begins.size(), 900u);
  EXPECT_EQ(places.size(), 38u);  // All places but the class and the last separator.
}

TEST(MaskedPairs, ArePureFunctionsOfSeedAndIndex) {
  const auto sample = [](uint64_t seed, int64_t k) {
    return Read(random_masked_pairs(counted(), {.context = 20, .seed = seed}).node()->at(k, 0))
        .tokens;
  };
  EXPECT_EQ(sample(1, 5), sample(1, 5));
  EXPECT_NE(sample(1, 5), sample(1, 6));
  EXPECT_NE(sample(1, 5), sample(2, 5));
  EXPECT_NE(sample(1, 5), sample(uint64_t{1} << 32 | 1, 5));
  EXPECT_EQ(random_masked_pairs(counted()).size(), kForever);
}

TEST(MaskedPairs, OfAnEvaluationDoNotOverlap) {
  const Dataset pairs = consecutive_masked_pairs(counted(), {.context = 20});
  ASSERT_EQ(pairs.size(), 1000 / 17);
  for (int64_t k = 0; k < *pairs.size(); ++k)
    EXPECT_EQ(check(Read(pairs.node()->at(k, 0))).first, 17 * k);
  // The smallest samples and text.
  const Tokens three = counted(kText).range(0, 3);
  const Dataset one = consecutive_masked_pairs(three, {.context = 5});
  ASSERT_EQ(one.size(), 1);
  check(Read(one.node()->at(0, 0)));
  for (int64_t k = 0; k < 50; ++k)
    check(Read(random_masked_pairs(three, {.context = 5}).node()->at(k, 0)));
}

TEST(MaskedPairs, RefuseTextsThatAreTooShort) {
  const auto random = [](const Tokens& tokens, int64_t context) {
    return [=] { random_masked_pairs(tokens, {.context = context}); };
  };
  const auto consecutive = [](const Tokens& tokens, int64_t context) {
    return [=] { consecutive_masked_pairs(tokens, {.context = context}); };
  };
  const Tokens ten = counted(10);
  expect_refused(
      {{"context", random(ten, 4), "context: must be at least 5 tokens, got 4"},
       {"short", random(ten, 13), "tokens: must have at least 11 tokens, context - 2, got 10"},
       {"short evaluation", consecutive(ten, 13),
        "tokens: must have at least 11 tokens, context - 2, got 10"},
       {"long context", random(ten, std::numeric_limits<int64_t>::max()),
        "must have at least 9223372036854775805 tokens, context - 2, got 10"}});
  const test::TestFile file("ids.bin", test::bytes_of<uint16_t>({1, 2}));
  try {
    random_masked_pairs(tokens_file(file.path()), {.context = 5});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile);
    EXPECT_TRUE(std::string(e.what()).starts_with(file.path() + ": must have at least 3 tokens"));
  }
}

}  // namespace
}  // namespace sluice::data
