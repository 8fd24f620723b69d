#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/idx.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/files/zip_archive.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using namespace test;  // NOLINT: the files below

std::span<const std::byte> span_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

HostTensor read(const std::string& file) { return read_npy(span_of(file), "f"); }

/// Returns the rows of a dataset as one array for each field.
Element all_of(const Dataset& dataset) {
  return *dataset.batch(kForever, Remainder::kKeep).iterate().next();
}

/// A refusal of a file by a source.
Refusal refused(const std::string& name, const std::string& bytes,
                std::function<void(std::string)> read, const std::string& part,
                ErrorKind kind = ErrorKind::kBadFile) {
  return {name,
          [=] {
            const TestFile file("refused", bytes);
            read(file.path());
          },
          part, kind};
}

TEST(Npy, ReadsThreeVersionsAndEightDTypes) {
  const std::string four = bytes_of<float>({1, 2, 3, 4});
  for (const int version : {1, 2, 3}) {
    EXPECT_TRUE(read(npy("<f4", "(2, 2)", four, version))
                    .same_bits(HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4})));
  }
  EXPECT_EQ(read(npy("<f4", "()", four.substr(0, 4))).shape(), Shape{});
  EXPECT_EQ(read(npy("<f4", "(0, 3)", "")).shape(), (Shape{0, 3}));
  EXPECT_EQ(read(npy("<f4", "(4,)", four)).shape(), Shape{4});
  const std::vector<std::pair<std::string, DType>> dtypes{
      {"<f4", f32}, {"<f2", f16},     {"<i4", i32}, {"<u4", u32},
      {"|u1", u8},  {"|b1", boolean}, {"<f8", f64}, {"<i8", i64}};
  for (const auto& [descr, dtype] : dtypes) {
    const std::string payload(static_cast<size_t>(2 * size_of(dtype)), '\1');
    const HostTensor array = read(npy(descr, "(2,)", payload));
    EXPECT_EQ(array.dtype(), dtype);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(array.bytes().data()), payload.size()),
              payload);
  }
  // Any order of the keys, without a comma at the end.
  EXPECT_EQ(
      read(npy_header("{\"shape\": (1), 'fortran_order':False ,'descr': '|u1'}") + "a").shape(),
      Shape{1});
}

TEST(Npy, RefusesOtherArrays) {
  const auto bad = [](const std::string& name, const std::string& file, const std::string& part) {
    return Refusal{name, [=] { read(file); }, part, ErrorKind::kBadFile};
  };
  const auto head = [](const std::string& d) { return npy_header(d); };
  const std::string good = npy("<f4", "(2,)", "12345678");
  expect_refused({
      bad("empty", "", "f: byte 0: the magic text needs 6 bytes, 0 are left"),
      bad("magic", "PK" + good.substr(2), "f: byte 0: the file must begin with \\x93NUMPY"),
      bad("version", std::string("\x93NUMPY\x04\x00zzzz", 12),
          "byte 6: the version must be 1.0, 2.0 or 3.0, got 4.0"),
      bad("header", good.substr(0, 40), "byte 10: the header needs 118 bytes, 30 are left"),
      bad("payload", good.substr(0, good.size() - 1),
          "an array (2,) float32 needs 8 bytes, 7 are left"),
      bad("more", good + "1", "needs 8 bytes, 9 are left"),
      bad("order", head("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }"),
          "save numpy.ascontiguousarray(array)"),
      bad("order 2", head("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }"),
          "byte 44: 'fortran_order' must be True or False"),
      bad("complex", npy("<c8", "(1,)", "12345678"), "convert the array with numpy.astype"),
      bad("big-endian", npy(">f4", "(2,)", "12345678"), "little-endian, got '>f4'"),
      bad("object", npy("|O", "(1,)", "12345678"), "got '|O'"),
      bad("record", head("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
          "got 'a record'; convert"),
      bad("bool", npy("|b1", "(2,)", "\1\2"), "a bool must be 0 or 1, got 2"),
      bad("negative", npy("<f4", "(-2,)", ""), "a dimension must be a number of at least 0"),
      bad("large", npy("<f4", "(99999999999999999999,)", ""), "a dimension must fit 63 bits"),
      bad("product", npy("<f4", "(4611686018427387904, 4)", ""), "at most 2^60 elements"),
      bad("rank",
          npy("<f4", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)", "1234"),
          "the rank must be at most 32"),
      bad("claim", npy("<f4", "(1000000000000,)", "1234"), "needs 4000000000000 bytes, 4 are left"),
      bad("key", head("{'descr': '<f4', 'descr': '<f4'}"), "each once"),
      bad("no shape", head("{'descr': '<f4', 'fortran_order': False}"),
          "the header must have 'descr', 'fortran_order' and 'shape'"),
      bad("after", head("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x"),
          "must end with its dictionary"),
      bad("open", head("{'descr': '<f4"), "must end with a quote"),
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The file is sparse, and the process may not take the memory for its bytes.
TEST(Npz, RefusesAFileThatMemoryCannotHold) {
  const TestFile file("large.npz", "PK");
  std::filesystem::resize_file(file.path(), int64_t{1} << 30);
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  struct rlimit limit = before;
  limit.rlim_cur = static_cast<rlim_t>(pages * 4096 + (int64_t{64} << 20));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  expect_refused({{"large", [&] { from_npz(file.path()); },
                   "large.npz: needs 1073741824 bytes of memory, which the system refuses",
                   ErrorKind::kDoesNotFit}});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
}
#endif

TEST(Npy, WideArraysBecomeNarrow) {
  const TestFile doubles("f8.npy", npy("<f8", "(2, 1)", bytes_of<double>({0.5, 1e300 / 1e299})));
  EXPECT_TRUE(
      all_of(from_npy(doubles.path()))[0].same_bits(HostTensor::of<float>({2, 1}, f32, {0.5, 10})));
  const TestFile longs("i8.npy", npy("<i8", "(2,)", bytes_of<int64_t>({-3, 2147483647})));
  EXPECT_TRUE(all_of(from_npy(longs.path()))[0].same_bits(
      HostTensor::of<int32_t>({2}, i32, {-3, 2147483647})));
  const auto from = [](const std::string& path) { all_of(from_npy(path)); };
  expect_refused({
      refused("long", npy("<i8", "(2,)", bytes_of<int64_t>({1, int64_t{1} << 40})), from,
              "element 1 must be a whole number in [-2147483648, 2147483647], got 1099511627776"),
      refused("double", npy("<f8", "(1,)", bytes_of<double>({1e300})), from,
              "element 0 must be a number of float32's range"),
      refused("scalar", npy("<f4", "()", "1234"), from, "the array must have a first axis"),
  });
}

TEST(Npz, ReadsStoredAndDeflatedMembers) {
  const std::string x = npy("<f4", "(2, 2)", bytes_of<float>({1, 2, 3, 4}));
  const std::string y = npy("<i4", "(2,)", bytes_of<int32_t>({5, 6}));
  for (const bool is_deflated : {false, true}) {
    const TestFile file("a.npz",
                        zip_file({{"x.npy", x, is_deflated}, {"y.npy", y, is_deflated}}, "note"));
    const Element all = all_of(from_npz(file.path()));
    EXPECT_EQ(all.names, (std::vector<std::string>{"x", "y"}));
    EXPECT_TRUE(all["x"].same_bits(HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4})));
    EXPECT_TRUE(all["y"].same_bits(HostTensor::of<int32_t>({2}, i32, {5, 6})));
    EXPECT_EQ(all_of(from_npz(file.path(), {"y"})).names, std::vector<std::string>{"y"});
    const std::string large =
        zip_file({{"x.npy", x, is_deflated}, {"y.npy", y, is_deflated}}, "", Zip64::kYes);
    const TestFile zip64("b.npz", deflated(large, 31));  // Also in gzip.
    EXPECT_TRUE(all_of(from_npz(zip64.path()))["y"].same_bits(all["y"]));
  }
}

TEST(Npz, RefusesDamagedArchives) {
  const std::string x = npy("<f4", "(2,)", "12345678");
  const std::string y = npy("<f4", "(3,)", "123456789012");
  const auto from = [](const std::string& path) { from_npz(path); };
  const auto archive = [&](Member m) { return zip_file({std::move(m)}); };
  std::string flipped = zip_file({{"x.npy", x}});
  flipped[60 + 118] ^= 1;
  std::string shared = zip_file({{"x.npy", x}, {"y.npy", x, false, -1, -1, 0}});
  expect_refused({
      refused("empty", "", from, "must be a zip archive"),
      refused("not zip", x, from, "must be a zip archive"),
      refused("no arrays", zip_file({}), from, "must have at least one array, got none"),
      refused("name", archive({"x.txt", x}), from, "the name of a member must end with .npy"),
      refused("control", archive({"x\n.npy", x}), from, "control characters"),
      refused("twice", zip_file({{"x.npy", x}, {"x.npy", x}}), from, "must not appear twice"),
      refused("encrypted", archive({"x.npy", x, false, -1, -1, -1, 1}), from,
              "must not be encrypted"),
      refused("method", archive({"x.npy", x, false, -1, -1, -1, 0, 12}), from,
              "stored (0) or deflated (8), got method 12"),
      refused("stored claim", archive({"x.npy", x, false, 1 << 30, 1 << 30}), from,
              "must not share bytes"),
      refused("small claim", archive({"x.npy", x, false, 140, 140}), from,
              "a member needs 140 bytes, 136 are left before"),
      refused("bomb", archive({"x.npy", x, true, 1 << 30}), from,
              "cannot hold 1073741824 bytes when it is deflated"),
      refused("size", archive({"x.npy", x, true, 500}), from, "a member must have 500 bytes"),
      refused("less", archive({"x.npy", x, true, 100}), from, "holds more than its header says"),
      refused("mismatch", archive({"x.npy", x, false, 100}), from,
              "cannot hold 100 bytes when it is stored"),
      refused("zip64", archive({"x.npy", x, false, 0xffffffff, 0xffffffff}), from,
              "must have the extra field of ZIP64"),
      refused("begin", archive({"x.npy", x, false, -1, -1, 5}), from,
              "a local header must begin here"),
      refused("far", archive({"x.npy", x, false, -1, -1, 1 << 30}), from,
              "a local header needs 1073741824 bytes"),
      refused("shared", shared, from, "a local header must match its entry"),
      refused("checksum", flipped, from, "with checksum"),
      refused("rows", zip_file({{"x.npy", x}, {"y.npy", y}}), from,
              "field 'y' must have 2 rows like field 'x', got (3,)"),
      refused("array", archive({"x.npy", x.substr(0, 100)}), from,
              "(x.npy): byte 10: the header needs"),
      refused(
          "field", archive({"x.npy", x}),
          [](const std::string& path) {
            from_npz(path, {"x", "z"});
          },
          "the field must be one of [x], got 'z'", ErrorKind::kUsage),
  });
}

TEST(Safetensors, ReadsFieldsByName) {
  const std::vector<NamedArray> arrays{{"image", filled({3, 2}, 2)},
                                       {"label", HostTensor::of<int64_t>({3}, i64, {1, 2, 3})}};
  const std::vector<std::byte> bytes = write_safetensors(arrays);
  const TestFile file("a.safetensors", bytes);
  const Element all = all_of(from_safetensors(file.path(), {"label", "image"}));
  EXPECT_EQ(all.names, (std::vector<std::string>{"label", "image"}));
  EXPECT_TRUE(all["label"].same_bits(HostTensor::of<int32_t>({3}, i32, {1, 2, 3})));
  EXPECT_TRUE(all["image"].same_bits(arrays[0].array));
  expect_refused({
      {"field", [&] { from_safetensors(file.path(), {"x"}); },
       "must be one of [label, image], got 'x'"},
      {"missing", [] { from_safetensors("/no/such/file"); }, "/no/such/file", ErrorKind::kIo},
      refused(
          "empty", "", [](const std::string& path) { from_safetensors(path); }, "byte 0"),
  });
}

TEST(Safetensors, TensorsOfOtherDTypesDoNotMatterUntilTheyAreAskedFor) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("q":{"dtype":"I8","shape":[4],"data_offsets":[8,12]},)"
                             R"("f":{"dtype":"F4","shape":[2,4],"data_offsets":[12,16]}})";
  std::string bytes;
  put_le(bytes, header.size(), 8);
  bytes += header + std::string(16, '\0');
  for (const std::string& stored : {bytes, deflated(bytes, 31)}) {
    const TestFile file("i8.safetensors", stored);
    EXPECT_EQ(all_of(from_safetensors(file.path(), {"x"}))["x"].shape(), Shape{2});
    const auto asks = [&](std::vector<std::string> fields) {
      return [&file, fields] { from_safetensors(file.path(), fields); };
    };
    expect_refused({{"asked", asks({"x", "q"}), "tensor 'q': the dtype must be one of F32",
                     ErrorKind::kBadFile},
                    {"all", asks({}), "got I8; convert it", ErrorKind::kBadFile},
                    {"absent", asks({"z"}), "the field must be one of [x], got 'z'"}});
  }
  const auto from = [](const std::string& path) { from_safetensors(path, {"x"}); };
  const size_t at = bytes.find("\"shape\":[4]");
  expect_refused({refused("size", bytes.replace(at, 11, "\"shape\":[5]"), from,
                          "tensor 'q': data_offsets must span 5 bytes, got 4"),
                  refused("html", "<html><body>", from, "must be a safetensors file, got an HTML"),
                  refused("lfs", "version https://git-lfs.github.com/spec/v1\noid", from,
                          "got a Git LFS pointer; fetch the file itself with git lfs pull")});
}

TEST(Idx, ReadsPlainAndGzipFilesOfAnySize) {
  const std::string images = idx({2, 1, 3}, std::string("\x00\x7f\xff\x01\x02\x03", 6));
  const TestFile plain("images", images);
  // Two members, then padding.
  const TestFile packed("images.gz", deflated(images.substr(0, 9), 31) +
                                         deflated(images.substr(9), 31) + std::string(9, '\0'));
  const TestFile labels("labels", idx({2}, "\4\5"));
  const HostTensor raw = HostTensor::of<uint8_t>({2, 1, 3}, u8, {0, 127, 255, 1, 2, 3});
  for (const auto& path : {plain.path(), packed.path()}) {
    const Element all = all_of(from_idx(path, labels.path(), IdxPixels::kRaw));
    EXPECT_TRUE(all["image"].same_bits(raw));
    EXPECT_TRUE(all["label"].same_bits(HostTensor::of<int32_t>({2}, i32, {4, 5})));
    const HostTensor grey = all_of(from_idx(path, labels.path()))["image"];
    EXPECT_EQ(grey.as<float>()[2], normalised_pixel(255));
  }
  const auto from = [&](const std::string& path) { from_idx(path, labels.path()); };
  expect_refused({
      refused("empty", "", from, "byte 0: the magic number needs 4 bytes"),
      refused("magic", "PK\3\4", from,
              "byte 4: the magic number must be in [0x00000801, 0x00000808]"),
      refused("rank 0", std::string("\0\0\x08\0", 4), from, "bytes of rank 1 to 8, got 0x00000800"),
      refused("zero", idx({2, 0}, ""), from, "a dimension must be at least 1, got 0"),
      refused("short", idx({2, 3}, "12345"), from, "an array (2, 3) needs 6 bytes, 5 are left"),
      refused("claim", idx({0xffffffff, 0xffffffff}, ""), from, "at most 63 bits"),
      refused("bomb", deflated(idx({0xffffffff}, ""), 31), from,
              "more than 26 bytes of gzip can hold"),
      refused("cut off", deflated(images, 31).substr(0, 20), from, "the gzip stream is cut off"),
      refused("numbers", idx({3, 1}, "123"), from, "must have one label for each of 3 images"),
      {"folder", [] { from_idx("/no/such/folder", Split::kTest); }, "MNIST's files",
       ErrorKind::kIo},
  });
}

}  // namespace
}  // namespace sluice::data
