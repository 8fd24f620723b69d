#include "sluice/data/table/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/data/files/shown.h"
#include "sluice/data/table/csv_records.h"

namespace sluice::data {
namespace {

/// Lists names without control characters, at most the first ones and the last one of many.
std::string listed(std::span<const std::string> names) {
  constexpr size_t kMax = 24, kFirst = 20;
  std::vector<std::string> all;
  for (size_t i = 0; i < (names.size() <= kMax ? names.size() : kFirst); ++i)
    all.push_back(printable(names[i]));
  if (names.size() <= kMax) return fmt::format("{}", fmt::join(all, ", "));
  return fmt::format("{}, ..., {} ({} in all)", fmt::join(all, ", "), printable(names.back()),
                     names.size());
}

/// The kinds of the cells of a column below line 1.
struct Kinds {
  int64_t numbers = 0;
  int64_t texts = 0;
};

/// Examines the records after those that were read.
std::vector<Kinds> kinds_below(const CsvRecords& read, size_t columns, const TableFormat& format) {
  CsvRecords records(read.text(), format.separator, read.offset(), read.text().end(),
                     read.next_line());
  std::vector<Kinds> kinds(columns);
  std::vector<std::string_view> cells;
  constexpr int kRows = 1000;  // The rule asks whether a column has a number.
  for (int row = 0; row < kRows && !records.done(); ++row) {
    records.next(cells);
    for (size_t c = 0; c < std::min(columns, cells.size()); ++c)
      ++(parse_number(cells[c], format.decimal) ? kinds[c].numbers : kinds[c].texts);
  }
  return kinds;
}

bool is_whole(std::string_view cell) {
  return !cell.empty() && cell.size() <= 18 && cell.find_first_not_of("0123456789") == cell.npos;
}

/// Whether the cells are whole numbers in ascending order, as those of a header of numbers.
bool are_ascending(const std::vector<std::string_view>& cells) {
  if (cells.size() < 2 || !std::all_of(cells.begin(), cells.end(), is_whole)) return false;
  const auto not_ascending = std::adjacent_find(cells.begin(), cells.end(), [](auto a, auto b) {
    return *parse_number(a) >= *parse_number(b);
  });
  return not_ascending == cells.end();
}

/// Whether line 1 is a header.
bool detect_header(const CsvRecords& records, const std::vector<std::string_view>& cells,
                   const TableFormat& format, std::span<const std::string> known) {
  if (format.header != CsvHeader::kDetect) return format.header == CsvHeader::kYes;
  const auto has = [&](const std::string& name) {
    return std::find(cells.begin(), cells.end(), name) != cells.end();
  };
  if (!known.empty() && std::all_of(known.begin(), known.end(), has)) return true;
  const auto numbers = std::count_if(cells.begin(), cells.end(), [&](auto cell) {
    return parse_number(cell, format.decimal).has_value();
  });
  if (numbers == std::ssize(cells) && !are_ascending(cells)) return false;
  if (numbers == 0) {
    if (records.done()) return true;
    const std::vector<Kinds> below = kinds_below(records, cells.size(), format);
    if (std::any_of(below.begin(), below.end(), [](const Kinds& k) { return k.numbers > 0; }))
      return true;
  }
  std::vector<std::string> shown_cells;
  for (const std::string_view cell : cells) shown_cells.push_back(shown(cell));
  records.bad("may be a header or a row, got {}; give --header yes or --header no",
              listed(shown_cells));
}

/// Refuses a table that seems to have another separator.
void check_columns(const CsvRecords& records, const std::vector<std::string_view>& cells,
                   char separator) {
  if (cells.size() != 1) return;
  for (const char other : {';', '\t', '|', ','}) {
    const auto found = std::count(cells[0].begin(), cells[0].end(), other);
    if (other == separator || found == 0) continue;
    const std::string name = other == '\t' ? "tab" : fmt::format("'{}'", other);
    const std::string own = separator == '\t' ? "a tab" : fmt::format("'{}'", separator);
    records.bad(
        "must have columns between {}, got one column with {} times {}; give --separator "
        "{}",
        own, found, name, name);
  }
}

}  // namespace

Table::Table(const std::string& path, const TableFormat& format, std::span<const std::string> known)
    : path_(path), format_(format) {
  check_separator(format.separator, "table");
  require(format.decimal == '.' || format.decimal == ',',
          "table: the decimal mark must be '.' or ',', got byte {}",
          static_cast<int>(format.decimal));
  require(format.decimal != format.separator,
          "table: the decimal mark and the separator must differ, got '{}' for both; give "
          "--separator and --decimal",
          format.decimal);
  text_ = std::make_shared<const CsvText>(path);
  CsvRecords records(*text_, format_.separator);
  if (records.done()) {
    fail(ErrorKind::kBadFile, "{}: line 1: must have at least one row of numbers, got none", path_);
  }
  std::vector<std::string_view> cells;
  records.next(cells);
  check_columns(records, cells, format_.separator);
  const bool has_header = detect_header(records, cells, format_, known);
  format_.header = has_header ? CsvHeader::kYes : CsvHeader::kNo;
  for (size_t c = 0; c < cells.size(); ++c)
    names_.push_back(has_header ? std::string(cells[c]) : std::to_string(c));
  if (has_header && records.done()) {
    fail(ErrorKind::kBadFile, "{}: line {}: must have at least one row of numbers, got none", path_,
         records.line() + 1);
  }
}

std::vector<size_t> Table::columns_of(std::span<const std::string> wanted,
                                      std::string_view what) const {
  std::vector<size_t> column_indices;
  for (const std::string& name : wanted) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const bool is_twice =
        found != names_.end() && std::find(found + 1, names_.end(), name) != names_.end();
    if (found != names_.end() && !is_twice) {
      column_indices.push_back(std::distance(names_.begin(), found));
      continue;
    }
    const char* const header =
        format_.header == CsvHeader::kYes ? "" : "; its line 1 is no header (see --header)";
    if (is_twice) {
      fail(ErrorKind::kUsage,
           "{}: {} must have column '{}' once, got several; it has the columns {}", what, path_,
           name, listed(names_));
    }
    if (wanted.size() == 1) {
      fail(ErrorKind::kUsage, "{}: must be one of the columns {}, got '{}'; the file is {}{}", what,
           listed(names_), name, path_, header);
    }
    fail(ErrorKind::kUsage,
         "{}: must be columns of {}, got '{}', which is missing; wanted are {}; the file has {}{}",
         what, path_, name, listed(wanted), listed(names_), header);
  }
  return column_indices;
}

std::vector<std::string> TableSchema::names(ColumnRole role) const {
  std::vector<std::string> names;
  for (const TableColumn& column : columns) {
    if (column.role == role) names.push_back(column.name);
  }
  return names;
}

int64_t TableSchema::inputs() const {
  int64_t count = 0;
  for (const TableColumn& column : columns) {
    if (column.role == ColumnRole::kInput)
      count += column.values.empty() ? 1 : std::ssize(column.values);
  }
  return count;
}

std::string to_string(const TableSchema& schema) {
  std::vector<std::string> inputs;
  for (const TableColumn& column : schema.columns) {
    if (column.role != ColumnRole::kInput) continue;
    inputs.push_back(column.values.empty()
                         ? column.name
                         : fmt::format("{} ({} categories)", column.name, column.values.size()));
  }
  std::string text = fmt::format("inputs {}: {}", inputs.size(), listed(inputs));
  const std::vector<std::string> targets = schema.names(ColumnRole::kTarget);
  if (!targets.empty()) {
    text += fmt::format("; target{} {}", targets.size() == 1 ? "" : "s", listed(targets));
  }
  if (schema.classes > 0) text += fmt::format(", {} classes", schema.classes);
  if (!schema.labels.empty()) text += fmt::format(" ({})", listed(schema.labels));
  const std::vector<std::string> ignored = schema.names(ColumnRole::kIgnored);
  if (!ignored.empty()) text += fmt::format("; ignored {}", listed(ignored));
  if (schema.standardized) text += "; standardised";
  if (schema.format.header == CsvHeader::kNo) text += "; no header, line 1 is a row";
  return text;
}

}  // namespace sluice::data
