#include "sluice/data/window/folder_parts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sluice/base/safetensors.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/test_elements.h"
#include "sluice/data/text/tokens.h"

namespace sluice::data {
namespace {

using namespace test;  // NOLINT: the files below

/// A folder that exists as long as the object.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("sluice_parts_{}_{}", ::getpid(), name))
                  .string()) {
    std::filesystem::create_directory(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  void add(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

std::string numbers(float first, size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return bytes_of(values);
}

TEST(FolderParts, AreOneDatasetInTheOrderOfNames) {
  const TestFolder folder("npy");
  folder.add("b.npy", npy("<f4", "(2,)", numbers(3, 2)));
  folder.add("a.npy", npy("<f4", "(3,)", numbers(0, 3)));
  folder.add("c.npy", npy("<f4", "(0,)", ""));
  folder.add("notes.txt", "no part");
  const Dataset rows = from_npy(folder.path());
  EXPECT_EQ(values(rows), (std::vector<float>{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows.node()->at(3, 0)[0].as<float>()[0], 3);
  folder.add("d.npy", npy("<f4", "(1, 2)", numbers(0, 2)));
  expect_refused({{"specs", [&] { from_npy(folder.path()); },
                   "d.npy: must have elements () float32 like " + folder.path() + "/a.npy, got ",
                   ErrorKind::kBadFile},
                  {"none", [&] { from_safetensors(folder.path()); },
                   "a folder of parts must have files that end with .safetensors, got none",
                   ErrorKind::kBadFile}});
}

TEST(FolderParts, ManyPartsHaveFewOpenFiles) {
  const TestFolder folder("many");
  for (int i = 0; i < 300; ++i)
    folder.add(fmt::format("{:04}.npy", i),
               npy("<f4", "(4,)", numbers(static_cast<float>(4 * i), 4)));
  const Dataset rows = from_npy(folder.path());
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  for (int64_t k = 0; k < 1200; ++k) {
    const int64_t row = k * 7 % 1200;
    ASSERT_EQ(rows.node()->at(row, 0)[0].as<float>()[0], static_cast<float>(row));
  }
  EXPECT_LE(open_files(), 100);
  std::filesystem::rename(folder.path() + "/0299.npy", folder.path() + "/0000.npy");
  expect_refused({{"replaced", [&] { rows.node()->at(0, 0); },
                   "the file must not change while it is", ErrorKind::kBadFile}});
}

TEST(FolderParts, OfSafetensorsAndTables) {
  const TestFolder folder("named");
  const auto part = [](float x) {
    const std::vector<std::byte> bytes = write_safetensors(
        std::vector<NamedArray>{{"x", filled({2, 2}, x)}, {"y", filled({2}, x + 1)}});
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  folder.add("0.safetensors", part(1));
  folder.add("1.safetensors", part(5));
  EXPECT_EQ(values(from_safetensors(folder.path(), {"y"})), (std::vector<float>{2, 2, 6, 6}));
  folder.add("0.csv", "a,b\n1,2\n3,4\n");
  folder.add("1.csv", "a,b\n5,6\n");
  EXPECT_EQ(values(from_csv(folder.path(), {.fields = {{.column = "b"}}})),
            (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(csv_columns(folder.path()), (std::vector<std::string>{"a", "b"}));
  folder.add("2.csv", "b,a\n5,6\n");
  expect_refused({{"columns", [&] { from_csv(folder.path()); },
                   "2.csv: line 1: must have the columns [a, b] of ", ErrorKind::kBadFile}});
}

TEST(FolderParts, OfTokens) {
  const auto ids = [](const Tokens& tokens, int64_t begin, int64_t count) {
    std::vector<int32_t> found(static_cast<size_t>(count));
    tokens.read(begin, found);
    return found;
  };
  const TestFolder folder("tokens");
  folder.add("1.bin", bytes_of<uint16_t>({4, 5}));
  folder.add("0.bin", bytes_of<uint16_t>({1, 2, 3}));
  const Tokens tokens = tokens_file(folder.path());
  EXPECT_EQ(ids(tokens, 0, 5), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(ids(tokens, 2, 2), (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(ids(tokens.with_vocabulary(6), 3, 2), (std::vector<int32_t>{4, 5}));
  folder.add("2.npy", npy("<u2", "(1,)", "ab"));
  const std::vector<int32_t> expected{7, 300, 70000};
  const TestFile wide("ids.npy", npy("<i8", "(3,)", bytes_of<int64_t>({7, 300, 70000})));
  const TestFile narrow("ids2.npy", npy("<u2", "(2,)", bytes_of<uint16_t>({7, 300})));
  const TestFile bytes("ids3.npy", npy("|u1", "(2,)", "\1\2"));
  const TestFile large("ids4.npy", npy("<u4", "(1,)", bytes_of<uint32_t>({4000000000})));
  const TestFile reals("ids5.npy", npy("<f4", "(1,)", "1234"));
  const TestFile matrix("ids6.npy", npy("<u2", "(1, 2)", "1234"));
  EXPECT_EQ(ids(tokens_file(wide.path(), 100000), 0, 3), expected);
  EXPECT_EQ(ids(tokens_file(narrow.path()), 0, 2), (std::vector<int32_t>{7, 300}));
  EXPECT_EQ(ids(tokens_file(bytes.path()), 0, 2), (std::vector<int32_t>{1, 2}));
  expect_refused(
      {{"both", [&] { tokens_file(folder.path()); }, "must have one format", ErrorKind::kBadFile},
       {"vocabulary", [&] { ids(tokens_file(wide.path()), 0, 3); },
        "token 2: must be in [0, 65536), got 70000", ErrorKind::kBadFile},
       {"large", [&] { ids(tokens_file(large.path()), 0, 1); }, "token 0: must be in [0, 65536)",
        ErrorKind::kBadFile},
       {"reals", [&] { tokens_file(reals.path()); }, "uint32 or int64, little-endian, got '<f4'",
        ErrorKind::kBadFile},
       {"matrix", [&] { tokens_file(matrix.path()); }, "must have the shape (n,), got (1, 2)",
        ErrorKind::kBadFile}});
}

}  // namespace
}  // namespace sluice::data
