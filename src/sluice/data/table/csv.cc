#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/table/csv_records.h"
#include "sluice/data/table/csv_text.h"
#include "sluice/data/table/record_index.h"
#include "sluice/data/window/folder_parts.h"
#include "sluice/data/window/indexed_node.h"
#include "sluice/data/window/indexed_rows.h"

namespace sluice::data {
namespace {

using internal::ElementView;
using internal::IndexedNode;
using internal::Node;

constexpr std::string_view kEnding = ".csv";
constexpr int64_t kMaxHeldBytes = int64_t{4} << 20;  // Numbers that are held in memory.

/// The columns of one field.
struct Field {
  std::vector<size_t> columns;
  DType dtype = f32;

  /// Writes the numbers of a record.
  void read(const CsvRecords& lines, const std::vector<std::string_view>& cells,
            std::byte* out) const {
    for (const size_t column : columns) {
      const std::optional<double> value = parse_number(cells[column]);
      if (!value || !can_store(dtype, *value)) {
        lines.bad("column {}: must be {}, got {}", column + 1,
                  is_float(dtype) ? "a finite number of float32's range" : taken_by(dtype),
                  shown(cells[column]));
      }
      visit_storage(dtype, [&]<typename T>(T) {
        const T stored = static_cast<T>(*value);
        std::memcpy(out, &stored, sizeof(T));
        out += sizeof(T);
      });
    }
  }
};

/// The records of a CSV file as numbers, which are parsed when they are asked for.
class CsvRows final : public IndexedNode {
 public:
  CsvRows(std::shared_ptr<const CsvText> text, char separator, std::vector<Field> fields,
          RecordIndex index, ElementSpecs specs)
      : IndexedNode(std::move(specs), index.records()),
        text_(std::move(text)),
        separator_(separator),
        fields_(std::move(fields)),
        index_(std::move(index)) {}

  Element at(int64_t k, uint64_t /*pass*/) const override {
    Element element = blank();
    read(k, [&](size_t field) { return element.arrays[field].bytes().data(); });
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    if (!fits(to)) return Node::write_at(k, pass, to);  // Reports the difference.
    read(k, [&](size_t field) { return to.arrays[field].data; });
    return fields_.size();
  }

 private:
  /// Writes field f of record k to to(f).
  template <typename To>
  void read(int64_t k, const To& to) const {
    const RecordIndex::Span span = index_.find(k);
    CsvRecords lines(*text_, separator_, span.begin, span.end, span.line);
    std::vector<std::string_view> cells;
    lines.skip(span.skipped);
    lines.next(cells);
    for (size_t f = 0; f < fields_.size(); ++f) fields_[f].read(lines, cells, to(f));
  }

  std::shared_ptr<const CsvText> text_;
  char separator_;
  std::vector<Field> fields_;
  RecordIndex index_;
};

void check_options(const CsvOptions& options) {
  check_separator(options.separator, "from_csv");
  for (const CsvField& field : options.fields) {
    const bool has_one = field.column.number >= 0 || !field.column.name.empty();
    require(has_one != !field.columns.empty(),
            "from_csv: field '{}' must have either .column or .columns, got {}", field.name,
            has_one ? "both" : "neither");
    require(field.dtype == f32 || field.dtype == i32 || field.dtype == u32 || field.dtype == u8 ||
                field.dtype == boolean,
            "from_csv: the dtype of field '{}' must be f32, i32, u32, u8 or bool, got {}",
            field.name, name_of(field.dtype));
    require(field.name.empty() == options.fields[0].name.empty(),
            "from_csv: all fields must have names, or none; got both");
  }
}

/// Returns the index of a column. `names` is empty without a header.
size_t column_of(const std::string& path, const CsvColumn& column, size_t columns,
                 const std::vector<std::string>& names) {
  if (column.number >= 0) {
    require(column.number < static_cast<int64_t>(columns),
            "{}: the column must be in [0, {}), got {}", path, columns, column.number);
    return column.number;
  }
  require(!names.empty(),
          "{}: column '{}' requires a header in line 1, got numbers; name columns by their numbers",
          path, column.name);
  const auto found = std::find(names.begin(), names.end(), column.name);
  require(found != names.end(), "{}: the column must be one of [{}], got '{}'", path,
          fmt::join(names, ", "), column.name);
  require(std::count(found, names.end(), column.name) == 1,
          "{}: the header must have column '{}' once, got more; name columns by their numbers",
          path, column.name);
  return std::distance(names.begin(), found);
}

/// Whether the first line is a header.
bool is_header(const CsvRecords& lines, const std::vector<std::string_view>& cells,
               CsvHeader header) {
  if (header != CsvHeader::kDetect) return header == CsvHeader::kYes;
  const auto numbers = std::count_if(cells.begin(), cells.end(),
                                     [](auto cell) { return parse_number(cell).has_value(); });
  if (numbers != 0 && numbers != std::ssize(cells)) {
    lines.bad(
        "must be all names or all numbers, got {} numbers in {} columns; set "
        "CsvOptions::header",
        numbers, cells.size());
  }
  return numbers == 0;
}

/// The fields to read if the caller names none: one array of all columns.
std::vector<CsvField> all_columns(size_t columns) {
  CsvField all;
  for (size_t i = 0; i < columns; ++i) all.columns.emplace_back(static_cast<int>(i));
  return {all};
}

}  // namespace

std::vector<std::string> csv_columns(const std::string& path, const CsvOptions& options) {
  check_options(options);
  const CsvText text(parts_of(path, {kEnding})[0]);
  CsvRecords lines(text, options.separator);
  if (lines.done())
    fail(ErrorKind::kBadFile, "{}: line 1: must have at least one column, got none", text.path());
  std::vector<std::string_view> cells;
  lines.next(cells);
  std::vector<std::string> names(cells.begin(), cells.end());
  if (is_header(lines, cells, options.header)) return names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  return names;
}

namespace {

/// Parses all records, so that errors are thrown at once, and returns their positions.
RecordIndex read_records(CsvRecords& lines, const std::vector<Field>& fields, size_t columns,
                         int64_t max_positions) {
  RecordIndex index(max_positions);
  std::vector<std::string_view> cells;
  size_t widest = 0;
  for (const Field& field : fields) widest = std::max(widest, field.columns.size());
  std::vector<std::byte> numbers(widest * sizeof(uint32_t));
  do {
    index.add(lines.offset(), lines.next_line());
    lines.next(cells);
    if (cells.size() != columns) {
      lines.bad("must have {} columns like line 1, got {}", columns, cells.size());
    }
    for (const Field& field : fields) field.read(lines, cells, numbers.data());
  } while (!lines.done());
  index.finish(lines.offset());
  return index;
}

/// A file of from_csv().
struct CsvPart {
  Dataset rows;
  std::vector<std::string> names;  ///< Names in the header; empty without one.
};

CsvPart csv_part(const std::string& path, const CsvOptions& options,
                 const std::shared_ptr<WindowMemory>& memory, int64_t max_positions) {
  const auto text = std::make_shared<const CsvText>(path, memory);
  const auto no_rows = [&](int64_t line) {
    fail(ErrorKind::kBadFile, "{}: line {}: must have at least one row of numbers, got none", path,
         line);
  };
  CsvRecords first(*text, options.separator);
  if (first.done()) no_rows(1);
  std::vector<std::string_view> cells;
  first.next(cells);
  const size_t columns = cells.size();
  std::vector<std::string> names;
  int64_t begin = text->begin(), line = 1;
  if (is_header(first, cells, options.header)) {
    names.assign(cells.begin(), cells.end());
    if (first.done()) no_rows(first.line() + 1);
    begin = first.offset();
    line = first.next_line();
  }
  const std::vector<CsvField> wanted =
      options.fields.empty() ? all_columns(columns) : options.fields;
  std::vector<Field> fields;
  ElementSpecs specs;
  for (const CsvField& field : wanted) {
    Field& added = fields.emplace_back();
    added.dtype = field.dtype;
    const std::vector<CsvColumn> one{field.column};
    for (const CsvColumn& column : field.columns.empty() ? one : field.columns)
      added.columns.push_back(column_of(path, column, columns, names));
    const Shape shape =
        field.columns.empty() ? Shape{} : Shape{static_cast<int64_t>(added.columns.size())};
    specs.arrays.push_back({shape, field.dtype, {}});
    if (!field.name.empty()) specs.names.push_back(field.name);
  }
  internal::check_names(specs.arrays.size(), specs.names, "from_csv");
  CsvRecords records(*text, options.separator, begin, text->end(), line);
  RecordIndex index = read_records(records, fields, columns, max_positions);
  const Dataset rows(std::make_shared<const CsvRows>(text, options.separator, std::move(fields),
                                                     std::move(index), std::move(specs)));
  return {rows, std::move(names)};
}

}  // namespace

Dataset from_csv(const std::string& path, const CsvOptions& options) {
  check_options(options);
  const std::vector<std::string> parts = parts_of(path, {kEnding});
  const int64_t max_positions =
      std::max<int64_t>(RecordIndex::kMaxPositions / std::ssize(parts), 16);
  std::optional<std::vector<std::string>> names;
  const Dataset rows = join_parts(parts, [&](const std::string& part, const auto& memory) {
    CsvPart found = csv_part(part, options, memory, max_positions);
    if (!names) names = found.names;
    if (found.names != *names) {
      fail(ErrorKind::kBadFile, "{}: line 1: must have the columns [{}] of {}, got [{}]", part,
           fmt::join(*names, ", "), parts[0], fmt::join(found.names, ", "));
    }
    return found.rows;
  });
  const ElementSpecs specs = *rows.element_specs();
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs.arrays) bytes += spec.bytes();
  return bytes <= kMaxHeldBytes / *rows.size() ? hold_rows(rows) : rows;
}

}  // namespace sluice::data
