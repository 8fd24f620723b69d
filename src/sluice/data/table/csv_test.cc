#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::TestFile;

Element read_csv_text(const std::string& text, const CsvOptions& options = {}) {
  const TestFile file("a.csv", text);
  return *from_csv(file.path(), options).batch(kForever, Remainder::kKeep).iterate().next();
}

HostTensor table(Shape shape, const std::vector<float>& values) {
  return HostTensor::of<float>(std::move(shape), f32, values);
}

TEST(Csv, ReadsNumbersWithAndWithoutAHeader) {
  const HostTensor expected = table({2, 3}, {1, -2.5, 3, 4, 5e3, 6});
  for (const std::string text : {"1,-2.5,3\n4,5e3,6\n", "1,-2.5,3\n4,5e3,6",
                                 "1,-2.5,3\r\n4,5e3,6\r\n", "a,b,c\n1,-2.5,3\n4,5e3,6\n\n",
                                 "\xef\xbb\xbf"
                                 "a,b,c\n1,-2.5,3\n4,5e3,6\n \r\n\n",
                                 " 1 ,\t-2.5, +3\n4 , 5e3,6 \n",
                                 "\"a\",\"b, c\",d\n\"1\",\"-2.5\" ,3\n4,\"5e3\",\" 6 \"\n"}) {
    const Element all = read_csv_text(text);
    EXPECT_TRUE(all[0].same_bits(expected)) << text;
    EXPECT_TRUE(all.names.empty());
  }
  EXPECT_TRUE(
      read_csv_text("1\t2\n3\t4\n", {.separator = '\t'})[0].same_bits(table({2, 2}, {1, 2, 3, 4})));
  EXPECT_TRUE(read_csv_text("1;2\n", {.separator = ';'})[0].same_bits(table({1, 2}, {1, 2})));
  EXPECT_TRUE(read_csv_text("7\n")[0].same_bits(table({1, 1}, {7})));
  // Names that are numbers.
  EXPECT_TRUE(
      read_csv_text("0,1\n3,4\n", {.header = CsvHeader::kYes})[0].same_bits(table({1, 2}, {3, 4})));
}

TEST(Csv, ChoosesColumnsByNameAndNumber) {
  const std::string text = "id,width,height,kind\nfirst,1,2,0\nsecond,3,4,1\n";
  const CsvOptions named{.fields = {{.name = "x", .columns = {"height", "width"}},
                                    {.name = "y", .column = "kind", .dtype = i32}}};
  const Element all = read_csv_text(text, named);
  EXPECT_EQ(all.names, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(all["x"].same_bits(table({2, 2}, {2, 1, 4, 3})));
  EXPECT_TRUE(all["y"].same_bits(HostTensor::of<int32_t>({2}, i32, {0, 1})));
  const TestFile file("b.csv", text);
  EXPECT_EQ(to_string(*from_csv(file.path(), named).element_specs()), "x (2,) float32, y () int32");
  const CsvOptions numbered{.fields = {{.column = 3, .dtype = boolean}, {.columns = {1}}},
                            .header = CsvHeader::kNo};
  const Element tuple = read_csv_text("first,1,2,0\nsecond,3,4,1\n", numbered);
  EXPECT_TRUE(tuple[0].same_bits(HostTensor::of<bool>({2}, boolean, {false, true})));
  EXPECT_TRUE(tuple[1].same_bits(table({2, 1}, {1, 3})));
}

TEST(Csv, ReadsTheWholeOfRfc4180) {
  const std::string text =
      "name,\"x \"\"y\"\"\",z\r\n\"a,\r\n\"\"b\"\"\",1,\"2\"\r\n\"\",\"3\" , 4\r\n\"\n\n\",5,6";
  const CsvOptions options{.fields = {{.columns = {"x \"y\"", "z"}}}};
  EXPECT_TRUE(read_csv_text(text, options)[0].same_bits(table({3, 2}, {1, 2, 3, 4, 5, 6})));
  // A line is that of the file in which the record begins.
  const TestFile file("d.csv", text + "\nq,7,x\n");
  expect_refused({{"line", [&] { from_csv(file.path(), options); }, "line 8: column 3: must be",
                   ErrorKind::kBadFile}});
}

TEST(Csv, ReadsGzipOfSeveralMembers) {
  const std::string packed = test::deflated("a,b\n1,2\n", 31) + test::deflated("3,4\n", 31) +
                             test::deflated("", 31) + std::string(600, '\0');
  EXPECT_TRUE(read_csv_text(packed)[0].same_bits(table({2, 2}, {1, 2, 3, 4})));
  const auto bad = [](const std::string& bytes, const std::string& part) {
    return Refusal{part, [=] { read_csv_text(bytes); }, part, ErrorKind::kBadFile};
  };
  expect_refused({bad(packed + "x", "1 bytes after the end of the gzip stream"),
                  bad(packed.substr(0, 50), "the gzip stream is cut off"),
                  bad(test::deflated("<html>", 31), "got an HTML page")});
}

TEST(Csv, RefusesBadFilesByLineAndColumn) {
  const auto bad = [](const std::string& text, const std::string& part, CsvOptions options = {}) {
    return Refusal{text, [=] { read_csv_text(text, options); }, part, ErrorKind::kBadFile};
  };
  const CsvOptions whole{.fields = {{.column = 0, .dtype = i32}}, .header = CsvHeader::kNo};
  const CsvOptions byte{.fields = {{.column = 0, .dtype = u8}}};
  expect_refused({
      bad("", "a.csv: line 1: must have at least one row of numbers, got none"),
      bad("\n \n\r\n", "line 1: must have at least one row"),
      bad("a,b\n", "line 2: must have at least one row"),
      bad("1,2\n3\n", "line 2: must have 2 columns like line 1, got 1"),
      bad("1,2\n3,4,5\n", "line 2: must have 2 columns like line 1, got 3"),
      bad("a,b\n1,2,3\n", "line 2: must have 2 columns like line 1, got 3"),
      bad("1,2\n\n3,4\n", "line 2: must have 2 columns like line 1, got 1"),
      bad("1,2\n3,x\n", "line 2: column 2: must be a finite number of float32's range, got 'x'"),
      bad("1,2\n3,\n", "line 2: column 2: must be a finite number of float32's range, got ''"),
      bad("1,2\n3,4 5\n", "got '4 5'"),
      bad("1,2\n3,nan\n", "got 'nan'"),
      bad("1,2\n3,-inf\n", "got '-inf'"),
      bad("1,2\n3,1e300\n", "got '1e300'"),
      bad("1,2\n3,0x10\n", "got '0x10'"),
      bad("1,2\n3,+-4\n", "got '+-4'"),
      bad("1,2\n3,a\tb\x01\n", "got 'a?b?'"),
      bad("1,x\n3,4\n", "line 1: must be all names or all numbers, got 1 numbers in 2 columns"),
      bad("1.5\n", "line 1: column 1: must be a whole number in [-2147483648, 2147483647]", whole),
      bad("9\n256\n", "line 2: column 1: must be a whole number in [0, 255], got '256'", byte),
      bad("1,2\n3,\"4\n5\"\n",
          "line 2: column 2: must be a finite number of float32's range, got '4?5'"),
      bad("1,2\n3,\"4\n5,6\n", "line 2: column 2: the quote must end, got the end of the file"),
      bad("<!DOCTYPE html>\n<p>1,2", "byte 0: must be a CSV file, got an HTML page"),
      bad("version https://git-lfs.github.com/spec/v1\noid", "got a Git LFS pointer"),
      bad("PK\3\4xl", "got a ZIP archive or a spreadsheet"),
      bad(std::string("\xff\xfe"
                      "1\0",
                      4),
          "got UTF-16 text"),
      bad("1,\"2\"x\n", "line 1: column 2: a separator must follow the quote"),
      bad(std::string("1,2\n3,\0\n", 8), "line 2: column 2"),
  });
}

TEST(Csv, RefusesFieldsThatDoNotFit) {
  const auto with = [](CsvOptions options) {
    return [=] { read_csv_text("a,b\n1,2\n", options); };
  };
  expect_refused({
      {"name", with({.fields = {{.column = "z"}}}), "the column must be one of [a, b], got 'z'"},
      {"number", with({.fields = {{.column = 2}}}), "the column must be in [0, 2), got 2"},
      {"twice", [] { read_csv_text("a,a\n1,2\n", {.fields = {{.column = "a"}}}); },
       "column 'a' once"},
      {"header", [] { read_csv_text("1,2\n", {.fields = {{.column = "a"}}}); },
       "requires a header in line 1"},
      {"both", with({.fields = {{.name = "x", .column = 0, .columns = {1}}}}), "got both"},
      {"neither", with({.fields = {{.name = "x"}}}), "got neither"},
      {"dtype", with({.fields = {{.column = 0, .dtype = f64}}}),
       "must be f32, i32, u32, u8 or bool"},
      {"names", with({.fields = {{.name = "x", .column = 0}, {.column = 1}}}), "or none; got both"},
      {"twice", with({.fields = {{.name = "x", .column = 0}, {.name = "x", .column = 1}}}),
       "'x' twice"},
      {"separator", with({.separator = '.'}), "the separator must be a tab or one of"},
      {"missing", [] { from_csv("/no/such/file"); }, "/no/such/file", ErrorKind::kIo},
  });
}

}  // namespace
}  // namespace sluice::data
