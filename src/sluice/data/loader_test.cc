#include "sluice/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sluice/base/test_refusals.h"
#include "sluice/data/test_allocations.h"

namespace sluice::data {
namespace {

/// `n` samples. Sample k has label k and pixels 10·k, 10·k + 1, ….
Samples numbered(int64_t n) {
  Samples set;
  set.images = HostTensor(TensorSpec{{n, 2, 3}, f32, {}});
  set.labels = HostTensor(TensorSpec{{n}, i32, {}});
  for (int64_t k = 0; k < n; ++k) {
    set.labels.as<int32_t>()[static_cast<size_t>(k)] = static_cast<int32_t>(k);
    for (int64_t p = 0; p < 6; ++p) {
      set.images.as<float>()[static_cast<size_t>(6 * k + p)] = static_cast<float>(10 * k + p);
    }
  }
  return set;
}

TensorSpec i32_array(Shape shape) { return {std::move(shape), i32, {}}; }

std::vector<int64_t> order(const DataLoader& loader, int64_t n) {
  std::vector<int64_t> samples(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) samples[static_cast<size_t>(i)] = loader.sample_at(i);
  return samples;
}

bool is_permutation(std::vector<int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

TEST(DataLoader, CutsFullBatchesAndCountsTheRest) {
  const Samples set = numbered(11);
  const DataLoader loader(set, {.batch = 4, .seed = 1});
  EXPECT_EQ(loader.batches(), 2);
  EXPECT_EQ(loader.dropped(), 3);
  EXPECT_EQ(DataLoader(set, {.batch = 11}).dropped(), 0);
}

TEST(DataLoader, ImagesAndLabelsStayTogether) {
  const Samples set = numbered(11);
  DataLoader loader(set, {.batch = 4, .seed = 1});
  HostTensor images(TensorSpec{{4, 2, 3}, f32, {}});
  HostTensor labels(TensorSpec{{4}, i32, {}});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    std::set<int32_t> seen;
    for (int64_t b = 0; b < loader.batches(); ++b) {
      loader.fill(b, images, labels);
      for (size_t k = 0; k < 4; ++k) {
        const int32_t sample = labels.as<int32_t>()[k];
        EXPECT_EQ(sample, loader.sample_at(4 * b + static_cast<int64_t>(k)));
        EXPECT_TRUE(seen.insert(sample).second);
        for (size_t p = 0; p < 6; ++p) {
          EXPECT_EQ(images.as<float>()[6 * k + p],
                    static_cast<float>(10 * sample + static_cast<int32_t>(p)));
        }
      }
    }
    EXPECT_EQ(seen.size(), 8u);
  }
}

// The targets of a regression are vectors of float32.
TEST(DataLoader, TargetsStayWithTheirImages) {
  Samples set = numbered(11);
  set.labels = HostTensor(TensorSpec{{11, 2}, f32, {}});
  for (size_t i = 0; i < 22; ++i) set.labels.as<float>()[i] = static_cast<float>(i) / 2;
  EXPECT_EQ(set.size(), 11);
  DataLoader loader(set, {.batch = 4, .seed = 1});
  HostTensor images(TensorSpec{{2, 2, 6}, f32, {}});
  HostTensor targets(TensorSpec{{2, 2, 2}, f32, {}});
  for (int64_t b = 0; b < loader.batches(); ++b) {
    loader.fill(b, images, targets);
    for (size_t k = 0; k < 4; ++k) {
      const auto sample = static_cast<float>(loader.sample_at(4 * b + static_cast<int64_t>(k)));
      EXPECT_EQ(images.as<float>()[6 * k], 10 * sample);
      EXPECT_EQ(targets.as<float>()[2 * k], sample);
      EXPECT_EQ(targets.as<float>()[2 * k + 1], sample + 0.5F);
    }
  }
  HostTensor labels(TensorSpec{{4}, i32, {}});
  HostTensor narrow(TensorSpec{{4}, f32, {}});
  expect_refused({{"dtype", [&] { loader.fill(0, images, labels); },
                   "loader: the array for labels must be float32, got int32"},
                  {"shape", [&] { loader.fill(0, images, narrow); },
                   "loader: the array for labels must have leading dimensions of product 4 and "
                   "others of product 2, got (4,)"}});
}

TEST(DataLoader, OrderIsAFunctionOfSeedAndEpoch) {
  const Samples set = numbered(100);
  DataLoader a(set, {.batch = 1, .seed = 5});
  const auto first = order(a, 100);
  EXPECT_TRUE(is_permutation(first));
  a.start_epoch(3);
  const auto third = order(a, 100);
  EXPECT_TRUE(is_permutation(third));
  EXPECT_NE(first, third);
  a.start_epoch(0);
  EXPECT_EQ(order(a, 100), first);
  DataLoader b(set, {.batch = 7, .seed = 5});  // The order does not depend on the batch size.
  b.start_epoch(3);
  EXPECT_EQ(order(b, 100), third);
  EXPECT_NE(order(DataLoader(set, {.batch = 1, .seed = uint64_t{5} << 32}), 100), first);
}

TEST(DataLoader, WithoutShuffleTheDataKeepsItsOrder) {
  const Samples set = numbered(10);
  DataLoader loader(set, {.batch = 3, .shuffle = false});
  loader.start_epoch(4);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(loader.sample_at(i), i);
}

TEST(DataLoader, EveryPositionIsEquallyLikely) {
  const Samples set = numbered(5);
  DataLoader loader(set, {.batch = 1, .seed = 2});
  constexpr int kEpochs = 20000;
  int counts[5][5] = {};
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start_epoch(epoch);
    for (int64_t i = 0; i < 5; ++i) ++counts[i][loader.sample_at(i)];
  }
  // Allow five standard deviations of a binomial distribution with p = 1/5.
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, kEpochs / 5, 5 * 57);
  }
}

TEST(DataLoader, ViewsMaySplitTheBatchAndFlattenTheSample) {
  const Samples set = numbered(8);
  const DataLoader loader(set, {.batch = 4, .shuffle = false});
  HostTensor labels(TensorSpec{{2, 2}, i32, {}});
  for (const Shape& shape :
       {Shape{4, 2, 3}, Shape{4, 6}, Shape{2, 2, 6}, Shape{1, 4, 1, 2, 3}, Shape{4, 1, 6}}) {
    HostTensor images(TensorSpec{shape, f32, {}});
    loader.fill(1, images, labels);
    EXPECT_EQ(images.as<float>()[23], 75.0f);
    EXPECT_EQ(labels.as<int32_t>()[3], 7);
  }
}

TEST(DataLoader, WrongViewsAreRefusedUntouched) {
  const Samples set = numbered(8);
  const DataLoader loader(set, {.batch = 4});
  HostTensor images(TensorSpec{{4, 2, 3}, f32, {}});
  HostTensor labels(TensorSpec{{4}, i32, {}});
  const auto refused = [&](int64_t index, const ArrayView& x, const ArrayView& y) {
    try {
      loader.fill(index, x, y);
      return false;
    } catch (const Error& e) {
      return e.kind() == ErrorKind::kUsage;
    }
  };
  EXPECT_TRUE(refused(-1, images, labels));
  EXPECT_TRUE(refused(2, images, labels));
  for (const Shape& shape :
       {Shape{}, Shape{4}, Shape{24}, Shape{3, 2, 3}, Shape{6, 4}, Shape{2, 3, 4}, Shape{8, 3},
        Shape{4, 2, 4}, Shape{0, 6}, Shape{5, 2, 3}}) {
    HostTensor wrong(TensorSpec{shape, f32, {}});
    EXPECT_TRUE(refused(0, wrong, labels)) << to_string(shape);
  }
  HostTensor wrong_dtype(TensorSpec{{4, 2, 3}, i32, {}});
  EXPECT_TRUE(refused(0, wrong_dtype, labels));
  HostTensor few(TensorSpec{{3}, i32, {}});
  HostTensor many(TensorSpec{{5}, i32, {}});
  HostTensor wide(TensorSpec{{4}, i64, {}});
  EXPECT_TRUE(refused(0, images, few));
  EXPECT_TRUE(refused(0, images, many));
  EXPECT_TRUE(refused(0, images, wide));
  EXPECT_TRUE(images.same_bits(HostTensor(images.spec())));
}

TEST(DataLoader, UnusableDataIsRefused) {
  const Samples set = numbered(3);
  const auto message = [](const Samples& data, LoaderOptions options) -> std::string {
    try {
      DataLoader loader(data, options);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kUsage);
      return e.what();
    }
  };
  EXPECT_EQ(message(set, {.batch = 4}),
            "loader: the data must fill one batch of 4 samples, got 3; use a smaller batch");
  EXPECT_NE(message(set, {.batch = 0}), "");
  EXPECT_NE(message(set, {.batch = -1}), "");
  EXPECT_NE(message(Samples{}, {.batch = 1}), "");
  Samples uneven = numbered(3);
  uneven.labels = HostTensor(TensorSpec{{2}, i32, {}});
  EXPECT_EQ(message(uneven, {.batch = 1}),
            "loader: every image must have one label, got 3 images and 2 labels");
  Samples bytes = numbered(3);
  bytes.images = bytes.images.cast(u8);
  EXPECT_NE(message(bytes, {.batch = 1}), "");
  DataLoader loader(set, {.batch = 1});
  EXPECT_THROW(loader.start_epoch(-1), Error);
}

TEST(DataLoader, RefusalsSayWhatIsRight) {
  const Samples set = numbered(8);
  DataLoader loader(set, {.batch = 4});
  HostTensor images(TensorSpec{{4, 2, 3}, f32, {}});
  HostTensor labels(TensorSpec{{4}, i32, {}});
  HostTensor transposed(TensorSpec{{6, 4}, f32, {}});
  Samples scalar = numbered(3);
  scalar.labels = HostTensor(i32_array({}));
  Samples bytes = numbered(3);
  bytes.images = bytes.images.cast(u8);
  Samples table = numbered(3);
  table.labels = HostTensor(i32_array({3, 1}));
  expect_refused({
      {"an empty batch", [&] { DataLoader l(set, {.batch = 0}); },
       "loader: batch must be at least 1 sample, got 0"},
      {"a large batch", [&] { DataLoader l(set, {.batch = 9}); },
       "loader: the data must fill one batch of 9 samples, got 8"},
      {"bytes", [&] { DataLoader l(bytes, {.batch = 1}); },
       "loader: images must be float32 and labels int32, or float32 targets, got uint8 and int32"},
      {"labels without an axis", [&] { DataLoader l(scalar, {.batch = 1}); },
       "loader: labels must be (n,) and images (n, …), got () and (3, 2, 3)"},
      {"labels with two axes", [&] { DataLoader l(table, {.batch = 1}); },
       "and images (n, …), got (3, 1) and "},
      {"epoch", [&] { loader.start_epoch(-1); }, "loader: epoch must be at least 0, got -1"},
      {"batch", [&] { loader.fill(2, images, labels); }, "loader: batch must be in [0, 2), got 2"},
      {"images' dtype", [&] { loader.fill(0, labels, labels); },
       "loader: the array for images must be float32, got int32"},
      {"labels' dtype", [&] { loader.fill(0, images, images); },
       "loader: the array for labels must be int32, got float32"},
      {"images' shape", [&] { loader.fill(0, transposed, labels); },
       "loader: the array for images must have leading dimensions of product 4 and others of "
       "product 6, got (6, 4)"},
  });
}

TEST(DataLoader, SteadyStateAllocatesNothing) {
  const Samples set = numbered(64);
  DataLoader loader(set, {.batch = 8, .seed = 3});
  HostTensor images(TensorSpec{{8, 6}, f32, {}});
  HostTensor labels(TensorSpec{{8}, i32, {}});
  const ArrayView image_view(images);
  const ArrayView label_view(labels);
  const int64_t before = test::allocations;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    for (int64_t b = 0; b < loader.batches(); ++b) loader.fill(b, image_view, label_view);
  }
  EXPECT_EQ(test::allocations - before, 0);
}

}  // namespace
}  // namespace sluice::data
