// pad() and bucket_by_length() have the arrays and the order of loops over lists.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/data/pipeline/test_indexed.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;
using Doubles = std::vector<double>;

/// Length of element k, in [0, 12).
int64_t length_of(int64_t k) { return random_bits({}, static_cast<uint64_t>(k)) % 12; }

/// Entry i of element k.
int64_t entry_of(int64_t k, int64_t i) { return 100 * k + i + 1; }

/// Element k: "tokens" (length) i32, "scores" (2, length, 3) f32, and "key" () i32.
Element ragged(int64_t k) {
  const int64_t n = length_of(k);
  HostTensor tokens({{n}, i32, {}}), scores({{2, n, 3}, f32, {}});
  for (int64_t i = 0; i < n; ++i)
    tokens.as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(entry_of(k, i));
  for (size_t i = 0; i < scores.as<float>().size(); ++i)
    scores.as<float>()[i] = static_cast<float>(entry_of(k, static_cast<int64_t>(i)));
  const auto key = HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(k)});
  return {{"tokens", tokens}, {"scores", scores}, {"key", key}};
}

/// Makes some elements slowly.
Element slow_ragged(Element e) {
  const auto k = static_cast<uint64_t>(e["key"].as<int32_t>()[0]);
  std::this_thread::sleep_for(std::chrono::microseconds(random_bits({}, k) % 100));
  return e;
}

const std::vector<PaddedField> kFields = {{"tokens", -1}, {"scores", 0.5, 1}};

/// The tokens of element k, padded to `length`.
Doubles padded_tokens(int64_t k, int64_t length) {
  Doubles all(static_cast<size_t>(length), -1);
  for (int64_t i = 0; i < length_of(k); ++i)
    all[static_cast<size_t>(i)] = static_cast<double>(entry_of(k, i));
  return all;
}

/// The scores of element k, padded to `length`.
Doubles padded_scores(int64_t k, int64_t length) {
  const int64_t n = length_of(k);
  Doubles all;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t old = (row * n + i) * 3 + c;
        all.push_back(i < n ? static_cast<double>(entry_of(k, old)) : 0.5);
      }
    }
  }
  return all;
}

TEST(Pad, ExtendsAxesWithValues) {
  const Dataset d = from_function(40, ragged);
  int64_t k = 0;
  for (const Element& e : d.pad(14, kFields)) {
    EXPECT_EQ(to_string(specs_of(e)),
              "tokens (14,) int32, scores (2, 14, 3) float32, key () int32");
    EXPECT_EQ(e["tokens"].to_doubles(), padded_tokens(k, 14));
    EXPECT_EQ(e["scores"].to_doubles(), padded_scores(k, 14));
    EXPECT_EQ(e["key"].as<int32_t>()[0], k++);
  }
  EXPECT_EQ(k, 40);
  k = 0;
  for (const Element& e : d.pad_to_multiple(4, kFields)) {
    const int64_t length = (length_of(k) + 3) / 4 * 4;
    EXPECT_EQ(e["tokens"].to_doubles(), padded_tokens(k, length));
    EXPECT_EQ(e["scores"].to_doubles(), padded_scores(k++, length));
  }
  test::expect_indexed("pad", d.pad(11, kFields), {0, 2});
  BatchLoader loader(d.map(slow_ragged).pad(11, kFields),
                     {.batch = 4, .shuffle = Shuffle::kNo, .workers = 3});
  for (k = 0; const Element* item = loader.next(); k += 4) {
    Doubles expected;
    for (int64_t i = k; i < k + 4; ++i) {
      const Doubles here = padded_tokens(i, 11);
      expected.insert(expected.end(), here.begin(), here.end());
    }
    EXPECT_EQ((*item)["tokens"].to_doubles(), expected);
  }
  EXPECT_EQ(k, 40);
}

TEST(Pad, StoresTheValueInEachDtype) {
  for (const DType dtype : {f32, f16, bf16, i32, u32, u8, f64, i64}) {
    const Dataset d = from_function(2, [&](int64_t k) {
      return HostTensor({{k + 1}, f32, {}}).cast(dtype);
    });
    const Dataset padded = d.pad(3, {{0, 7}});
    EXPECT_THAT((*padded.iterate().next())[0].to_doubles(), ElementsAre(0, 7, 7));
  }
  const Dataset mask = from_function(1, [](int64_t) { return HostTensor({{1}, boolean, {}}); });
  EXPECT_THAT((*mask.pad(3, {{0, 1}}).iterate().next())[0].to_doubles(), ElementsAre(0, 1, 1));
  const auto nan = (*from_function(1,
                                   [](int64_t) {
                                     return HostTensor({{0}, f32, {}});
                                   })
                         .pad(1, {{0, std::nan("")}})
                         .iterate()
                         .next())[0]
                       .to_doubles();
  EXPECT_TRUE(std::isnan(nan[0]));
}

TEST(Pad, KnowsItsSpecs) {
  const Dataset rows = from_tensors({{"x", HostTensor({{7, 5}, f32, {}})}});
  EXPECT_EQ(to_string(*rows.pad(8, {{"x"}}).element_specs()), "x (8,) float32");
  EXPECT_EQ(to_string(*rows.pad_to_multiple(3, {{"x"}}).element_specs()), "x (6,) float32");
  EXPECT_EQ(from_function(3, ragged).pad(12, kFields).element_specs(), std::nullopt);
  // Padding completes the last batch.
  const Dataset batches = rows.batch(3, Remainder::kKeep);
  EXPECT_EQ(to_string(check_static(batches.pad(3, {{"x", -1}}))), "x (3, 5) float32");
  std::vector<Doubles> last;
  for (const Element& e : batches.pad(3, {{"x", -1}})) last.push_back(e["x"].to_doubles());
  ASSERT_EQ(last.size(), 3U);
  EXPECT_THAT(last[2], ElementsAre(0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  test::expect_indexed("batches", batches.pad(3, {{"x", -1}}));
  expect_refused({{"other axis",
                   [&] {
                     check_static(batches.pad(6, {{"x", 0, 1}}));
                   },
                   "all elements must have one shape"},
                  {"multiple", [&] { check_static(batches.pad_to_multiple(2, {{"x"}})); },
                   "all elements must have one shape"}});
}

TEST(Pad, Refuses) {
  const Dataset d = from_function(40, ragged);
  const Dataset rows = from_tensors({{"x", HostTensor({{7, 5}, f32, {}})}});
  const auto read = [](const Dataset& dataset) {
    return [=] {
      test::read_all(dataset, 0);
      test::values(dataset);
    };
  };
  int64_t longest = 0;
  while (length_of(longest) <= 10) ++longest;
  expect_refused({
      {"length", [&] { d.pad(0, {{"tokens"}}); },
       "pad: the length must be in [1, 2147483647], got 0"},
      {"multiple", [&] { d.pad_to_multiple(0, {{"tokens"}}); },
       "pad_to_multiple: the multiple must be in [1, 2147483647], got 0"},
      {"large", [&] { d.pad(int64_t{1} << 31, {{"tokens"}}); }, "2147483647], got 2147483648"},
      {"large multiple", [&] { d.pad_to_multiple(kForever, {{"tokens"}}); },
       "pad_to_multiple: the multiple must be in [1, 2147483647], got 9223372036854775807"},
      {"none", [&] { d.pad(1, {}); }, "pad: requires at least one field, got none"},
      {"axis",
       [&] {
         d.pad(1, {{"tokens", 0, -1}});
       },
       "pad: the axis of field 'tokens' must be at least 0, got -1"},
      {"twice",
       [&] {
         d.pad(1, {{"tokens"}, {"tokens", 3}});
       },
       "pad: an axis of a field must be padded once, got axis 0 of field 'tokens' twice"},
      {"long", read(d.pad(10, {{"tokens"}})),
       fmt::format(
           "pad: axis 0 of field 'tokens' must have a length of at most 10, got 11\n  while "
           "pad computed element {}",
           longest)},
      {"field", read(d.pad(12, {{"words"}})), "the field must be one of tokens ("},
      {"index", read(d.pad(12, {{3}})), "got field 3"},
      {"rank", read(d.pad(12, {{"tokens", 0, 1}})),
       "pad: the axis of field 'tokens' must be in [0, 1), got 1"},
      {"dtype", read(d.pad(12, {{"tokens", 0.5}})),
       "pad: the value of field 'tokens' must be a number of int32, got 0.5"},
      {"early", [&] { rows.pad(4, {{"x"}}); }, "must have a length of at most 4, got 5"},
      {"early field", [&] { rows.pad(9, {{"y"}}); }, "got field 'y'"},
  });
}

/// The keys of each batch of bucket_by_length(), from lists.
std::vector<std::vector<int64_t>> bucketed_lists(const std::vector<int64_t>& keys,
                                                 const BucketOptions& options) {
  std::vector<std::vector<int64_t>> batches, held(options.buckets.size());
  for (const int64_t k : keys) {
    for (size_t b = 0; b < held.size(); ++b) {
      if (length_of(k) > options.buckets[b].length) continue;
      held[b].push_back(k);
      if (std::ssize(held[b]) == options.buckets[b].batch) {
        batches.push_back(held[b]);
        held[b].clear();
      }
      break;
    }
  }
  for (const std::vector<int64_t>& list : held) {
    if (options.remainder == Remainder::kKeep && !list.empty()) batches.push_back(list);
  }
  return batches;
}

TEST(BucketByLength, BatchesElementsOfSimilarLengths) {
  const Dataset sources[] = {
      from_function(60, ragged),
      from_function(60, ragged).map(slow_ragged),
      from_function(60, ragged).parallel_map(slow_ragged, 4),
      from_function(60, ragged).parallel_map(slow_ragged, 3).shuffle(3, 20).prefetch(2),
  };
  const std::vector<std::vector<Bucket>> cases = {
      {{11, 4}}, {{3, 5}, {7, 3}, {11, 2}}, {{6, 1}, {11, 100}}, {{4, 3}, {8, 2}}};
  for (const Dataset& source : sources) {
    for (const uint64_t pass : {0, 3}) {
      std::vector<int64_t> keys;
      for (Iterator i = source.iterate(pass); const std::optional<Element> e = i.next();)
        keys.push_back((*e)["key"].as<int32_t>()[0]);
      for (const std::vector<Bucket>& buckets : cases) {
        for (const Remainder remainder : {Remainder::kDrop, Remainder::kKeep}) {
          const BucketOptions options{.buckets = buckets,
                                      .fields = kFields,
                                      .remainder = remainder,
                                      .longer = Longer::kDrop};
          const auto expected = bucketed_lists(keys, options);
          size_t batch = 0;
          Iterator i = source.bucket_by_length(options).iterate(pass);
          for (; const std::optional<Element> e = i.next(); ++batch) {
            ASSERT_LT(batch, expected.size());
            const std::vector<int64_t>& list = expected[batch];
            const auto length = (*e)["tokens"].shape()[1];
            Doubles list_keys, tokens, scores;
            for (const int64_t k : list) {
              list_keys.push_back(static_cast<double>(k));
              const Doubles t = padded_tokens(k, length), s = padded_scores(k, length);
              tokens.insert(tokens.end(), t.begin(), t.end());
              scores.insert(scores.end(), s.begin(), s.end());
            }
            EXPECT_EQ((*e)["key"].to_doubles(), list_keys);
            EXPECT_EQ((*e)["tokens"].to_doubles(), tokens);
            EXPECT_EQ((*e)["scores"].to_doubles(), scores);
            const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const Bucket& b) {
              return length_of(list[0]) <= b.length;
            });
            EXPECT_EQ(length, bucket->length) << "the shape of the bucket";
          }
          EXPECT_EQ(batch, expected.size());
        }
      }
    }
  }
}

TEST(BucketByLength, OneBucketHasAStaticShape) {
  const Dataset d = from_function(20, ragged);
  const Dataset one = d.bucket_by_length({.buckets = {{12, 3}}, .fields = kFields});
  EXPECT_EQ(to_string(check_static(one)),
            "tokens (3, 12) int32, scores (3, 2, 12, 3) float32, key (3,) int32");
  EXPECT_FALSE(one.node()->indexed());
  EXPECT_EQ(one.size(), std::nullopt);
  EXPECT_EQ(d.repeat().bucket_by_length({.buckets = {{12, 3}}, .fields = kFields}).size(),
            kForever);
  std::vector<Element> batches;
  for (const Element& e : d.pad(12, kFields).batch(3)) batches.push_back(e);
  size_t k = 0;
  for (const Element& e : one) EXPECT_TRUE(test::same_elements(e, batches.at(k++)));
  EXPECT_EQ(k, batches.size());
  BatchLoader loader(one, {.batch = 2, .shuffle = Shuffle::kNo, .workers = 2});
  EXPECT_EQ(loader.next()->arrays[0].shape(), (Shape{2, 3, 12}));
}

TEST(BucketByLength, Refuses) {
  const Dataset d = from_function(40, ragged);
  const auto make = [&](std::vector<Bucket> buckets) {
    return d.bucket_by_length({.buckets = std::move(buckets), .fields = {{"tokens"}}});
  };
  const Dataset two = d.bucket_by_length({.buckets = {{6, 2}, {12, 2}}, .fields = kFields});
  expect_refused({
      {"buckets", [&] { make({}); }, "bucket_by_length: requires at least one bucket, got none"},
      {"fields",
       [&] {
         d.bucket_by_length({.buckets = {{3, 2}}});
       },
       "bucket_by_length: requires at least one field, got none"},
      {"order",
       [&] {
         make({{5, 2}, {5, 2}});
       },
       "bucket_by_length: a bucket must be longer than the one before it, 5, got 5"},
      {"length",
       [&] {
         make({{0, 2}});
       },
       "must be longer than the one before it, 0, got 0"},
      {"large",
       [&] {
         make({{3, 2}, {kForever, 1}});
       },
       "bucket_by_length: a length must be at most 2147483647, got 9223372036854775807"},
      {"batch",
       [&] {
         make({{3, 0}});
       },
       "bucket_by_length: a batch must have at least 1 element, got 0 for length 3"},
      {"long",
       [&] {
         test::values(make({{1, 100}}));
       },
       "bucket_by_length: an element must have a length of at most 1, got"},
      {"long",
       [&] {
         test::values(make({{1, 100}}));
       },
       "while bucket_by_length computed element"},
      {"shapes",
       [&] {
         test::values(make({{12, 2}}));
       },
       "; give other axes one length"},
      {"static", [&] { check_static(two); },
       "dataset: all elements must have one shape, got buckets of several lengths; use one bucket, "
       "or pad(n)"},
      {"mapped",
       [&] {
         BatchLoader loader(two.map([](Element e) { return e; }),
                            {.batch = 1, .shuffle = Shuffle::kNo});
       },
       "loader: all elements must have one shape, got buckets"},
      {"kept",
       [&] {
         check_static(d.bucket_by_length(
             {.buckets = {{12, 3}}, .fields = kFields, .remainder = Remainder::kKeep}));
       },
       "and possibly a smaller last batch"},
  });
}

}  // namespace
}  // namespace sluice::data
