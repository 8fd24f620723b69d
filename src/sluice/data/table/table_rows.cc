#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/data/table/row_reader.h"
#include "sluice/data/table/table.h"

namespace sluice::data {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

/// A column of the schema that is read, and its index in the table.
struct ReadColumn {
  const TableColumn* column = nullptr;
  const std::vector<std::string>* values = nullptr;  ///< Null for numbers.
  size_t column_index = 0;
  bool is_class = false;
};

std::vector<ReadColumn> columns_to_read(const Table& table, const TableSchema& schema,
                                        const RowChoice& choice) {
  std::vector<ReadColumn> columns;
  const auto add = [&](ColumnRole role, const std::vector<std::string>& chosen, const char* what) {
    const std::vector<std::string> own = schema.names(role);
    require(chosen.empty() || chosen.size() == own.size(),
            "{}: must name {} columns, one for each of the model's {}, got {}", what, own.size(),
            fmt::join(own, ", "), chosen.size());
    const std::vector<size_t> column_indices =
        table.columns_of(chosen.empty() ? own : chosen, what);
    size_t k = 0;
    for (const TableColumn& column : schema.columns) {
      if (column.role != role) continue;
      const bool is_class = role == ColumnRole::kTarget && schema.classes > 0;
      const std::vector<std::string>& values = is_class ? schema.labels : column.values;
      columns.push_back(
          {&column, values.empty() ? nullptr : &values, column_indices[k++], is_class});
    }
  };
  add(ColumnRole::kInput, choice.inputs, "--input");
  if (choice.has_targets) add(ColumnRole::kTarget, choice.targets, "--target");
  return columns;
}

/// Returns the number for a cell that is not missing.
double value_of(const RowReader& row, const ReadColumn& c, char decimal) {
  const std::string_view cell = row.cell(c.column_index);
  if (c.values != nullptr) {
    const auto found = std::lower_bound(c.values->begin(), c.values->end(), cell);
    if (found == c.values->end() || *found != cell) {
      std::string known;
      for (size_t i = 0; i < std::min<size_t>(c.values->size(), 20); ++i)
        known += (i == 0 ? "" : ", ") + printable((*c.values)[i]);
      row.bad(c.column_index, "must be one of {}{}, got {}", known,
              c.values->size() > 20 ? ", ..." : "", shown(cell));
    }
    return static_cast<double>(found - c.values->begin());
  }
  const std::optional<double> value = parse_number(cell, decimal);
  const DType dtype = c.is_class ? i32 : f32;
  if (!value || !can_store(dtype, *value) || (c.is_class && *value < 0)) {
    row.bad(c.column_index, "must be {}, got {}",
            c.is_class ? "a class from 0" : "a finite number of float32's range", shown(cell));
  }
  return *value;
}

/// Returns kMissing for a missing cell, if the choice allows one there.
double missing_value(const RowReader& row, const ReadColumn& c, MissingCells missing) {
  if (missing == MissingCells::kRefuse) {
    row.bad(c.column_index, "must have a value, got {}; see --missing mean and --missing drop-row",
            shown(row.cell(c.column_index)));
  }
  if (missing == MissingCells::kMean && c.column->role == ColumnRole::kTarget) {
    row.bad(c.column_index, "must have a value, as it is a target, got {}; see --missing drop-row",
            shown(row.cell(c.column_index)));
  }
  return kMissing;
}

}  // namespace

TableRows read_rows(const Table& table, const TableSchema& schema, const RowChoice& choice) {
  const std::vector<ReadColumn> columns = columns_to_read(table, schema, choice);
  TableRows rows;
  RowReader row(table);
  while (row.next()) {
    const auto lacks = [&](const ReadColumn& c) {
      return is_missing(row.cell(c.column_index), c.values == nullptr);
    };
    const int64_t missing = std::count_if(columns.begin(), columns.end(), lacks);
    if (missing > 0 && choice.missing == MissingCells::kDropRow) {
      ++rows.dropped;
      continue;
    }
    for (const ReadColumn& c : columns) {
      rows.cells.push_back(lacks(c) ? missing_value(row, c, choice.missing)
                                    : value_of(row, c, table.format().decimal));
    }
    rows.filled += missing;
    rows.lines.push_back(row.line());
  }
  if (rows.rows() == 0) {
    fail(ErrorKind::kBadFile,
         "{}: must have at least one row without missing cells, got none of {}", table.path(),
         rows.dropped);
  }
  return rows;
}

void fit_scaling(TableSchema& schema, const TableRows& rows, std::span<const int64_t> training) {
  std::vector<int64_t> all(rows.lines.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  const Slices cells(std::span(rows.cells), rows.rows());
  size_t column_index = 0;
  for (TableColumn& column : schema.columns) {
    if (column.role != ColumnRole::kInput) continue;
    std::vector<double> found;
    // The second iteration is for a column without a value in the training rows.
    for (const std::span<const int64_t> chosen : {training, std::span<const int64_t>(all)}) {
      if (!found.empty()) break;
      for (const int64_t r : chosen) {
        const double x = cells[r][column_index];
        if (!std::isnan(x)) found.push_back(x);
      }
    }
    ++column_index;
    const auto count = static_cast<double>(std::max<size_t>(found.size(), 1));
    if (!column.values.empty()) {
      column.means.assign(column.values.size(), 0);
      for (const double x : found) at(column.means, static_cast<int64_t>(x)) += 1 / count;
      continue;
    }
    double mean = 0, squares = 0;
    for (const double x : found) mean += x / count;
    for (const double x : found) squares += (x - mean) * (x - mean) / count;
    column.means = {mean};
    // A constant column becomes 0.
    column.deviation = schema.standardized && squares > 0 ? std::sqrt(squares) : 1;
  }
}

Samples encode(const Table& table, const TableSchema& schema, const TableRows& rows) {
  const int64_t n = rows.rows();
  const auto width = static_cast<int64_t>(rows.cells.size()) / n;
  const auto input_columns = static_cast<int64_t>(schema.names(ColumnRole::kInput).size());
  const int64_t targets = width - input_columns;
  Samples samples;
  samples.source = table.path();
  samples.images = HostTensor({{n, schema.inputs()}, f32, {}});
  if (schema.classes > 0) {
    samples.labels = HostTensor({{targets == 0 ? 0 : n}, i32, {}});
  } else {
    samples.labels = HostTensor({targets == 1 ? Shape{n} : Shape{n, targets}, f32, {}});
  }
  auto out = samples.images.as<float>().begin();
  auto cell = rows.cells.begin();
  for (int64_t r = 0; r < n; ++r) {
    for (const TableColumn& column : schema.columns) {
      if (column.role != ColumnRole::kInput) continue;
      const double x = *cell++;
      if (!column.values.empty()) {
        for (size_t v = 0; v < column.values.size(); ++v)
          *out++ =
              static_cast<float>(std::isnan(x) ? column.means[v] : x == static_cast<double>(v));
        continue;
      }
      const double known = std::isnan(x) ? column.means[0] : x;
      *out = static_cast<float>(schema.standardized ? (known - column.means[0]) / column.deviation
                                                    : known);
      if (!std::isfinite(*out++)) {
        fail(ErrorKind::kBadFile,
             "{}: line {}: column '{}': must be of float32's range when it is standardised, got {}",
             table.path(), at(rows.lines, r), printable(column.name), x);
      }
    }
    for (int64_t t = 0; t < targets; ++t, ++cell) {
      if (schema.classes > 0) {
        at(samples.labels.as<int32_t>(), r) = static_cast<int32_t>(*cell);
      } else {
        at(samples.labels.as<float>(), r * targets + t) = static_cast<float>(*cell);
      }
    }
  }
  return samples;
}

}  // namespace sluice::data
