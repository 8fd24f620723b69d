#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/data/files/shown.h"
#include "sluice/data/table/csv_records.h"
#include "sluice/data/table/table.h"

namespace sluice::data {

/// Values of a category, each of which is an input.
inline constexpr size_t kMaxCategories = 1000;

/// Whether a cell has no value. `is_number`: in a column of numbers.
inline bool is_missing(std::string_view cell, bool is_number) {
  constexpr std::string_view kWords[] = {"NA", "N/A", "NaN", "nan", "null", "NULL", "?"};
  if (cell.empty()) return true;
  return is_number && std::find(std::begin(kWords), std::end(kWords), cell) != std::end(kWords);
}

/// Reads the rows of a table one by one.
class RowReader {
 public:
  explicit RowReader(const Table& table)
      : table_(table), records_(*table.text(), table.format().separator) {
    if (table.format().header == CsvHeader::kYes) records_.next(cells_);
  }
  /// Reads the rows in bytes [begin, end) of the text. `line` is that of the first row.
  RowReader(const Table& table, int64_t begin, int64_t end, int64_t line)
      : table_(table), records_(*table.text(), table.format().separator, begin, end, line) {}

  /// Reads the next row. Returns whether there is one. Error{kBadFile} if its number of cells is
  /// not that of the columns.
  bool next() {
    if (records_.done()) return false;
    records_.next(cells_);
    if (cells_.size() != table_.names().size()) {
      records_.bad("must have {} columns like line 1, got {}", table_.names().size(),
                   cells_.size());
    }
    return true;
  }
  /// Skips `count` rows, whose numbers of cells were checked before.
  void skip(int64_t count) { records_.skip(count); }
  int64_t line() const { return records_.line(); }
  /// Line and byte of the file in which the next row begins.
  int64_t next_line() const { return records_.next_line(); }
  int64_t offset() const { return records_.offset(); }
  std::string_view cell(size_t column) const { return cells_[column]; }

  /// Throws Error{kBadFile} "FILE: line 3: column 2 (age): …".
  template <typename... Args>
  [[noreturn]] void bad(size_t column, fmt::format_string<Args...> format, Args&&... args) const {
    const bool has_name = table_.format().header == CsvHeader::kYes;
    records_.bad("column {}{}: {}", column + 1,
                 has_name ? fmt::format(" ({})", printable(table_.names()[column])) : "",
                 fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const Table& table_;
  CsvRecords records_;
  std::vector<std::string_view> cells_;
};

}  // namespace sluice::data
