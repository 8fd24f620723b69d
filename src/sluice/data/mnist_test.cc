#include "sluice/data/mnist.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <zlib.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/test_allocations.h"

namespace sluice::data {
namespace {

using Bytes = std::vector<std::byte>;

void put_u32(Bytes& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    out.push_back(static_cast<std::byte>(value >> shift));
}

Bytes idx(const std::vector<uint32_t>& header, int64_t payload, std::byte value = std::byte{7}) {
  Bytes out;
  for (const uint32_t word : header) put_u32(out, word);
  out.resize(out.size() + static_cast<size_t>(payload), value);
  return out;
}

Bytes images(uint32_t count) { return idx({0x803, count, 28, 28}, int64_t{count} * 784); }
Bytes labels(uint32_t count) { return idx({0x801, count}, count); }

Bytes gzip(const Bytes& plain, int level = 9) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Bytes out(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

using Reader = HostTensor (*)(std::span<const std::byte>, const std::string&);

/// Returns "" if `read` accepts a copy of the bytes, or else the message of the Error{kBadFile}.
std::string refusal(Reader read, std::span<const std::byte> bytes) {
  // The copy has the exact size, so that a sanitizer detects every read past the end.
  const Bytes copy(bytes.begin(), bytes.end());
  try {
    read(copy, "f");
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
    EXPECT_TRUE(std::string_view(e.what()).starts_with("f: byte ") ||
                std::string_view(e.what()).starts_with("f (expanded): byte "))
        << e.what();
    return e.what();
  }
}

/// A temporary folder that the destructor removes with its contents.
class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/sluice_mnist_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  void put(const std::string& name, const Bytes& bytes) const {
    sys::replace_file(path_ + "/" + name, bytes);
  }
  void put_mnist() const {
    put("train-images-idx3-ubyte", images(3));
    put("train-labels-idx1-ubyte.gz", gzip(labels(3)));
    put("t10k-images-idx3-ubyte.gz", gzip(images(2)));
    put("t10k-labels-idx1-ubyte", labels(2));
  }

 private:
  std::string path_;
};

/// Changes the working folder; the destructor restores it.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& path) { std::filesystem::current_path(path); }
  ~WorkingFolder() { std::filesystem::current_path(old_); }

 private:
  std::filesystem::path old_ = std::filesystem::current_path();
};

/// Sets $SLUICE_DATA; the destructor restores it.
class DataVariable {
 public:
  explicit DataVariable(const std::string& value) {
    if (const char* old = std::getenv("SLUICE_DATA")) old_ = old;
    ::setenv("SLUICE_DATA", value.c_str(), 1);
  }
  ~DataVariable() {
    if (old_) {
      ::setenv("SLUICE_DATA", old_->c_str(), 1);
    } else {
      ::unsetenv("SLUICE_DATA");
    }
  }

 private:
  std::optional<std::string> old_;
};

TEST(Idx, PixelsAreScaledAndNormalised) {
  Bytes file = images(2);
  file[16] = std::byte{0};
  file[17] = std::byte{255};
  for (const Bytes& bytes : {file, gzip(file)}) {
    const HostTensor read = read_idx_images(bytes, "f");
    EXPECT_EQ(read.spec(), (TensorSpec{{2, 28, 28}, f32, {}}));
    EXPECT_FLOAT_EQ(read.as<float>()[0], -0.1307f / 0.3081f);
    EXPECT_FLOAT_EQ(read.as<float>()[1], (1 - 0.1307f) / 0.3081f);
    EXPECT_FLOAT_EQ(read.as<float>()[2 * 784 - 1], (7 / 255.0f - 0.1307f) / 0.3081f);
  }
}

TEST(Idx, LabelsAreIntegers) {
  Bytes file = labels(3);
  file[8] = std::byte{0};
  file[10] = std::byte{9};
  EXPECT_TRUE(read_idx_labels(file, "f").same_bits(HostTensor::of<int32_t>({3}, i32, {0, 7, 9})));
  EXPECT_TRUE(
      read_idx_labels(gzip(file), "f").same_bits(HostTensor::of<int32_t>({3}, i32, {0, 7, 9})));
}

struct BadIdx {
  Reader read;
  Bytes bytes;
  std::string message;  ///< Part of the error message.
};

TEST(Idx, MalformedFilesAreRefusedWithTheReason) {
  constexpr uint32_t kMax = 0xffffffff;
  constexpr Reader kImages = read_idx_images;
  constexpr Reader kLabels = read_idx_labels;
  Bytes wrong_label = labels(5);
  wrong_label[11] = std::byte{10};
  Bytes long_images = images(1);
  long_images.push_back({});
  Bytes long_labels = labels(1);
  long_labels.push_back({});
  const std::vector<BadIdx> corpus{
      {kImages, {}, "byte 0: the magic number needs 4 bytes, 0 are left"},
      {kImages, idx({}, 3), "the magic number needs 4 bytes, 3 are left"},
      {kImages, idx({0x803}, 0), "byte 4: the number of items needs"},
      {kImages, idx({0x803}, 3), "the number of items needs 4 bytes, 3 are left"},
      {kImages, idx({0x803, 1}, 0), "byte 8: the number of rows needs"},
      {kImages, idx({0x803, 1, 28}, 0), "byte 12: the number of columns needs"},
      {kImages, idx({0x803, 1, 28, 28}, 0), "1 items need 784 bytes, 0 are left"},
      {kImages, idx({0x803, 1, 28, 28}, 783), "1 items need 784 bytes, 783 are left"},
      {kImages, idx({0x803, 2, 28, 28}, 784), "2 items need 1568 bytes, 784 are left"},
      {kImages, long_images, "1 items need 784 bytes, 785 are left"},
      {kImages, idx({0x803, 0, 28, 28}, 0), "items must be in [1, 1000000], got 0"},
      {kImages, idx({0x803, kMax, 28, 28}, 784), "items must be in [1, 1000000], got 4294967295"},
      {kImages, idx({0x803, 1'000'001, 28, 28}, 784), "items must be in [1, 1000000], got 1000001"},
      {kImages, idx({0x803, 1'000'000, 28, 28}, 784), "need 784000000 bytes"},
      {kImages, idx({0x803, 1, 0, 28}, 0), "images must be 28 x 28, got 0 x 28"},
      {kImages, idx({0x803, 1, 28, 0}, 0), "images must be 28 x 28, got 28 x 0"},
      {kImages, idx({0x803, 1, 32, 32}, 1024), "images must be 28 x 28, got 32 x 32"},
      {kImages, idx({0x803, 1, 784, 1}, 784), "images must be 28 x 28, got 784 x 1"},
      {kImages, idx({0x803, 1, kMax, kMax}, 784), "got 4294967295 x 4294967295"},
      {kImages, idx({0x803, 1, 0x80000000, 2}, 0), "got 2147483648 x 2"},
      {kImages, labels(3), "the magic number must be 0x00000803, got 0x00000801"},
      {kImages, idx({0x03080000, 1, 28, 28}, 784),
       "the magic number must be 0x00000803, got 0x03080000"},
      {kImages, idx({0xd03, 1, 28, 28}, 784 * 4),
       "the magic number must be 0x00000803, got 0x00000d03"},
      {kLabels, {}, "the magic number needs"},
      {kLabels, images(1), "the magic number must be 0x00000801, got 0x00000803"},
      {kLabels, idx({0x801}, 2), "the number of items needs"},
      {kLabels, idx({0x801, 5}, 4), "5 items need 5 bytes, 4 are left"},
      {kLabels, idx({0x801, 0}, 0), "items must be in [1, 1000000], got 0"},
      {kLabels, idx({0x801, kMax}, 9), "items must be in [1, 1000000], got 4294967295"},
      {kLabels, long_labels, "1 items need 1 bytes, 2 are left"},
      {kLabels, wrong_label, "byte 11: a label must be in [0, 9], got 10"},
      {kLabels, idx({0x801, 1}, 1, std::byte{255}), "byte 8: a label must be in [0, 9], got 255"},
  };
  for (const BadIdx& bad : corpus) {
    const std::string plain = refusal(bad.read, bad.bytes);
    EXPECT_NE(plain.find(bad.message), plain.npos) << plain << "\nexpected: " << bad.message;
    EXPECT_NE(refusal(bad.read, gzip(bad.bytes)), "") << "gzip of: " << bad.message;
  }
}

TEST(IdxGzip, MalformedStreamsAreRefusedWithTheReason) {
  const Bytes good = gzip(labels(100));
  const auto changed = [&](size_t at, uint8_t value) {
    Bytes file = good;
    file[at] = std::byte{value};
    return file;
  };
  const auto with = [](Bytes file, const Bytes& more) {
    file.insert(file.end(), more.begin(), more.end());
    return file;
  };
  Bytes longer = labels(100);
  longer.push_back({});
  const std::vector<std::pair<Bytes, std::string>> corpus{
      {{good.begin(), good.begin() + 2}, "cut off"},
      {{good.begin(), good.begin() + 10}, "cut off"},
      {{good.begin(), good.end() - 8}, "cut off"},
      {{good.begin(), good.end() - 1}, "cut off"},
      {changed(2, 9), "unknown compression method"},
      {changed(3, 0xe0), "unknown header flags set"},
      {changed(10, 0x07), "invalid block type"},
      {changed(good.size() - 1, 0xff), "incorrect length check"},
      {changed(good.size() - 8, static_cast<uint8_t>(good[good.size() - 8]) ^ 1),
       "incorrect data check"},
      {with(good, {std::byte{7}}), "1 bytes after the end"},
      {with(good, {std::byte{0}, std::byte{7}}), "1 bytes after the end"},
      {with(good, good), "holds more than its header says"},
      {with(good, {good.begin(), good.begin() + 9}), "cut off"},
      {gzip(longer), "holds more than its header says"},
      {gzip({}), "(expanded): byte 0: the magic number needs"},
      {gzip(idx({0x801, 100}, 99)), "100 items need 100 bytes, 99 are left"},
      {gzip(gzip(labels(100))), "the magic number must be 0x00000801, got 0x1f8b"},
  };
  for (const auto& [bytes, message] : corpus) {
    const std::string got = refusal(read_idx_labels, bytes);
    EXPECT_NE(got.find(message), got.npos) << got << "\nexpected: " << message;
  }
}

TEST(IdxGzip, BombsAreRefusedBeforeTheyGrow) {
  // One header states far more items than the few bytes can hold. The other states fewer than the
  // bytes expand to.
  const Bytes boast = gzip(idx({0x803, 1'000'000, 28, 28}, 0));
  const Bytes bomb = gzip(idx({0x803, 1, 28, 28}, int64_t{64} << 20));
  test::largest_allocation = 0;
  EXPECT_NE(refusal(read_idx_images, boast).find("more than"), std::string::npos);
  EXPECT_NE(refusal(read_idx_images, bomb).find("holds more than its header says"),
            std::string::npos);
  EXPECT_LE(test::largest_allocation, static_cast<int64_t>(bomb.size()));
}

TEST(Idx, CountsThatLieAllocateNothing) {
  const Bytes boast = idx({0x803, 1'000'000, 28, 28}, 784);
  test::largest_allocation = 0;
  EXPECT_NE(refusal(read_idx_images, boast), "");
  EXPECT_LE(test::largest_allocation, static_cast<int64_t>(boast.size()));
}

TEST(Idx, EveryTruncationIsRefused) {
  for (const auto& [read, file] :
       std::initializer_list<std::pair<Reader, Bytes>>{{read_idx_images, images(1)},
                                                       {read_idx_labels, labels(40)},
                                                       {read_idx_labels, gzip(labels(40))}}) {
    ASSERT_EQ(refusal(read, file), "");
    for (size_t size = 0; size < file.size(); ++size) {
      EXPECT_NE(refusal(read, std::span(file).first(size)), "") << size;
    }
  }
}

TEST(Idx, EveryByteFlippedIsReadOrRefused) {
  Bytes varied = labels(200);
  for (size_t i = 8; i < varied.size(); ++i) varied[i] = static_cast<std::byte>(i * i % 10);
  Bytes pixels = images(2);
  for (size_t i = 16; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i * i);
  for (const auto& [read, file] :
       std::initializer_list<std::pair<Reader, Bytes>>{{read_idx_images, pixels},
                                                       {read_idx_images, gzip(pixels)},
                                                       {read_idx_labels, varied},
                                                       {read_idx_labels, gzip(varied)},
                                                       {read_idx_labels, gzip(varied, 0)}}) {
    int refused = 0;
    for (size_t i = 0; i < file.size(); ++i) {
      for (const uint8_t flip : {0x01, 0x80, 0xff}) {
        Bytes damaged = file;
        damaged[i] ^= std::byte{flip};
        refused += refusal(read, damaged).empty() ? 0 : 1;
      }
    }
    EXPECT_GE(refused, 3 * 8);  // At least each changed byte of the header is rejected.
  }
}

TEST(IdxGzip, SeveralMembersAndPaddingAreOneFile) {
  const Bytes plain = labels(5);
  Bytes file = gzip({plain.begin(), plain.begin() + 6});
  for (const Bytes& part : {gzip({plain.begin() + 6, plain.end()}), gzip({}), Bytes(700)})
    file.insert(file.end(), part.begin(), part.end());
  EXPECT_TRUE(read_idx_labels(file, "f").same_bits(read_idx_labels(plain, "f")));
}

TEST(Mnist, NamesWithADotAreFound) {
  const Folder folder;
  folder.put_mnist();
  std::filesystem::rename(folder.path() + "/train-images-idx3-ubyte",
                          folder.path() + "/train-images.idx3-ubyte");
  std::filesystem::rename(folder.path() + "/train-labels-idx1-ubyte.gz",
                          folder.path() + "/train-labels.idx1-ubyte.gz");
  EXPECT_EQ(load_mnist(folder.path(), Split::kTrain).size(), 3);
}

TEST(Mnist, FolderOrItsParentIsLoaded) {
  const Folder folder;
  sys::make_folder(folder.path() + "/mnist");
  {
    const Folder inner;
    inner.put_mnist();
    for (const auto& entry : std::filesystem::directory_iterator(inner.path())) {
      std::filesystem::copy(entry, folder.path() + "/mnist");
    }
    EXPECT_EQ(find_mnist(inner.path()), inner.path());
  }
  EXPECT_EQ(find_mnist(folder.path()), folder.path() + "/mnist");
  EXPECT_EQ(find_mnist(folder.path() + "/mnist"), folder.path() + "/mnist");
  const Samples train = load_mnist(folder.path(), Split::kTrain);
  EXPECT_EQ(train.images.shape(), (Shape{3, 28, 28}));
  EXPECT_EQ(train.labels.shape(), (Shape{3}));
  EXPECT_EQ(train.size(), 3);
  EXPECT_EQ(train.source, fmt::format("MNIST, training digits of {}/mnist", folder.path()));
  EXPECT_EQ(load_mnist(folder.path(), Split::kTest).size(), 2);
}

TEST(Mnist, SearchIsTheFolderThenTheVariableThenTheDefault) {
  const Folder empty;
  const Folder full;
  full.put_mnist();
  {
    const DataVariable variable(full.path());
    EXPECT_EQ(find_mnist(), full.path());
    // If an explicit folder has no files, no other folder is searched.
    try {
      find_mnist(empty.path());
      ADD_FAILURE() << "an empty folder was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo);
      for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                               "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
        EXPECT_NE(std::string_view(e.what()).find(name), std::string_view::npos) << e.what();
      }
    }
  }
  const DataVariable variable(empty.path());
  const auto found = find_mnist();
  EXPECT_EQ(found.has_value(), sys::exists("data/mnist/train-images-idx3-ubyte") ||
                                   sys::exists("data/mnist/train-images-idx3-ubyte.gz"));
}

TEST(Mnist, DigitsAreGeneratedWhereNoFilesAreFound) {
  const Folder full;
  full.put_mnist();
  EXPECT_EQ(load_digits(Split::kTest, full.path()).source,
            load_mnist(full.path(), Split::kTest).source);
  const Folder empty;
  const DataVariable variable(empty.path());
  EXPECT_THROW(load_digits(Split::kTest, empty.path()), Error);
  const WorkingFolder folder(empty.path());  // It has no data/mnist.
  const Samples tests = load_digits(Split::kTest);
  EXPECT_EQ(tests.size(), 4000);
  EXPECT_EQ(tests.source, "4000 generated digits, seed 2");
  EXPECT_EQ(load_digits(Split::kTrain).source, "20000 generated digits, seed 1");
}

TEST(Mnist, MissingFoldersAndFilesAreErrors) {
  const Folder folder;
  folder.put_mnist();
  std::filesystem::remove(folder.path() + "/t10k-labels-idx1-ubyte");
  for (const std::string& path : {folder.path(), folder.path() + "/nowhere"}) {
    try {
      load_mnist(path, Split::kTest);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kIo) << e.what();
    }
  }
}

TEST(Mnist, CountsMustAgree) {
  const Folder folder;
  folder.put_mnist();
  folder.put("t10k-labels-idx1-ubyte", labels(3));
  try {
    load_mnist(folder.path(), Split::kTest);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile);
    EXPECT_NE(
        std::string_view(e.what()).find("byte 4: must have one label for each of 2 images in "),
        std::string_view::npos)
        << e.what();
  }
}

TEST(Mnist, FilesTooLargeToBeRightAreNotRead) {
  const Folder folder;
  folder.put_mnist();
  std::filesystem::resize_file(folder.path() + "/t10k-labels-idx1-ubyte",
                               uintmax_t{1} << 40);  // A sparse file.
  try {
    load_mnist(folder.path(), Split::kTest);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
  }
}

TEST(IdxGzip, MoreThanZlibCanCountIsRefused) {
  const size_t size = size_t{1} << 31;
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span bytes(static_cast<std::byte*>(mapped), size);
  bytes[0] = std::byte{0x1f};
  bytes[1] = std::byte{0x8b};
  expect_refused({{"2 GiB", [&] { read_idx_images(bytes, "f.gz"); },
                   "f.gz: byte 0: a gzip stream must have at most 2147483647 bytes, got 2147483648",
                   ErrorKind::kBadFile}});
  ::munmap(mapped, size);
}

TEST(Mnist, RealDigits) {
  const std::string folder = "../shared/data/mnist";
  if (!sys::exists(folder))
    GTEST_SKIP() << "requires the MNIST files in " << folder << "; the project ships none";
  const Samples train = load_mnist(folder, Split::kTrain);
  EXPECT_EQ(train.images.shape(), (Shape{60000, 28, 28}));
  EXPECT_EQ(train.labels.as<int32_t>()[0], 5);
  double sum = 0;
  double squares = 0;
  for (const float pixel : train.images.as<float>()) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
  }
  const auto pixels = static_cast<double>(train.images.elements());
  EXPECT_NEAR(sum / pixels, 0, 1e-3);
  EXPECT_NEAR(squares / pixels, 1, 1e-3);

  const Samples test = load_mnist(folder, Split::kTest);
  EXPECT_EQ(test.images.shape(), (Shape{10000, 28, 28}));
  EXPECT_EQ(test.labels.as<int32_t>()[0], 7);
  std::array<int, 10> counts{};
  for (const int32_t label : test.labels.as<int32_t>()) ++counts[static_cast<size_t>(label)];
  EXPECT_EQ(counts, (std::array<int, 10>{980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}));
}

}  // namespace
}  // namespace sluice::data
