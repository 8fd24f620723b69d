#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/files/utf8.h"
#include "sluice/data/table/row_reader.h"
#include "sluice/data/table/table.h"

namespace sluice::data {
namespace {

constexpr size_t kMaxText = 1024;

/// A chosen column and its cells.
struct Facts {
  size_t column_index = 0;
  bool is_target = false;
  bool is_number = false;
  int64_t number_line = 0;     ///< Line of the first number; 0 without one.
  int64_t text_line = 0;       ///< Line of the first cell that is neither a number nor missing.
  std::string text;            ///< That cell.
  bool has_other_mark = true;  ///< Whether all texts are numbers with the other decimal mark.
  bool has_word = false;       ///< Whether a cell is a word for a missing number.
  std::set<std::string, std::less<>> values;  ///< Texts of a column without numbers.
  int64_t largest = -1;                       ///< Largest class.
};

/// Finds out which columns are numbers. Error{kBadFile} for one that has numbers and texts.
void find_kinds(const Table& table, std::vector<Facts>& facts) {
  const char decimal = table.format().decimal, other = decimal == '.' ? ',' : '.';
  RowReader row(table);
  int64_t rows = 0;
  for (; row.next(); ++rows) {
    for (Facts& f : facts) {
      const std::string_view cell = row.cell(f.column_index);
      if (cell.empty()) continue;
      if (parse_number(cell, decimal)) {
        if (f.number_line == 0) f.number_line = row.line();
      } else if (is_missing(cell, true)) {
        f.has_word = true;
      } else {
        if (f.text_line == 0) f.text = cell;
        if (f.text_line == 0) f.text_line = row.line();
        f.has_other_mark = f.has_other_mark && parse_number(cell, other);
      }
      if (f.text_line > 0 && f.number_line > 0) {
        const bool now = f.text_line == row.line();
        row.bad(f.column_index,
                "must be {}, got {}; write all cells of a column as numbers (see --decimal) or "
                "all as text, or choose other columns with --input",
                now ? fmt::format("a number like the cell in line {}", f.number_line)
                    : fmt::format("text like {} in line {}", shown(f.text), f.text_line),
                shown(cell));
      }
    }
  }
  for (Facts& f : facts) {
    f.is_number = f.number_line > 0;
    if (f.text_line > 0 && f.has_other_mark) {
      fail(ErrorKind::kBadFile,
           "{}: line {}: column {} ({}): must be numbers with the decimal mark '{}', got {}; give "
           "--decimal {}",
           table.path(), f.text_line, f.column_index + 1, printable(table.names()[f.column_index]),
           decimal, shown(f.text), other);
    }
    if (!f.is_number && f.text_line == 0 && !f.has_word) {
      row.bad(f.column_index,
              "must have a value, got none in {} rows; choose other columns with --input", rows);
    }
  }
}

int64_t label_of_cell(const RowReader& row, const Facts& f, char decimal) {
  const double value = *parse_number(row.cell(f.column_index), decimal);
  if (!can_store(i32, value)) {
    row.bad(f.column_index, "must be a class, {} or text, got {}; real numbers require --loss mse",
            taken_by(i32), shown(row.cell(f.column_index)));
  }
  return static_cast<int64_t>(value);
}

/// Collects the texts of categories and the labels of classes. Rows that are dropped do not count.
void find_values(const Table& table, const TableChoice& choice, std::vector<Facts>& facts) {
  RowReader row(table);
  while (row.next()) {
    const bool has_missing = std::any_of(facts.begin(), facts.end(), [&](const Facts& f) {
      return is_missing(row.cell(f.column_index), f.is_number);
    });
    if (has_missing && choice.missing == MissingCells::kDropRow) continue;
    for (Facts& f : facts) {
      const std::string_view cell = row.cell(f.column_index);
      if (is_missing(cell, f.is_number)) continue;
      if (f.is_number) {
        if (!f.is_target || !choice.classes) continue;
        const int64_t label = label_of_cell(row, f, table.format().decimal);
        require(label >= 0,
                "--target: labels must be classes from 0, or text, got {} in line {} of {}", label,
                row.line(), table.path());
        f.largest = std::max(f.largest, label);
        continue;
      }
      if (f.values.contains(cell)) continue;
      if (cell.size() > kMaxText || !is_utf8(cell)) {
        row.bad(f.column_index, "must be UTF-8 text of at most {} bytes, got {}", kMaxText,
                shown(cell));
      }
      f.values.emplace(cell);
      if (!f.is_target && f.values.size() > kMaxCategories) {
        row.bad(f.column_index,
                "must have at most {} categories, got more; choose other columns with --input",
                kMaxCategories);
      }
    }
  }
}

/// Refuses a name that a saved schema cannot have or that cannot be matched.
void check_name(const Table& table, const std::string& name) {
  if (!name.empty() && name.size() <= kMaxText && is_utf8(name)) return;
  fail(ErrorKind::kBadFile,
       "{}: line 1: a column that is used must have a name in UTF-8 of 1 to {} bytes, got {}; "
       "choose other columns with --input",
       table.path(), kMaxText, shown(name));
}

void add_column(const Table& table, const Facts& f, const TableChoice& choice,
                TableSchema& schema) {
  TableColumn column{.name = table.names()[f.column_index],
                     .role = f.is_target ? ColumnRole::kTarget : ColumnRole::kInput};
  const std::vector<std::string> values(f.values.begin(), f.values.end());
  if (f.is_target && choice.classes) {
    schema.labels = values;
    schema.classes = f.is_number ? f.largest + 1 : std::ssize(values);
  } else {
    if (f.is_target && !f.is_number) {
      fail(ErrorKind::kBadFile, "{}: line {}: column {}: must be a number for --loss mse, got {}",
           table.path(), f.text_line, f.column_index + 1, shown(f.text));
    }
    column.values = values;
    column.means.assign(std::max<size_t>(1, values.size()), 0);
  }
  schema.columns.push_back(std::move(column));
}

}  // namespace

TableSchema infer_schema(const Table& table, const TableChoice& choice) {
  require(!choice.classes || choice.targets.size() <= 1,
          "--target: must be one column of classes, got {}; --loss mse takes several",
          choice.targets.size());
  const std::vector<size_t> targets = table.columns_of(choice.targets, "--target");
  std::vector<size_t> inputs = table.columns_of(choice.inputs, "--input");
  const auto is_in = [](const std::vector<size_t>& column_indices, size_t c) {
    return std::find(column_indices.begin(), column_indices.end(), c) != column_indices.end();
  };
  std::vector<std::string> others;
  for (size_t c = 0; c < table.names().size(); ++c) {
    if (!is_in(targets, c) && choice.inputs.empty()) others.push_back(table.names()[c]);
  }
  if (choice.inputs.empty()) {
    for (const std::string& name : others) check_name(table, name);
    inputs = table.columns_of(others, "--input");
  }
  require(!inputs.empty(), "--input: must be at least one column besides the target, got none");
  std::vector<Facts> facts;
  for (const size_t c : inputs) {
    require(!is_in(targets, c), "--input: must not have the target, got '{}'", table.names()[c]);
    facts.push_back({.column_index = c});
  }
  for (const size_t c : targets) facts.push_back({.column_index = c, .is_target = true});
  for (const Facts& f : facts) check_name(table, table.names()[f.column_index]);
  find_kinds(table, facts);
  find_values(table, choice, facts);

  TableSchema schema{
      .standardized = choice.standardize, .missing = choice.missing, .format = table.format()};
  for (const Facts& f : facts) add_column(table, f, choice, schema);
  for (size_t c = 0; c < table.names().size(); ++c) {
    const std::string& name = table.names()[c];
    if (!is_in(inputs, c) && !is_in(targets, c) && is_utf8(name))
      schema.columns.push_back({.name = name, .role = ColumnRole::kIgnored});
  }
  return schema;
}

}  // namespace sluice::data
