// Tables that stay in their files: they equal tables in memory, which are those in gzip.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sluice/base/test_refusals.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/loader.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/table/csv_text.h"
#include "sluice/data/table/indexed_table.h"
#include "sluice/data/table/record_index.h"
#include "sluice/data/table/row_reader.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using namespace test;  // NOLINT: the files below

/// Records of several sizes: with quotes, line breaks in cells, missing cells and long texts.
std::string records(int64_t count) {
  std::string text =
      "\xef\xbb\xbf"
      "a,b,word,label\r\n";
  for (int64_t k = 0; k < count; ++k) {
    const std::string word = k % 5 == 0 ? "\"li\"\"ne\n\r\n" + std::to_string(k % 3) + "\""
                                        : "w" + std::to_string(k % 7);
    text += fmt::format("{},{}{},{} ,{}{}", k, k % 11 == 0 ? "NA" : fmt::format("{}", k * 0.37),
                        std::string(k % 1000 == 999 ? 3000 : 0, ' '), word, k % 4,
                        k % 3 == 0 ? "\r\n" : "\n");
  }
  return text + "\n\r\n  \n";
}

std::vector<std::vector<std::string>> cells_of(const std::string& path) {
  const CsvText text(path);
  CsvRecords lines(text, ',');
  std::vector<std::vector<std::string>> all;
  std::vector<std::string_view> cells;
  while (!lines.done()) {
    lines.next(cells);
    all.emplace_back(cells.begin(), cells.end()).push_back(std::to_string(lines.line()));
  }
  return all;
}

TEST(CsvFiles, RecordsAcrossBuffersEqualThoseInMemory) {
  const std::string text = records(30000);
  ASSERT_GT(text.size(), 600000u);
  const TestFile file("records.csv", text), packed("records.csv.gz", deflated(text, 31));
  const auto found = cells_of(file.path());
  EXPECT_EQ(found.size(), 30001u);
  EXPECT_EQ(found, cells_of(packed.path()));
  // Every position of the end of a buffer: a quote, a doubled quote, CR and LF.
  for (size_t shift = 0; shift < 24; ++shift) {
    std::string cut(262144 - 12 - shift, 'x');
    cut += ",\"a\"\"b\"  ,c\r\n\"d\r\n\" \r\ne,f,g\r\n\n";
    const TestFile one("shift.csv", cut), two("shift.csv.gz", deflated(cut, 31));
    EXPECT_EQ(cells_of(one.path()), cells_of(two.path())) << shift;
  }
}

// Records with quotes and without them, in the file and in memory.
TEST(CsvFiles, RecordsAfterSkippedOnesEqualThoseReadInOrder) {
  const std::string text = records(9000);
  const TestFile file("skipped.csv", text), packed("skipped.csv.gz", deflated(text, 31));
  const auto all = cells_of(file.path());
  for (const std::string& path : {file.path(), packed.path()}) {
    const CsvText csv(path);
    for (const size_t step : {size_t{0}, size_t{1}, size_t{4}, size_t{900}}) {
      CsvRecords lines(csv, ',');
      std::vector<std::string_view> cells;
      for (size_t k = step; k < all.size(); k += step + 1) {
        lines.skip(static_cast<int64_t>(step));
        lines.next(cells);
        std::vector<std::string> found(cells.begin(), cells.end());
        found.push_back(std::to_string(lines.line()));
        ASSERT_EQ(found, all[k]) << path << " " << step;
      }
      lines.skip(static_cast<int64_t>(all.size() % (step + 1)));
      EXPECT_TRUE(lines.done());
    }
  }
}

TEST(CsvFiles, RecordsAreFoundByTheirNumber) {
  RecordIndex index;
  constexpr int64_t kRecords = 3000001;
  for (int64_t k = 0; k < kRecords; ++k) index.add(10 * k, 2 * k + 1);
  index.finish(10 * kRecords);
  for (int64_t k = 0; k < kRecords; k += 997) {
    const RecordIndex::Span span = index.find(k);
    ASSERT_EQ(span.begin + 10 * span.skipped, 10 * k);
    ASSERT_EQ(span.line + 2 * span.skipped, 2 * k + 1);
    ASSERT_TRUE(span.end > 10 * k && span.end - span.begin <= 80) << k;
  }
  EXPECT_EQ(index.find(kRecords - 1).end, 10 * kRecords);
}

TEST(CsvFiles, NumbersEqualThoseInMemory) {
  std::string text;
  for (int64_t k = 0; k < 130000; ++k)
    text += fmt::format("{},{},{}{}\n", k, k * 0.25, std::string(30, ' '), k % 9);
  const TestFile file("numbers.csv", text), packed("numbers.csv.gz", deflated(text, 31));
  const CsvOptions options{.fields = {{.name = "x", .columns = {0, 1, 0, 1, 0, 1, 0, 1, 0}},
                                      {.name = "y", .column = 2, .dtype = i32}}};
  const Dataset found = from_csv(file.path(), options), held = from_csv(packed.path(), options);
  EXPECT_EQ(found.element_specs(), held.element_specs());
  EXPECT_EQ(found.size(), 130000);
  BatchLoader one(found, {.batch = 100, .seed = 1, .workers = 2}),
      two(held, {.batch = 100, .seed = 1});
  for (int item = 0; item < 300; ++item) {
    const Element &a = *one.next(), &b = *two.next();
    ASSERT_TRUE(a["x"].same_bits(b["x"]) && a["y"].same_bits(b["y"])) << item;
  }
  Iterator iterator = found.iterate();
  for (int64_t k = 0; k < 130000; ++k) {
    const Element e = *iterator.next();
    ASSERT_EQ(e["x"].as<float>()[0], static_cast<float>(k));
  }
  EXPECT_FALSE(iterator.next());
  std::filesystem::resize_file(file.path(), text.size() / 2);
  expect_refused({{"cut", [&] { found.node()->at(100, 0); }, "the file must not change while it is",
                   ErrorKind::kBadFile}});
}

TEST(CsvFiles, ARecordHasABound) {
  const TestFile file("quote.csv", "1,2\n3,\"" + std::string(17 << 20, '4'));
  expect_refused({{"quote", [&] { from_csv(file.path()); },
                   "line 2: a record must have at most 16777216 bytes, got more; does a quote",
                   ErrorKind::kBadFile}});
}

/// Equal samples of both readers of a table, for the rows in `training`.
void expect_equal_tables(const std::string& path, const TableChoice& choice, int64_t rows) {
  const Table table(path);
  const TableSchema inferred = infer_schema(table, choice);
  const RowChoice columns{.missing = choice.missing};
  const TableRows held = read_rows(table, inferred, columns);
  const IndexedTable indexed(table, inferred, columns);
  EXPECT_EQ(indexed.rows(), rows);
  EXPECT_EQ(indexed.rows(), held.rows());
  EXPECT_EQ(indexed.dropped(), held.dropped);
  EXPECT_EQ(indexed.filled(), held.filled);
  std::vector<uint32_t> order(static_cast<size_t>(held.rows()));
  shuffled_order(3, 0, order);
  order.resize(order.size() / 2);
  TableSchema one = inferred, two = inferred;
  fit_scaling(one, held, std::vector<int64_t>(order.begin(), order.end()));
  indexed.fit_scaling(two, order);
  EXPECT_EQ(to_json(one), to_json(two));
  const Samples samples = encode(table, one, held);
  const Dataset found = indexed.samples(two);
  Element whole = *found.batch(held.rows()).iterate().next();
  EXPECT_TRUE(whole["input"].same_bits(samples.images));
  EXPECT_TRUE(whole.arrays[1].same_bits(samples.labels));
  for (const uint32_t k : order) {
    const Element row = found.node()->at(k, 0);
    ASSERT_EQ(row["input"].as<float>()[0],
              samples.images.as<float>()[static_cast<size_t>(k * one.inputs())]);
  }
}

TEST(CsvFiles, TablesEqualTablesInMemory) {
  const TestFile file("table.csv", records(20000));
  expect_equal_tables(file.path(),
                      {.targets = {"label"}, .standardize = true, .missing = MissingCells::kMean},
                      20000);
  expect_equal_tables(file.path(), {.targets = {"label"}, .missing = MissingCells::kDropRow},
                      20000 - 1819);
  expect_equal_tables(file.path(),
                      {.inputs = {"word", "a"}, .targets = {"label"}, .classes = false}, 20000);
}

TEST(CsvFiles, AScaledValueOutOfRangeNamesItsLine) {
  std::string text = "x,y\n1e38,0\n";
  for (int k = 0; k < 100; ++k) text += "0,1\n";
  text += "-3e38,1\n";
  const TestFile file("range.csv", text);
  const Table table(file.path());
  TableSchema schema = infer_schema(table, {.targets = {"y"}, .standardize = true});
  const IndexedTable rows(table, schema);
  schema.columns[0].means = {0};
  schema.columns[0].deviation = 0.5;
  expect_refused({{"range", [&] { rows.check_scaling(schema); },
                   "range.csv: line 103: column 'x': must be of float32's range when it is "
                   "standardised",
                   ErrorKind::kBadFile}});
}

}  // namespace
}  // namespace sluice::data
