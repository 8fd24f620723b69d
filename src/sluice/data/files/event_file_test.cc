#include "sluice/data/files/event_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "sluice/base/failpoint.h"
#include "sluice/base/test_refusals.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

// A folder that is deleted at the end.
class EventFiles : public testing::Test {
 protected:
  EventFiles() : folder_(testing::TempDir() + fmt::format("sluice_events_{}", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~EventFiles() override { fs::remove_all(folder_); }

  static std::string text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string folder_;
};

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

Histogram histogram_of(const std::vector<double>& values) {
  Histogram h;
  h.add(f64, std::as_bytes(std::span(values)));
  return h;
}

TEST(EventFile, ChecksumsAreThoseOfRfc3720) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  descending.assign(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(descending), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

// The expected bytes are those of TensorBoard 2.21: its messages, serialised, and its RecordWriter.
TEST(EventFile, RecordsAreThoseOfTensorBoardsWriter) {
  EXPECT_EQ(hex(tf_record(encode_version(1700000000.5))),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  Summary numbers;
  numbers.add("loss", 0.1);
  numbers.add("accuracy", 0.0);
  EXPECT_EQ(hex(tf_record(encode_event(1700000001.25, 300, numbers))),
            "2c00000000000000f4aecc450900005040fc54d94110ac022a1e0a0b0a046c6f737315cdcccc3d0a0f0a08"
            "616363757261637915000000001dde8d7d");
  Summary histogram;
  histogram.add("weights/fc1.weight", histogram_of({-1.5, 0.0, 0.25, 0.25, 2.0}));
  EXPECT_EQ(
      hex(tf_record(encode_event(1700000002.0, int64_t{1} << 40, histogram))),
      "ee00000000000000c7a7fb8f0900008040fc54d941108080808080202adb010ad8010a12776569676874732f"
      "6663312e7765696768742ac10109000000000000f8bf11000000000000004019000000000000144021000000"
      "000000f03f2900000000008019403248794cfae2d3fff9bf8545cc9fc0a2f7bf000000000000000011ea2d81"
      "9997713ded5ad35fc5eace3f9c0b81c11f01d13fdc94cd2e8d75ff3fe011f10c744d0140ffffffffffffef7f"
      "3a480000000000000000000000000000f03f0000000000000000000000000000f03f00000000000000000000"
      "0000000000400000000000000000000000000000f03f000000000000000005105ddf");
  Summary empty;
  empty.add("w", Histogram());
  EXPECT_EQ(hex(tf_record(encode_event(3.0, 0, empty))),
            "2600000000000000734fe3000900000000000008402a1b0a190a01772a143208ffffffffffffef7f3a0800"
            "0000000000000007cdff31");
}

TEST_F(EventFiles, AFileHasANameOfItsOwnAndGrows) {
  EventFile first(folder_);
  EventFile second(folder_);
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(fs::path(first.path()).filename().string().starts_with("events.out.tfevents."));
  const std::string begin = text(first.path());
  EXPECT_EQ(begin.size(), 40u);
  EXPECT_EQ(hex(begin.substr(21, 15)), hex("\x1a\x0d"
                                           "brain.Event:2"));
  Summary summary;
  summary.add("loss", 1.5);
  first.add(7, summary);
  EXPECT_EQ(text(first.path()), begin);
  first.flush();
  const std::string grown = text(first.path());
  EXPECT_TRUE(grown.starts_with(begin));
  EXPECT_EQ(grown.size(), begin.size() + tf_record(encode_event(1, 7, summary)).size());
}

TEST_F(EventFiles, AWriteThatFailsLeavesWholeRecords) {
  const std::string path = folder_ + "/file";
  GrowingFile file(path);
  file.append("first");
  file.flush();
  // Half of the bytes are written, then the disk is full.
  struct rlimit old {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const struct rlimit limit { 8, old.rlim_max };
  std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  file.append("second");
  expect_refused({{"full", [&] { file.flush(); }, "cannot write " + path, ErrorKind::kIo}});
  ::setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(text(path), "first");
  file.append("third");
  file.flush();
  EXPECT_EQ(text(path), "firstthird");
  GrowingFile cut(path, 5);
  cut.append("!");
  cut.flush();
  EXPECT_EQ(text(path), "first!");
  sys::set_failpoint({"open", 1, EMFILE});
  expect_refused(
      {{"open", [&] { GrowingFile f(path); }, "cannot create " + path, ErrorKind::kIo},
       {"folder", [&] { GrowingFile f(folder_); }, "cannot create " + folder_, ErrorKind::kIo},
       {"device", [&] { GrowingFile f("/dev/null"); }, "must be a regular file", ErrorKind::kIo}});
  sys::clear_failpoint();
}

// All limits as TensorFlow's core/lib/histogram computes them.
std::vector<double> all_limits() {
  std::vector<double> positive, all;
  for (double v = 1e-12; v < 1e20; v *= 1.1) positive.push_back(v);
  positive.push_back(std::numeric_limits<double>::max());
  for (auto v = positive.rbegin(); v != positive.rend(); ++v) all.push_back(-*v);
  all.push_back(0);
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

TEST(Histogram, BucketsAreThoseOfTheDefinition) {
  const std::vector<double> limits = all_limits();
  std::mt19937_64 random(1);
  std::vector<double> values = limits;
  values.pop_back();  // Beyond the last bucket.
  for (const double limit : limits) {
    values.push_back(std::nextafter(limit, 0));
    if (std::abs(limit) < 1e30) values.push_back(std::nextafter(limit, 2 * limit));
  }
  for (int i = 0; i < 5000; ++i) {
    const double size = std::exp2(static_cast<double>(random() % 220) - 120);
    values.push_back(size * (static_cast<double>(random() % 2001) / 1000 - 1));
  }
  values.insert(values.end(), {-0.0, 5e-324, -5e-324, 3e38, -3e38});
  for (const double v : values) {
    const Histogram h = histogram_of({v});
    const auto at = std::upper_bound(limits.begin(), limits.end(), v);
    const auto buckets = h.buckets();
    const auto found = std::find_if(buckets.begin(), buckets.end(),
                                    [](const Histogram::Bucket& b) { return b.count > 0; });
    ASSERT_NE(found, buckets.end()) << v;
    EXPECT_EQ(found->limit, *at) << v;
    EXPECT_EQ(found->count, 1) << v;
    // The bucket begins at the limit before it.
    EXPECT_EQ(std::prev(found)->limit, *std::prev(at)) << v;
    EXPECT_EQ(h.min(), v);
    EXPECT_EQ(h.max(), v);
  }
}

TEST(Histogram, CountsEveryDtypeAndLeavesOutWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  const auto all = [](const Histogram& h) {
    double count = 0;
    for (const Histogram::Bucket& b : h.buckets()) count += b.count;
    return count;
  };
  for (const DType dtype : {f32, f16, bf16}) {
    const std::vector<float> values{-2, nan, 0.5, infinite, 3, -infinite};
    std::vector<std::byte> bytes;
    for (const float v : values) {
      const uint16_t half = dtype == f16 ? float_to_half(v) : float_to_bfloat(v);
      const auto part = dtype == f32 ? std::as_bytes(std::span(&v, 1)).subspan(0)
                                     : std::as_bytes(std::span(&half, 1)).subspan(0);
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    Histogram h;
    h.add(dtype, bytes);
    h.add(dtype, std::span(bytes).first(bytes.size() / 3));
    EXPECT_EQ(h.count(), 4) << name_of(dtype);
    EXPECT_EQ(all(h), 4) << name_of(dtype);
    EXPECT_EQ(h.non_finite(), 4) << name_of(dtype);
    EXPECT_EQ(h.min(), -2);
    EXPECT_EQ(h.max(), 3);
    EXPECT_EQ(h.sum(), -0.5);
    EXPECT_EQ(h.sum_squares(), 4 + 0.25 + 9 + 4);
  }
  Histogram h;
  const std::vector<float> none{nan, infinite};
  h.add(f32, std::as_bytes(std::span(none)));
  EXPECT_EQ(h.count(), 0);
  EXPECT_EQ(h.min(), 0);
  ASSERT_EQ(h.buckets().size(), 1u);
  EXPECT_EQ(h.buckets()[0].limit, std::numeric_limits<double>::max());
  const std::vector<int32_t> integers{-3, 0, 7};
  h.add(i32, std::as_bytes(std::span(integers)));
  EXPECT_EQ(h.min(), -3);
  EXPECT_EQ(h.max(), 7);
  EXPECT_EQ(all(h), 3);
}

}  // namespace
}  // namespace sluice::data
