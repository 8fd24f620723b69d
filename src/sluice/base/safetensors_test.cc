#include "sluice/base/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "sluice/base/sys.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

/// Builds a file from its header and data: the header's length, the header, the data.
Bytes file_of(std::string_view header, std::string_view data) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return bytes_of(text + std::string(header) + std::string(data));
}

/// Returns "" if `bytes` are accepted, or else the message of the Error{kBadFile}. The test fails
/// if another error is thrown.
std::string refusal(std::span<const std::byte> bytes) {
  try {
    read_safetensors(bytes, "f.safetensors");
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
    EXPECT_TRUE(std::string_view(e.what()).starts_with("f.safetensors: byte ")) << e.what();
    return e.what();
  }
}

/// Arrays that use most features of the format.
std::vector<NamedArray> sample() {
  std::vector<NamedArray> arrays;
  arrays.push_back({"w", HostTensor::of<float>({2, 2}, f32, {1, 2, 3, 4})});
  arrays.push_back({"é\"\\\n", HostTensor::of<int32_t>({}, i32, {-7})});
  arrays.push_back({"mask", HostTensor::of<bool>({3}, boolean, {true, false, true})});
  arrays.push_back({"empty", HostTensor(TensorSpec{{4, 0}, f16, {}})});
  return arrays;
}

TEST(Safetensors, ReadsTheFormatByteForByte) {
  const Bytes file = file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
      std::string_view("\x80\x3f\0\0\x80\x3f\0\0\0\xc0", 10));
  SafetensorsMetadata metadata;
  const auto arrays = read_safetensors(file, "f", &metadata);
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].name, "b");
  EXPECT_TRUE(arrays[0].array.same_bits(HostTensor::of<float>({1, 2}, f32, {1, -2})));
  EXPECT_EQ(arrays[1].name, "a");
  EXPECT_TRUE(arrays[1].array.same_bits(HostTensor::of<uint16_t>({}, bf16, {0x3f80})));
  EXPECT_EQ(metadata, (SafetensorsMetadata{{"format", "pt"}}));
}

TEST(Safetensors, WritesTheFormatByteForByte) {
  std::vector<NamedArray> arrays;
  arrays.push_back({"u", HostTensor::of<uint8_t>({3}, u8, {1, 2, 3})});
  arrays.push_back({"w", HostTensor::of<float>({1}, f32, {1})});
  const std::string header =
      R"({"__metadata__":{"step":"5"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("u":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(write_safetensors(arrays, {{"step", "5"}}),
            file_of(padded, std::string_view("\0\0\x80\x3f\1\2\3", 7)));
}

TEST(Safetensors, EveryDTypeShapeAndNameSurvives) {
  std::vector<NamedArray> arrays = sample();
  for (const DType dtype : {f32, f16, bf16, i32, u32, u8, boolean, f64, i64}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0, 5}, Shape{2, 1, 3}}) {
      HostTensor array(TensorSpec{shape, dtype, {}});
      uint8_t next = 0;
      for (std::byte& b : array.bytes()) b = std::byte(dtype == boolean ? next++ & 1 : next++);
      arrays.push_back({fmt::format("{}{}", name_of(dtype), to_string(shape)), std::move(array)});
    }
  }
  arrays.push_back({"", HostTensor::scalar(std::numeric_limits<float>::quiet_NaN())});
  const SafetensorsMetadata metadata{{"a", ""}, {"b", "\"quoted\" ü"}};
  SafetensorsMetadata metadata_read;
  const auto read = read_safetensors(write_safetensors(arrays, metadata), "f", &metadata_read);
  EXPECT_EQ(metadata_read, metadata);
  ASSERT_EQ(read.size(), arrays.size());
  for (const NamedArray& a : arrays) {
    const auto same =
        std::find_if(read.begin(), read.end(), [&](const auto& b) { return a.name == b.name; });
    ASSERT_NE(same, read.end()) << a.name;
    EXPECT_TRUE(same->array.same_bits(a.array)) << a.name;
  }
}

TEST(Safetensors, BytesDependOnContentsNotOnOrder) {
  std::vector<NamedArray> arrays = sample();
  const Bytes once = write_safetensors(arrays);
  std::reverse(arrays.begin(), arrays.end());
  EXPECT_EQ(write_safetensors(arrays), once);
}

TEST(Safetensors, NoTensorsIsAFile) {
  EXPECT_EQ(refusal(file_of("{}", "")), "");
  EXPECT_TRUE(read_safetensors(write_safetensors({}), "f").empty());
}

TEST(Safetensors, IndexSaysWhereTensorsLie) {
  const Bytes file = write_safetensors(sample());
  const auto head = std::span(file).first(file.size() - 3);  // The index does not need all data.
  const SafetensorsIndex index =
      read_safetensors_index(head, static_cast<int64_t>(file.size()), "f");
  for (const SafetensorsTensor& tensor : index.tensors) {
    if (tensor.name != "w") continue;
    EXPECT_EQ(tensor.spec, (TensorSpec{{2, 2}, f32, {}}));
    float first = 0;
    std::memcpy(&first, file.data() + tensor.offset, sizeof first);
    EXPECT_EQ(first, 1.0f);
    EXPECT_EQ(tensor.offset % 4, 0);
    return;
  }
  FAIL() << "no tensor for w";
}

TEST(Safetensors, FilesAreReplacedAndReadBack) {
  const std::string path = fmt::format("{}/sluice_safetensors_{}", testing::TempDir(), ::getpid());
  write_safetensors_file(path, sample(), {{"k", "v"}});
  write_safetensors_file(path, sample());
  SafetensorsMetadata metadata{{"old", "x"}};
  const auto read = read_safetensors_file(path, &metadata);
  const auto expected = read_safetensors(write_safetensors(sample()), "f");
  ASSERT_EQ(read.size(), expected.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].name, expected[i].name);
    EXPECT_TRUE(read[i].array.same_bits(expected[i].array));
  }
  EXPECT_TRUE(metadata.empty());

  // Every shorter version of the file must be rejected.
  const Bytes whole = sys::read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    sys::replace_file(path, std::span(whole).first(size));
    try {
      read_safetensors_file(path);
      ADD_FAILURE() << "a file cut at " << size << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
    }
  }
  ::unlink(path.c_str());
  EXPECT_THROW(read_safetensors_file(path), Error);
}

TEST(Safetensors, PartsMakeTheFileOfTheWhole) {
  std::vector<NamedArray> arrays = sample();
  arrays.push_back({"wide", HostTensor(TensorSpec{{600, 1001}, f32, {}})});
  arrays.push_back({"flags", HostTensor(TensorSpec{{(1 << 20) + 9}, boolean, {}})});
  for (NamedArray& a : arrays) {
    for (size_t i = 0; i < a.array.bytes().size(); ++i)
      a.array.bytes()[i] = static_cast<std::byte>(a.name == "wide" ? i % 251 : i % 2);
  }
  std::vector<NamedSpec> specs;
  for (const NamedArray& a : arrays) specs.push_back({a.name, a.array.spec()});
  const std::string path = testing::TempDir() + "parts" + std::to_string(::getpid());
  size_t max = 0;
  const auto source = [&](size_t i, int64_t offset, std::span<std::byte> out) {
    max = std::max(max, out.size());
    std::copy_n(arrays[i].array.bytes().data() + offset, out.size(), out.begin());
  };
  write_safetensors_file(path, specs, source, {{"k", "v"}});
  EXPECT_EQ(sys::read_file(path), write_safetensors(arrays, {{"k", "v"}}));
  EXPECT_EQ(max, size_t{1} << 20);

  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.index().metadata, (SafetensorsMetadata{{"k", "v"}}));
  ASSERT_EQ(reader.index().tensors.size(), arrays.size());
  for (const SafetensorsTensor& tensor : reader.index().tensors) {
    const auto a = std::find_if(arrays.begin(), arrays.end(),
                                [&](const NamedArray& x) { return x.name == tensor.name; });
    const int64_t width = size_of(tensor.spec.dtype);
    const int64_t first = tensor.spec.elements() / 3;
    Bytes part(static_cast<size_t>((tensor.spec.elements() - first) * width));
    reader.read(tensor, first * width, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), a->array.bytes().begin() + first * width));
  }

  // A failing write leaves the old file unchanged.
  const Bytes before = sys::read_file(path);
  const auto fails = [&](size_t, int64_t, std::span<std::byte>) { fail(ErrorKind::kIo, "no"); };
  EXPECT_THROW(write_safetensors_file(path, specs, fails), Error);
  arrays.back().array.bytes()[(1 << 20) + 3] = std::byte{2};
  EXPECT_THROW(write_safetensors_file(path, specs, source), Error);
  EXPECT_EQ(sys::read_file(path), before);
  const std::filesystem::path file(path);
  for (const auto& other : std::filesystem::directory_iterator(file.parent_path()))
    EXPECT_FALSE(other.path().filename().string().starts_with(file.filename().string() + "."));
  ::unlink(path.c_str());
}

TEST(Safetensors, WriterRefusesWhatItCouldNotReadBack) {
  const auto refused = [](std::vector<NamedArray> arrays,
                          const SafetensorsMetadata& metadata = {}) {
    try {
      write_safetensors(arrays, metadata);
      return false;
    } catch (const Error& e) {
      return e.kind() == ErrorKind::kUsage;
    }
  };
  std::vector<NamedArray> twice;
  twice.push_back({"a", HostTensor::scalar(1)});
  twice.push_back({"a", HostTensor::of<uint8_t>({1}, u8, {1})});
  EXPECT_TRUE(refused(twice));
  EXPECT_TRUE(refused({{"__metadata__", HostTensor::scalar(1)}}));
  EXPECT_TRUE(refused({{"\xff", HostTensor::scalar(1)}}));
  EXPECT_TRUE(refused({}, {{"k", "\xc0\x80"}}));
  HostTensor odd(TensorSpec{{1}, boolean, {}});
  odd.bytes()[0] = std::byte{2};
  EXPECT_TRUE(refused({{"odd", odd}}));
}

struct BadHeader {
  std::string header;
  int64_t data_bytes;
  std::string message;  ///< Part of the error message.
};

void expect_bad_headers(const std::vector<BadHeader>& corpus) {
  for (const BadHeader& bad : corpus) {
    const std::string message =
        refusal(file_of(bad.header, std::string(static_cast<size_t>(bad.data_bytes), '\0')));
    EXPECT_NE(message.find(bad.message), message.npos)
        << "header: " << bad.header.substr(0, 120) << "\nrefusal: " << message
        << "\nexpected: " << bad.message;
  }
}

const std::string kX = R"("x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";

TEST(Safetensors, HeadersThatAreNotJsonAreRefusedWithTheReason) {
  expect_bad_headers({
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"\xef\xbb\xbf{}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{", 0, "not valid JSON"},
      {"{}}", 0, "not valid JSON"},
      {"{} x", 0, "not valid JSON"},
      {"{" + kX + ",}", 4, "not valid JSON"},
      {"{'x':{}}", 0, "not valid JSON"},
      {"{/**/}", 0, "not valid JSON"},
      {std::string("{}\0", 3), 0, "a NUL"},
      {std::string("{}\0{", 4), 0, "a NUL"},
      {"{" + kX.substr(0, 20), 4, "not valid JSON"},
      {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
      {"{\"\xc0\xaf\":{}}", 0, "not valid JSON"},
      {"{\"\\ud800\":{}}", 0, "not valid JSON"},
      {"{\"\n\":{}}", 0, "not valid JSON"},
      {"{" + kX + "," + kX + "}", 4, "'x' appears twice"},
      {"{" + kX + ",\"\\u0078\":{}}", 4, "'x' appears twice"},
  });
}

TEST(Safetensors, HeadersOfOtherFieldsAreRefusedWithTheReason) {
  const std::string deep(100'000, '[');
  expect_bad_headers({
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "'a' appears twice in the metadata"},
      {R"({"__metadata__":{"a":1}})", 0, "must be a string, got a number"},
      {R"({"__metadata__":{"a":{}}})", 0, "must be a string, got an object"},
      {R"({"__metadata__":{"a":null}})", 0, "must be a string, got null"},
      {R"({"__metadata__":"a"})", 0, "must be an object, got a string"},
      {R"({"__metadata__":[]})", 0, "must be an object, got an array"},
      {R"({"x":1})", 0, "must be an object, got a number"},
      {R"({"x":true})", 0, "must be an object, got a boolean"},
      {R"({"x":)" + deep, 0, "must be an object, got an array"},
      {R"({"x":{}})", 0, "'x' has no dtype"},
      {R"({"x":{"dtype":"U8","shape":[4]}})", 4, "'x' has no data_offsets"},
      {R"({"x":{"dtype":"U8","data_offsets":[0,4]}})", 4, "'x' has no shape"},
      {R"({"x":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
       "the field 'dtype' twice"},
      {R"({"x":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", 4,
       "the field 'shape' twice"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4,
       "the field 'data_offsets' twice"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"more":1}})", 4,
       "unknown field 'more'"},
      {R"({"x":{"dtype":"Q8","shape":[4],"data_offsets":[0,4]}})", 4, "dtype 'Q8' is not one of"},
      {R"({"x":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "dtype 'f32' is not one of"},
      {R"({"x":{"dtype":1,"shape":[4],"data_offsets":[0,4]}})", 4,
       "must be a string, got a number"},
      {R"({"x":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})", 4,
       "must be an array, got a number"},
      {R"({"x":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}})", 4,
       "must be an unsigned integer, got a string"},
      {R"({"x":{"dtype":"U8","shape":[[4]],"data_offsets":[0,4]}})", 4,
       "must be an unsigned integer, got an array"},
      {R"({"x":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "got a negative number"},
      {R"({"x":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}})", 0, "got a negative number"},
      {R"({"x":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}})", 4,
       "not a 64-bit unsigned integer"},
      {R"({"x":{"dtype":"U8","shape":[4e0],"data_offsets":[0,4]}})", 4,
       "not a 64-bit unsigned integer"},
      {R"({"x":{"dtype":"U8","shape":[1e400],"data_offsets":[0,4]}})", 4, "not valid JSON"},
  });
}

TEST(Safetensors, HeadersOfWrongSizesAndPlacesAreRefusedWithTheReason) {
  expect_bad_headers({
      {R"({"x":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]}})", 4,
       "not a 64-bit unsigned"},
      {R"({"x":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4,
       "exceeds 63 bits"},
      {R"({"x":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "exceeds 63 bits"},
      {R"({"x":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "exceeds 63 bits"},
      {R"({"x":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "exceeds 63 bits"},
      {R"({"x":{"dtype":"U8","shape":[5],"data_offsets":[0,4]}})", 4, "must span 5 bytes, got 4"},
      {R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,4]}})", 4, "must span 3 bytes, got 4"},
      {R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,4]}})", 4, "must span 0 bytes, got 4"},
      {R"({"x":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", 4, "must span 16 bytes, got 4"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[]}})", 4, "needs two numbers"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0]}})", 4, "needs two numbers"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", 4, "more than two numbers"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[-1,3]}})", 4, "got a negative number"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4,
       "must be in [0, 4], got [4, 0)"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]}})", 4,
       "exceeds 63 bits"},
      {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[9223372036854775803,9223372036854775807]}})",
       4, "data_offsets must be in"},
      {"{" + kX + "}", 3, "must be in [0, 3], got [0, 4)"},
      {"{" + kX + "}", 5, "must cover all 5 data bytes, got 4"},
      {"{}", 1, "must cover all 1 data bytes, got 0"},
      {R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4,
       "must begin at data byte 0, got 1 (hole)"},
      {"{" + kX + R"(,"y":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5,
       "must begin at data byte 4, got 3 (overlap)"},
      {"{" + kX + R"(,"y":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
       "must begin at data byte 4, got 0 (overlap)"},
      {"{" + kX + R"(,"y":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})", 6,
       "must begin at data byte 4, got 5 (hole)"},
      {"{" + kX + R"(,"y":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 4,
       "must begin at data byte 4, got 2 (overlap)"},
  });
}

TEST(Safetensors, RankIsCapped) {
  const auto header = [](size_t rank) {
    std::string dims = "1";
    for (size_t i = 1; i < rank; ++i) dims += ",1";
    return fmt::format(R"({{"x":{{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}}}})", dims);
  };
  EXPECT_EQ(refusal(file_of(header(64), "a")), "");
  EXPECT_NE(refusal(file_of(header(65), "a")).find("more than 64 dimensions"), std::string::npos);
}

TEST(Safetensors, BoolsAreZeroOrOne) {
  const std::string header = R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})";
  EXPECT_EQ(refusal(file_of(header, std::string_view("\1\0", 2))), "");
  EXPECT_EQ(
      refusal(file_of(header, "\1\2")),
      fmt::format("f.safetensors: byte {}: a bool must be 0 or 1, got 2", 8 + header.size() + 1));
}

TEST(Safetensors, LengthsThatLieAreRefused) {
  const Bytes good = write_safetensors(sample());
  const auto with_length = [&](uint64_t n) {
    Bytes file = good;
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>(n >> (8 * i));
    return refusal(file);
  };
  for (const uint64_t n :
       {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63, uint64_t{100'000'001}}) {
    EXPECT_NE(with_length(n).find("must have at most 100000000 bytes"), std::string::npos) << n;
  }
  EXPECT_NE(with_length(100'000'000).find("are left in the file"), std::string::npos);
  EXPECT_NE(with_length(good.size() - 7).find("are left in the file"), std::string::npos);
  EXPECT_NE(with_length(0), "");
}

TEST(Safetensors, ErrorsNameTheByte) {
  EXPECT_EQ(refusal(file_of(R"({"x":{"dtype":"Q8"}})", "")).substr(0, 24),
            "f.safetensors: byte 26: ");
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const Bytes good = write_safetensors(sample(), {{"k", "v"}});
  ASSERT_EQ(refusal(good), "");
  for (size_t size = 0; size < good.size(); ++size) {
    // Copy the bytes into their own allocation, so that a sanitizer detects a read past the end.
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(refusal(cut), "") << size;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(longer), "");
}

TEST(Safetensors, EveryByteFlippedIsReadOrRefused) {
  const Bytes good = write_safetensors(sample(), {{"k", "v"}});
  int accepted = 0;
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      Bytes file = good;
      file[i] ^= std::byte{flip};
      ++(refusal(file).empty() ? accepted : refused);
    }
  }
  EXPECT_GT(accepted, 0);  // Some changes to numbers and names are valid.
  EXPECT_GT(refused, accepted);
}

}  // namespace
}  // namespace sluice
