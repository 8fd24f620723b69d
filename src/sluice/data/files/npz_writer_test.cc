#include <gtest/gtest.h>

#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::TestFile;

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = sys::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(NpzWriter, WritesWhatTheReaderReads) {
  const TestFile file("written.npz", "an older file");
  const std::vector<NamedArray> arrays{
      {"logits", HostTensor::of<float>({2, 3}, f32, {1, -2, 0.5, 1e-40F, 4, 5})},
      {"class", HostTensor::of<int32_t>({2}, i32, {2, 1})},
      {"half", HostTensor::of<float>({2, 1, 1}, f32, {0.5, 2}).cast(f16)},
      {"none", HostTensor({{2, 0}, f32, {}})},
      {"yes", HostTensor::of<float>({2}, f32, {0, 1}).cast(boolean)}};
  write_npz(file.path(), arrays);
  const Element all = *from_npz(file.path()).batch(2).iterate().next();
  ASSERT_EQ(all.names.size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(all.names[i], arrays[i].name);
    EXPECT_TRUE(all.arrays[i].same_bits(arrays[i].array)) << arrays[i].name;
  }
  const std::string first = text_of(file.path());
  write_npz(file.path(), arrays);
  EXPECT_EQ(text_of(file.path()), first);
}

// The bytes of an array are those that numpy.save writes: the header is padded to 64 bytes.
TEST(NpzWriter, WritesTheHeaderOfNumPy) {
  const TestFile file("one.npz", "");
  write_npz(file.path(),
            std::vector<NamedArray>{{"x", HostTensor::of<float>({3}, f32, {1, 2, 3})}});
  const std::string bytes = text_of(file.path());
  const std::string array = test::npy("<f4", "(3,)", test::bytes_of<float>({1, 2, 3}));
  EXPECT_EQ(bytes.substr(30, 5 + array.size()), "x.npy" + array);
  EXPECT_EQ(bytes.size(), 30 + 5 + array.size() + 46 + 5 + 22);
}

TEST(NpzWriter, RefusesOtherArraysAndLeavesTheFile) {
  const TestFile file("kept.npz", "an older file");
  const HostTensor x = HostTensor::of<float>({1}, f32, {1});
  const auto write = [&](std::vector<NamedArray> arrays) {
    return [&file, arrays = std::move(arrays)] { write_npz(file.path(), arrays); };
  };
  expect_refused({
      {"twice", write({{"x", x}, {"x", x}}), "arrays must have different names, got 'x' twice"},
      {"empty", write({{"", x}}), "arrays must have different names, got ''"},
      {"bf16", write({{"x", x}, {"y", x.cast(bf16)}}),
       "npy: the dtype must be one that NumPy has, got bfloat16; cast it to f32"},
      {"folder",
       [&] {
         write_npz("/nosuch/x.npz", std::vector<NamedArray>{{"x", x}});
       },
       "/nosuch/x.npz", ErrorKind::kIo},
  });
  EXPECT_EQ(text_of(file.path()), "an older file");
}

}  // namespace
}  // namespace sluice::data
