// Arrays that stay in their files: they equal arrays in memory, and memory stays bounded.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/loader.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/test_allocations.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/window/file_window.h"

namespace sluice::data {
namespace {

using namespace test;  // NOLINT: the files below

constexpr int64_t kBlock = WindowMemory::kMaxBlockBytes;

/// An array whose values differ from element to element.
HostTensor numbered(Shape shape, DType dtype) {
  HostTensor array({std::move(shape), dtype, {}});
  uint32_t next = 12345;
  for (std::byte& b : array.bytes()) {
    next = next * 1664525 + 1013904223;
    b = static_cast<std::byte>(dtype == boolean ? next >> 31 : next >> 24);
  }
  if (dtype == f64) {
    for (double& x : array.as<double>()) x = static_cast<double>(next = next * 1664525 + 1) / 7;
  }
  if (dtype == i64) {
    for (int64_t& x : array.as<int64_t>()) x = static_cast<int32_t>(next = next * 1664525 + 1);
  }
  return array;
}

HostTensor narrow_of(const HostTensor& array) {
  if (array.dtype() == f64) return array.cast(f32);
  return array.dtype() == i64 ? array.cast(i32) : array;
}

bool are_equal(const Element& a, const Element& b) {
  if (a.names != b.names || a.arrays.size() != b.arrays.size()) return false;
  for (size_t i = 0; i < a.arrays.size(); ++i) {
    if (!a.arrays[i].same_bits(b.arrays[i])) return false;
  }
  return true;
}

void expect_equal(const Dataset& found, const Dataset& expected) {
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_EQ(found.element_specs(), expected.element_specs());
  Iterator a = found.iterate(), b = expected.iterate();
  while (const std::optional<Element> e = b.next()) {
    const std::optional<Element> f = a.next();
    ASSERT_TRUE(f && are_equal(*f, *e)) << "element " << b.position() - 1;
  }
  EXPECT_FALSE(a.next());
  if (expected.size() == 0 || expected.element_specs()->arrays.back().elements() == 0) return;
  for (const int workers : {0, 4}) {
    BatchLoader one(found, {.batch = 3, .seed = 5, .workers = workers});
    BatchLoader two(expected, {.batch = 3, .seed = 5});
    while (const Element* e = two.next()) {
      const Element* const f = one.next();
      ASSERT_TRUE(f != nullptr && are_equal(*f, *e)) << "item " << two.position() - 1;
    }
  }
}

TEST(FileRows, EqualArraysInMemory) {
  // Rows of several sizes, within a block, across blocks and larger than a block; several dtypes.
  const struct {
    Shape shape;
    DType dtype;
  } cases[] = {{{9000}, i64},      {{700, 333}, f32},    {{5, 70000}, f32}, {{40, 2500}, f64},
               {{300, 0}, f32},    {{0, 4}, i32},        {{5000, 3}, u8},   {{3000, 7}, boolean},
               {{100, 1000}, f16}, {{60, 30, 100}, bf16}};
  std::vector<NamedArray> all;
  for (const auto& c : cases) {
    const HostTensor array = numbered(c.shape, c.dtype);
    if (c.dtype != bf16) {
      const std::string bytes(reinterpret_cast<const char*>(array.bytes().data()),
                              array.bytes().size());
      const std::string header = data::npy_header(TensorSpec{c.shape, c.dtype, {}});
      const TestFile file("rows.npy", header + bytes);
      expect_equal(from_npy(file.path()), from_tensors(narrow_of(array)));
    }
    const TestFile tensors("rows.safetensors",
                           write_safetensors(std::vector<NamedArray>{
                               {"x", array}, {"y", numbered({c.shape[0], 2}, i64)}}));
    expect_equal(
        from_safetensors(tensors.path(), {"y", "x"}),
        from_tensors({{"y", narrow_of(numbered({c.shape[0], 2}, i64))}, {"x", narrow_of(array)}}));
  }
}

TEST(FileRows, IdxFilesEqualTheirGzipFiles) {
  std::string pixels(600 * 28 * 28, '\0'), classes(600, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i * 7 + i / 251);
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<char>(i % 10);
  const std::string image_bytes = idx({600, 28, 28}, pixels), label_bytes = idx({600}, classes);
  const TestFile images("images", image_bytes), labels("labels", label_bytes);
  const TestFile images_gz("images.gz", deflated(image_bytes, 31));
  const TestFile labels_gz("labels.gz", deflated(label_bytes, 31));
  for (const IdxPixels how : {IdxPixels::kNormalised, IdxPixels::kRaw}) {
    const Dataset packed = from_idx(images_gz.path(), labels_gz.path(), how);
    expect_equal(from_idx(images.path(), labels.path(), how), packed);
    expect_equal(from_idx(images.path(), labels_gz.path(), how), packed);
  }
}

TEST(FileRows, ThreadsShareAWindow) {
  const HostTensor array = numbered({2000, 1000}, f32);  // 8 MB: more than the blocks hold.
  const TestFile file("threads.safetensors",
                      write_safetensors(std::vector<NamedArray>{{"x", array}}));
  const Dataset rows = from_safetensors(file.path());
  std::atomic<int64_t> wrong{0};
  const auto read = [&](uint64_t pass) {
    std::vector<uint32_t> order(2000);
    std::iota(order.begin(), order.end(), 0u);
    if (pass % 2 == 1) shuffled_order(pass, 0, order);
    for (const uint32_t k : order) {
      const Element e = rows.node()->at(k, 0);
      if (std::memcmp(e[0].bytes().data(), array.bytes().data() + size_t{k} * 4000, 4000) != 0)
        ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(read, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(FileRows, AFileThatChangesIsRefused) {
  const std::string bytes = npy("<f4", "(1000, 1000)", std::string(4000000, 'a'));
  const auto expect_error = [](const Dataset& rows, const std::string& part) {
    expect_refused({{"changed", [&] { rows.node()->at(500, 0); }, part, ErrorKind::kBadFile}});
  };
  const TestFile cut("cut.npy", bytes);
  const Dataset rows = from_npy(cut.path());
  EXPECT_EQ(rows.node()->at(0, 0)[0].elements(), 1000);
  std::filesystem::resize_file(cut.path(), 1000);
  expect_error(rows,
               "cut.npy: byte 2000128: the file must not change while it is read, got 1000 "
               "bytes instead of 4000128");

  const TestFile written("written.npy", bytes);
  const Dataset old = from_npy(written.path());
  EXPECT_EQ(old.node()->at(0, 0)[0].elements(), 1000);
  std::fstream(written.path(), std::ios::in | std::ios::out | std::ios::binary) << "x";
  const auto time = std::filesystem::last_write_time(written.path());
  std::filesystem::last_write_time(written.path(), time + std::chrono::seconds(1));
  expect_error(old,
               "written.npy: byte 2000128: the file must not change while it is read, got "
               "other contents of the same size");
}

TEST(FileRows, ARowAllocatesItsOwnBytes) {
  const TestFile file("row.npy", npy("<f8", "(3000, 1000)", std::string(24000000, '\0')));
  const Dataset rows = from_npy(file.path());
  BatchLoader loader(rows, {.batch = 1, .seed = 1});
  loader.next();
  largest_allocation = 0;
  for (int i = 0; i < 100; ++i) loader.next();
  EXPECT_LE(largest_allocation, 2 * kBlock);
  const int64_t before = allocations;
  for (int i = 0; i < 100; ++i) loader.next();
  EXPECT_LE(allocations - before, 16 * WindowMemory::kMaxBlocks);
}

int64_t peak_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(FileRows, AFileOfFourGigabytesIsReadInBoundedMemory) {
  const TestFile file("four.npy", data::npy_header(f32_spec({1048576, 1024})));
  const auto header = static_cast<int64_t>(std::filesystem::file_size(file.path()));
  std::filesystem::resize_file(file.path(), header + (int64_t{4} << 30));
  const int64_t before = peak_kilobytes();
  ASSERT_GT(before, 0);
  const Dataset rows = from_npy(file.path());
  EXPECT_EQ(rows.size(), 1048576);
  // The last rows in order, then rows in a random order.
  for (int64_t k = 1000000; k < 1048576; ++k) ASSERT_EQ(rows.node()->at(k, 0)[0].elements(), 1024);
  BatchLoader loader(rows, {.batch = 64, .seed = 3, .workers = 2});
  for (int i = 0; i < 1000; ++i) ASSERT_NE(loader.next(), nullptr);
  EXPECT_LE(peak_kilobytes() - before, 24 << 10);  // 4 MiB are the order of the loader.
}
#endif

}  // namespace
}  // namespace sluice::data
