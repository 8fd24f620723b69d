#include "sluice/data/cifar.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "sluice/base/test_refusals.h"
#include "sluice/data/synthetic_objects.h"

namespace sluice::data {
namespace {

constexpr size_t kRecord = 3073;

// Records with these labels; byte i of record r is r + i, modulo 256.
std::vector<std::byte> records(const std::vector<int>& labels) {
  std::vector<std::byte> bytes;
  for (size_t r = 0; r < labels.size(); ++r) {
    bytes.push_back(static_cast<std::byte>(labels[r]));
    for (size_t i = 1; i < kRecord; ++i) bytes.push_back(static_cast<std::byte>(r + i));
  }
  return bytes;
}

TEST(Cifar, ReadsLabelsAndPlanes) {
  const Samples set = read_cifar(records({3, 9}), "x.bin");
  EXPECT_EQ(set.labels.to_doubles(), (std::vector<double>{3, 9}));
  EXPECT_EQ(set.images.shape(), (Shape{2, 3, 32, 32}));
  const auto pixels = set.images.as<float>();
  EXPECT_EQ(pixels[0], normalised_color(1, 0));
  EXPECT_EQ(pixels[1024], normalised_color(static_cast<uint8_t>(1025), 1));
  EXPECT_EQ(pixels[3072 + 2 * 1024 + 7], normalised_color(static_cast<uint8_t>(1 + 2056), 2));
  EXPECT_NEAR(normalised_color(255, 2), (1 - 0.4465) / 0.2616, 1e-6);
}

TEST(Cifar, RefusesDamagedFiles) {
  expect_refused({
      {"empty", [] { read_cifar({}, "x.bin"); },
       "x.bin: byte 0: the file must have 1 to 10000 records of 3073 bytes, got 0 bytes",
       ErrorKind::kBadFile},
      {"cut off",
       [] {
         std::vector<std::byte> bytes = records({1});
         bytes.pop_back();
         read_cifar(bytes, "x.bin");
       },
       "records of 3073 bytes, got 3072 bytes", ErrorKind::kBadFile},
      {"label",
       [] {
         read_cifar(records({1, 10}), "x.bin");
       },
       "x.bin: byte 3073: a label must be in [0, 9], got 10", ErrorKind::kBadFile},
      {"too many", [] { read_cifar(std::vector<std::byte>(10'001 * kRecord), "x.bin"); },
       "records of 3073 bytes, got 30733073 bytes", ErrorKind::kBadFile},
  });
}

TEST(Cifar, FindsAndLoadsTheFilesOfAFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "cifar_files";
  const std::filesystem::path inner = folder / "cifar-10-batches-bin";
  std::filesystem::create_directories(inner);
  expect_refused({{"no files", [&] { find_cifar(folder.string()); },
                   "must contain CIFAR-10's binary files: data_batch_1.bin", ErrorKind::kIo}});
  for (const int file : {1, 2, 3, 4, 5, 6}) {
    const std::string name =
        file == 6 ? "test_batch.bin" : "data_batch_" + std::to_string(file) + ".bin";
    const std::vector<std::byte> bytes = records({file, 0});
    std::ofstream(inner / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  const auto found = find_cifar(folder.string());
  ASSERT_EQ(found, inner.string());
  EXPECT_EQ(load_cifar(*found, Split::kTrain).labels.to_doubles(),
            (std::vector<double>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0}));
  EXPECT_EQ(load_cifar(*found, Split::kTest).labels.to_doubles(), (std::vector<double>{6, 0}));
  std::filesystem::remove_all(folder);
}

TEST(SyntheticObjects, ArePureFunctionsOfSeedAndSample) {
  const Samples few = synthetic_objects(20, 7), more = synthetic_objects(400, 7);
  EXPECT_EQ(more.images.shape(), (Shape{400, 3, 32, 32}));
  for (size_t i = 0; i < 20 * 3072; ++i)
    ASSERT_EQ(few.images.as<float>()[i], more.images.as<float>()[i]);
  EXPECT_FALSE(synthetic_objects(20, 8).images.same_bits(few.images));
  std::vector<int> counts(10);
  for (const int32_t label : more.labels.as<int32_t>()) ++counts.at(static_cast<size_t>(label));
  for (const int count : counts) EXPECT_GT(count, 20);
  expect_refused({{"none", [] { synthetic_objects(0, 1); },
                   "synthetic objects: the number of samples must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::data
