#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/table/csv_records.h"

namespace sluice::data {
namespace {

/// The columns of one field, and its values so far.
class Field {
 public:
  Field(const CsvField& field, std::vector<size_t> columns)
      : field_(field), columns_(std::move(columns)) {}

  void add(const CsvRecords& lines, const std::vector<std::string_view>& cells) {
    for (const size_t column : columns_) {
      const std::optional<double> value = parse_number(cells[column]);
      if (!value || !can_store(field_.dtype, *value)) {
        lines.bad(
            "column {}: must be {}, got {}", column + 1,
            is_float(field_.dtype) ? "a finite number of float32's range" : taken_by(field_.dtype),
            shown(cells[column]));
      }
      visit_storage(field_.dtype, [&]<typename T>(T) {
        const T stored = static_cast<T>(*value);
        const auto* const bytes = reinterpret_cast<const std::byte*>(&stored);
        bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
      });
    }
  }

  HostTensor array(int64_t rows) const {
    Shape shape{rows};
    if (!field_.columns.empty()) shape = {rows, static_cast<int64_t>(columns_.size())};
    HostTensor array({shape, field_.dtype, {}});
    std::copy(bytes_.begin(), bytes_.end(), array.bytes().begin());
    return array;
  }

 private:
  const CsvField& field_;
  std::vector<size_t> columns_;
  std::vector<std::byte> bytes_;
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
  const std::vector<std::byte> bytes = read_contents(path, Contents::kText, "a CSV file");
  CsvRecords lines(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                   options.separator);
  if (lines.done())
    fail(ErrorKind::kBadFile, "{}: line 1: must have at least one column, got none", path);
  std::vector<std::string_view> cells;
  lines.next(cells);
  std::vector<std::string> names(cells.begin(), cells.end());
  if (is_header(lines, cells, options.header)) return names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  return names;
}

Dataset from_csv(const std::string& path, const CsvOptions& options) {
  check_options(options);
  const std::vector<std::byte> bytes = read_contents(path, Contents::kText, "a CSV file");
  CsvRecords lines(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                   options.separator);
  const auto no_rows = [&] {
    fail(ErrorKind::kBadFile, "{}: line {}: must have at least one row of numbers, got none", path,
         lines.line() + 1);
  };
  if (lines.done()) no_rows();

  std::vector<std::string_view> cells;
  lines.next(cells);
  const size_t columns = cells.size();
  const bool has_header = is_header(lines, cells, options.header);
  std::vector<std::string> names;
  if (has_header) {
    names.assign(cells.begin(), cells.end());
    if (lines.done()) no_rows();
    lines.next(cells);
  }
  const std::vector<CsvField> wanted =
      options.fields.empty() ? all_columns(columns) : options.fields;
  std::vector<Field> fields;
  for (const CsvField& field : wanted) {
    std::vector<size_t> column_indices;
    const std::vector<CsvColumn> one{field.column};
    for (const CsvColumn& column : field.columns.empty() ? one : field.columns) {
      column_indices.push_back(column_of(path, column, columns, names));
    }
    fields.emplace_back(field, std::move(column_indices));
  }

  int64_t rows = 0;
  while (true) {
    if (cells.size() != columns) {
      lines.bad("must have {} columns like line 1, got {}", columns, cells.size());
    }
    for (Field& field : fields) field.add(lines, cells);
    ++rows;
    if (lines.done()) break;
    lines.next(cells);
  }
  Element arrays;
  for (size_t i = 0; i < fields.size(); ++i) {
    arrays.arrays.push_back(fields[i].array(rows));
    if (!wanted[i].name.empty()) arrays.names.push_back(wanted[i].name);
  }
  return from_tensors(std::move(arrays));
}

}  // namespace sluice::data
