#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/data/table/row_reader.h"
#include "sluice/data/table/table.h"

namespace sluice::data {

/// A column of the schema that is read, and its index in the table.
struct ReadColumn {
  const TableColumn* column = nullptr;
  const std::vector<std::string>* values = nullptr;  ///< Null for numbers.
  size_t column_index = 0;
  bool is_class = false;
};

/// Returns the columns that `choice` reads: inputs, then targets. They refer to `schema`. Errors as
/// read_rows().
std::vector<ReadColumn> columns_to_read(const Table& table, const TableSchema& schema,
                                        const RowChoice& choice);

/// Appends the numbers of the row that `row` has read to `cells`, NaN for a missing cell. Returns
/// the number of missing cells, or nothing if the row is left out for one. Errors as read_rows().
std::optional<int64_t> append_cells(const RowReader& row, const std::vector<ReadColumn>& columns,
                                    MissingCells missing, char decimal, std::vector<double>& cells);

/// Calls a function with the numbers of each row, in an order.
using CellVisitor = std::function<void(const std::function<void(std::span<const double>)>&)>;

/// Computes the means and deviations as fit_scaling(), from rows that are visited several times.
/// `complete_rows` is the number of rows for training if no cell of the table is missing.
void fit_scaling(TableSchema& schema, const CellVisitor& training, const CellVisitor& all,
                 std::optional<int64_t> complete_rows);

/// Whether means are sums in the order of the file, which is faster to read than a shuffled one.
/// If so, they change no sample of this table, as it has no missing cell and is not standardised.
inline bool sums_in_file_order(const TableSchema& schema, int64_t filled) {
  return !schema.standardized && filled == 0;
}

/// Writes the inputs of a row, schema.inputs() numbers. Error{kBadFile} naming `path` and `line` if
/// a value that is standardised exceeds float32.
void encode_inputs(const TableSchema& schema, std::span<const double> cells, float* out,
                   const std::string& path, int64_t line);

}  // namespace sluice::data
