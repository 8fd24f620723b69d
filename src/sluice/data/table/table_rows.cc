#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/numbers/slices.h"
#include "sluice/data/table/row_numbers.h"
#include "sluice/data/table/row_reader.h"
#include "sluice/data/table/table.h"

namespace sluice::data {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

}  // namespace

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

namespace {

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

std::optional<int64_t> append_cells(const RowReader& row, const std::vector<ReadColumn>& columns,
                                    MissingCells missing, char decimal,
                                    std::vector<double>& cells) {
  const auto lacks = [&](const ReadColumn& c) {
    return is_missing(row.cell(c.column_index), c.values == nullptr);
  };
  const int64_t count = std::count_if(columns.begin(), columns.end(), lacks);
  if (count > 0 && missing == MissingCells::kDropRow) return std::nullopt;
  for (const ReadColumn& c : columns)
    cells.push_back(lacks(c) ? missing_value(row, c, missing) : value_of(row, c, decimal));
  return count;
}

TableRows read_rows(const Table& table, const TableSchema& schema, const RowChoice& choice) {
  const std::vector<ReadColumn> columns = columns_to_read(table, schema, choice);
  TableRows rows;
  RowReader row(table);
  while (row.next()) {
    const auto missing =
        append_cells(row, columns, choice.missing, table.format().decimal, rows.cells);
    if (!missing) {
      ++rows.dropped;
      continue;
    }
    rows.filled += *missing;
    rows.lines.push_back(row.line());
  }
  if (rows.rows() == 0) {
    fail(ErrorKind::kBadFile,
         "{}: must have at least one row without missing cells, got none of {}", table.path(),
         rows.dropped);
  }
  return rows;
}

namespace {

/// The statistics of one input while its rows are visited.
struct Fit {
  TableColumn* column = nullptr;
  int64_t known = 0;      ///< Cells with a value.
  bool uses_all = false;  ///< Whether no row for training has a value.
  double mean = 0;
  double squares = 0;
};

/// Calls f(fit, number) for each cell that counts: those of the training rows, or of all rows for a
/// column without a value in them.
template <typename F>
void for_known(std::vector<Fit>& fits, const CellVisitor& training, const CellVisitor& all, F f) {
  for (const bool uses_all : {false, true}) {
    if (std::none_of(fits.begin(), fits.end(), [&](auto& x) { return x.uses_all == uses_all; }))
      continue;
    (uses_all ? all : training)([&](std::span<const double> cells) {
      for (size_t c = 0; c < fits.size(); ++c) {
        if (fits[c].uses_all == uses_all && !std::isnan(cells[c])) f(fits[c], cells[c]);
      }
    });
  }
}

}  // namespace

void fit_scaling(TableSchema& schema, const CellVisitor& training, const CellVisitor& all,
                 std::optional<int64_t> complete_rows) {
  std::vector<Fit> fits;
  for (TableColumn& column : schema.columns) {
    if (column.role == ColumnRole::kInput)
      fits.push_back({.column = &column, .known = complete_rows.value_or(0)});
  }
  const auto count = [](Fit& fit, double) { ++fit.known; };
  if (!complete_rows) for_known(fits, training, all, count);
  bool uses_all = false;
  for (Fit& fit : fits) uses_all = (fit.uses_all = fit.known == 0) || uses_all;
  if (uses_all) {
    const CellVisitor none = [](const auto&) {};
    for_known(fits, none, all, count);
  }
  for (Fit& fit : fits) {
    fit.known = std::max<int64_t>(fit.known, 1);
    if (!fit.column->values.empty()) fit.column->means.assign(fit.column->values.size(), 0);
  }
  for_known(fits, training, all, [](Fit& fit, double x) {
    const auto known = static_cast<double>(fit.known);
    if (fit.column->values.empty()) {
      fit.mean += x / known;
    } else {
      at(fit.column->means, static_cast<int64_t>(x)) += 1 / known;
    }
  });
  if (schema.standardized) {
    for_known(fits, training, all, [](Fit& fit, double x) {
      fit.squares += (x - fit.mean) * (x - fit.mean) / static_cast<double>(fit.known);
    });
  }
  for (const Fit& fit : fits) {
    if (!fit.column->values.empty()) continue;
    fit.column->means = {fit.mean};
    // A constant column becomes 0.
    fit.column->deviation = schema.standardized && fit.squares > 0 ? std::sqrt(fit.squares) : 1;
  }
}

void fit_scaling(TableSchema& schema, const TableRows& rows, std::span<const int64_t> training) {
  const Slices cells(std::span(rows.cells), rows.rows());
  std::vector<int64_t> order(training.begin(), training.end());
  if (sums_in_file_order(schema, rows.filled)) std::sort(order.begin(), order.end());
  const CellVisitor visit_training = [&](const auto& f) {
    for (const int64_t r : order) f(cells[r]);
  };
  const CellVisitor visit_all = [&](const auto& f) {
    for (int64_t r = 0; r < rows.rows(); ++r) f(cells[r]);
  };
  fit_scaling(schema, visit_training, visit_all, std::nullopt);
}

void encode_inputs(const TableSchema& schema, std::span<const double> cells, float* out,
                   const std::string& path, int64_t line) {
  auto cell = cells.begin();
  for (const TableColumn& column : schema.columns) {
    if (column.role != ColumnRole::kInput) continue;
    const double x = *cell++;
    if (!column.values.empty()) {
      for (size_t v = 0; v < column.values.size(); ++v)
        *out++ = static_cast<float>(std::isnan(x) ? column.means[v] : x == static_cast<double>(v));
      continue;
    }
    const double known = std::isnan(x) ? column.means[0] : x;
    *out = static_cast<float>(schema.standardized ? (known - column.means[0]) / column.deviation
                                                  : known);
    if (!std::isfinite(*out++)) {
      fail(ErrorKind::kBadFile,
           "{}: line {}: column '{}': must be of float32's range when it is standardised, got {}",
           path, line, printable(column.name), x);
    }
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
  const Slices inputs(samples.images.as<float>(), n);
  const Slices cells(std::span(rows.cells), n);
  for (int64_t r = 0; r < n; ++r) {
    encode_inputs(schema, cells[r], inputs[r].data(), table.path(), at(rows.lines, r));
    for (int64_t t = 0; t < targets; ++t) {
      const double target = cells[r][static_cast<size_t>(input_columns + t)];
      if (schema.classes > 0) {
        at(samples.labels.as<int32_t>(), r) = static_cast<int32_t>(target);
      } else {
        at(samples.labels.as<float>(), r * targets + t) = static_cast<float>(target);
      }
    }
  }
  return samples;
}

}  // namespace sluice::data
