#include "sluice/data/table/table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/data/files/test_bytes.h"
#include "sluice/data/test_elements.h"

namespace sluice::data {
namespace {

using test::TestFile;

/// A table in text, its schema and its samples.
struct Loaded {
  TableSchema schema;
  TableRows rows;
  Samples samples;
};

Loaded load(const std::string& text, TableChoice choice, const TableFormat& format = {}) {
  const TestFile file("t.csv", text);
  const Table table(file.path(), format);
  Loaded l{.schema = infer_schema(table, choice)};
  l.rows = read_rows(table, l.schema, {.missing = choice.missing});
  fit_scaling(l.schema, l.rows, {});
  l.samples = encode(table, l.schema, l.rows);
  return l;
}

Samples apply(const TableSchema& schema, const std::string& text, const RowChoice& choice = {}) {
  const TestFile file("a.csv", text);
  TableFormat format = schema.format;
  format.header = CsvHeader::kDetect;
  const Table table(file.path(), format, schema.names(ColumnRole::kInput));
  return encode(table, schema, read_rows(table, schema, choice));
}

std::vector<float> floats(const HostTensor& array) {
  return {array.as<float>().begin(), array.as<float>().end()};
}

std::vector<int32_t> classes(const Samples& samples) {
  const auto labels = samples.labels.as<int32_t>();
  return {labels.begin(), labels.end()};
}

using Floats = std::vector<float>;
using Classes = std::vector<int32_t>;

const TableChoice kLabel{.targets = {"label"}};

TEST(Table, NumbersKeepTheirBitsAndClassesTheirNumbers) {
  const Loaded l = load("a,b,label\n1,2.5,0\n3,-4e2,2\n", kLabel);
  EXPECT_EQ(to_string(l.schema), "inputs 2: a, b; target label, 3 classes");
  EXPECT_EQ(floats(l.samples.images), (Floats{1, 2.5, 3, -400}));
  EXPECT_EQ(classes(l.samples), (Classes{0, 2}));
}

TEST(Table, TextsBecomeClassesAndCategories) {
  const Loaded l =
      load("x,city,label\n1,Rome,yes\n2,\"Aix, \"\"en\"\"\n P\",no\n3,Rome,no\n", kLabel);
  EXPECT_EQ(to_string(l.schema),
            "inputs 2: x, city (2 categories); target label, 2 classes (no, yes)");
  EXPECT_EQ(l.schema.columns[1].values, (std::vector<std::string>{"Aix, \"en\"\n P", "Rome"}));
  EXPECT_EQ(l.schema.inputs(), 3);
  EXPECT_EQ(floats(l.samples.images), (Floats{1, 0, 1, 2, 1, 0, 3, 0, 1}));
  EXPECT_EQ(classes(l.samples), (Classes{1, 0, 0}));
  EXPECT_EQ(l.rows.lines, (std::vector<int64_t>{2, 3, 5}));
}

TEST(Table, ColumnsAreMatchedByName) {
  const Loaded l = load("a,b,label\n1,2,no\n3,4,yes\n", kLabel);
  const Samples other = apply(l.schema, "label,b,more,a\nyes,4,text,3\n");
  EXPECT_EQ(floats(other.images), (Floats{3, 4}));
  EXPECT_EQ(classes(other), Classes{1});
  const Samples named = apply(l.schema, "u,v\n5,6\n", {.inputs = {"v", "u"}, .has_targets = false});
  EXPECT_EQ(floats(named.images), (Floats{6, 5}));
  const auto with = [&](const std::string& text) { return [&l, text] { apply(l.schema, text); }; };
  expect_refused({
      {"missing", with("a,label\n1,no\n"),
       "got 'b', which is missing; wanted are a, b; the file has"
       " a, label"},
      {"case", with("a,B,label\n1,2,no\n"), "got 'b', which is missing"},
      {"twice", with("a,b,b,label\n1,2,2,no\n"),
       "must have column 'b' once, got several; it has the"
       " columns a, b, b, label"},
      {"no header", with("1.5,2,0\n"), "its line 1 is no header"},
      {"count", [&] { apply(l.schema, "a,b\n1,2\n", {.inputs = {"a"}}); },
       "must name 2 columns, one for each of the model's a, b, got 1"},
      {"class", with("a,b,label\n1,2,no\n1,2,perhaps\n"),
       "line 3: column 3 (label): must be one of no, yes, got 'perhaps'", ErrorKind::kBadFile},
  });
}

TEST(Table, ScalingIsThatOfTheTrainingRows) {
  const TestFile file("s.csv", "a,b,label\n1,5,0\n3,5,1\n100,5,1\n");
  const Table table(file.path());
  TableSchema schema = infer_schema(table, {.targets = {"label"}, .standardize = true});
  const TableRows rows = read_rows(table, schema);
  fit_scaling(schema, rows, std::vector<int64_t>{0, 1});
  EXPECT_EQ(schema.columns[0].means, std::vector<double>{2});
  EXPECT_EQ(schema.columns[0].deviation, 1);
  EXPECT_EQ(floats(encode(table, schema, rows).images), (Floats{-1, 0, 1, 0, 98, 0}));
}

TEST(Table, MissingCellsAreRefusedFilledOrDropped) {
  const std::string text = "a,city,label\n1,Rome,0\n,Bonn,1\n5,,0\nNaN,Rome,1\n3,Rome,0\n";
  const auto with = [&](MissingCells missing) {
    return load(text, {.targets = {"label"}, .missing = missing});
  };
  const Loaded mean = with(MissingCells::kMean);
  EXPECT_EQ(floats(mean.samples.images),
            (Floats{1, 0, 1, 3, 1, 0, 5, 0.25f, 0.75f, 3, 0, 1, 3, 0, 1}));
  EXPECT_EQ(mean.rows.filled, 3);
  const Loaded dropped = with(MissingCells::kDropRow);
  EXPECT_EQ(dropped.rows.dropped, 3);
  EXPECT_EQ(dropped.rows.lines, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(dropped.schema.columns[1].values, std::vector<std::string>{"Rome"});
  expect_refused({
      {"refuse", [&] { with(MissingCells::kRefuse); },
       "line 3: column 1 (a): must have a value, got ''; see --missing", ErrorKind::kBadFile},
      {"target",
       [] { load("a,label\n1,0\n2,\n", {.targets = {"label"}, .missing = MissingCells::kMean}); },
       "line 3: column 2 (label): must have a value, as it is a target", ErrorKind::kBadFile},
      {"all",
       [] { load("a,label\n1,\n,0\n", {.targets = {"label"}, .missing = MissingCells::kDropRow}); },
       "at least one row without missing cells, got none of 2", ErrorKind::kBadFile},
  });
}

TEST(Table, FormatsAreReadAsTheyAreStated) {
  const Loaded l =
      load("a;b;label\n1,5;2;0\n2,5;3;1\n", kLabel, {.separator = ';', .decimal = ','});
  EXPECT_EQ(floats(l.samples.images), (Floats{1.5, 2, 2.5, 3}));
  expect_refused({
      {"quotes", [] { load("\"a\";\"label\"\n1;2\n", kLabel); },
       "line 1: column 1: a separator must follow the quote, got ';'; give --separator ';'",
       ErrorKind::kBadFile},
      {"separator", [] { load("a;label\n1;2\n", kLabel); },
       "must have columns between ',', got one column with 1 times ';'; give --separator ';'",
       ErrorKind::kBadFile},
      {"decimal", [] { load("a;label\n1,5;0\n2;1\n", kLabel, {.separator = ';'}); },
       "line 3: column 1 (a): must be text like '1,5' in line 2, got '2'; write all cells of a "
       "column as numbers (see --decimal)",
       ErrorKind::kBadFile},
      {"all", [] { load("a;label\n1,5;0\n2,5;1\n", kLabel, {.separator = ';'}); },
       "line 2: column 1 (a): must be numbers with the decimal mark '.', got '1,5'; give --decimal "
       ",",
       ErrorKind::kBadFile},
      {"equal", [] { load("a,label\n", kLabel, {.decimal = ','}); }, "must differ"},
  });
}

TEST(Table, NoSampleIsTakenForAHeader) {
  const auto header = [](const std::string& text) {
    const TestFile file("h.csv", text);
    return Table(file.path()).format().header == CsvHeader::kYes;
  };
  EXPECT_TRUE(header("a,b\n1,x\n"));
  EXPECT_FALSE(header("5,3\n1,2\n"));
  EXPECT_FALSE(header("1.0,2.0\n1,2\n"));
  EXPECT_FALSE(header("1,1\n1,2\n"));
  const auto ambiguous = [&](const std::string& text) {
    return Refusal{text, [=] { header(text); }, "line 1: may be a header or a row",
                   ErrorKind::kBadFile};
  };
  expect_refused({ambiguous("0,1,2\n1,2,0\n"), ambiguous("2019,2020\n1,2\n"),
                  ambiguous("0,1,label\n1,2,0\n"), ambiguous("5.1,3.5,setosa\n4.9,3.0,setosa\n"),
                  ambiguous("red,small\nblue,large\n")});
  // Names of numbers are known where a schema has them.
  const Loaded l = load("0,1,2\n1.5,2,0\n3,4,1\n", {.targets = {"2"}}, {.header = CsvHeader::kYes});
  EXPECT_EQ(floats(apply(l.schema, "0,1,2\n5,6,1\n").images), (Floats{5, 6}));
  const Loaded none = load("0,1,2\n1.5,2,0\n", {.targets = {"2"}}, {.header = CsvHeader::kNo});
  EXPECT_EQ(none.rows.rows(), 2);
  EXPECT_EQ(to_string(none.schema),
            "inputs 2: 0, 1; target 2, 3 classes; no header, line 1 is a row");
}

TEST(Table, WhatCannotBeAColumnIsRefused) {
  const auto bad = [](const std::string& text, const std::string& part,
                      TableChoice choice = kLabel) {
    return Refusal{text, [=] { load(text, choice); }, part, ErrorKind::kBadFile};
  };
  const TableChoice real{.targets = {"label"}, .classes = false};
  std::string many = "a,label\n";
  for (int i = 0; i <= 1000; ++i) many += fmt::format("t{},0\n", i);
  expect_refused({
      bad("a,label\n1,0\nx,1\n", "line 3: column 1 (a): must be a number like the cell in line 2"),
      bad("a,label\n1,0\n2,0.5\n", "line 3: column 2 (label): must be a class"),
      bad("a,label\n1e300,0\n2,1\n", "line 2: column 1 (a): must be a finite number of float32's"),
      bad("a,label\n,0\n,1\n", "column 1 (a): must have a value, got none in 2 rows"),
      bad(",label\n1,0\n2,1\n", "line 1: a column that is used must have a name"),
      bad("a,label\n\xff,0\nx,1\n", "line 2: column 1 (a): must be UTF-8 text"),
      bad("a,label\n1,no\n2,yes\n", "column 2: must be a number for --loss mse, got 'no'", real),
      bad(many, "line 1002: column 1 (a): must have at most 1000 categories"),
      bad("a,label\n1,0,2\n", "line 2: must have 2 columns like line 1, got 3"),
      bad("a,label\n1,\"0\n", "line 2: column 2: the quote must end"),
      {"negative", [] { load("a,label\n1,0\n2,-1\n", kLabel); },
       "labels must be classes from 0, or text, got -1 in line 3"},
      {"both", [] { load("a,label\n1,0\n", {.inputs = {"label"}, .targets = {"label"}}); },
       "must not have the target, got 'label'"},
      {"several",
       [] {
         load("a,b,c\n1,0,1\n", {.targets = {"a", "b"}});
       },
       "must be one column of classes, got 2"},
  });
}

TEST(Table, SchemasSurviveJson) {
  Loaded l = load("x;city;label;more\n1;Rome;yes;\n2;\"B\"\"\";no;\n",
                  {.inputs = {"city", "x"},
                   .targets = {"label"},
                   .standardize = true,
                   .missing = MissingCells::kMean},
                  {.separator = ';', .decimal = ','});
  const std::string text = to_json(l.schema);
  const TableSchema read = schema_from_json(text, "w");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(to_string(read), to_string(l.schema));
  EXPECT_EQ(read.names(ColumnRole::kIgnored), std::vector<std::string>{"more"});
  EXPECT_EQ(floats(apply(read, "label;x;city\nno;1,5;Rome\n", {.missing = read.missing}).images),
            floats(apply(l.schema, "label;x;city\nno;1,5;Rome\n").images));
}

/// Any text is a schema or Error{kBadFile} naming the file.
TEST(Table, DamagedSchemasAreReadOrRefused) {
  const Loaded l = load("x,city,label\n1,Rome,yes\n2,Bonn,no\n", kLabel);
  const std::string text = to_json(l.schema);
  int refused = 0;
  const auto read = [&](const std::string& damaged) {
    try {
      schema_from_json(damaged, "w.safetensors");
    } catch (const Error& e) {
      ++refused;
      EXPECT_EQ(e.kind(), ErrorKind::kBadFile) << e.what();
      EXPECT_TRUE(std::string(e.what()).starts_with("w.safetensors: ")) << e.what();
    }
  };
  for (size_t at = 0; at < text.size(); ++at) {
    read(text.substr(0, at));
    for (const int change : {0x01, 0x02, 0x10}) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ change);
      read(changed);
    }
  }
  EXPECT_GT(refused, static_cast<int>(text.size()));
  const std::string deep(1 << 20, '[');
  read(deep);
}

}  // namespace
}  // namespace sluice::data
