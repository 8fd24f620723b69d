#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/data/samples.h"

/// Tables with named columns: a schema defines the role of each column. It is inferred from a
/// table, saved with a model, and applied to other tables, whose columns are matched by name.
///
///     data::Table table("iris.csv");
///     data::TableSchema schema = data::infer_schema(table, {.targets = {"species"}});
///     data::TableRows rows = data::read_rows(table, schema);
///     data::fit_scaling(schema, rows, {});
///     data::Samples samples = data::encode(schema, rows);
namespace sluice::data {

class CsvText;

/// How the text of a table is read.
struct TableFormat {
  CsvHeader header = CsvHeader::kDetect;  ///< infer_schema() states the rule of kDetect.
  char separator = ',';                   ///< A tab or one of ,;:|/&#.
  char decimal = '.';                     ///< The decimal mark, '.' or ','.
};

/// Treatment of a cell without a value. Such a cell is empty; in a column of numbers, it may also
/// be NA, N/A, NaN, nan, null, NULL or ?.
enum class MissingCells : uint8_t {
  kRefuse,   ///< Error{kBadFile} naming line and column.
  kMean,     ///< An input becomes its mean over the training rows; a target is refused.
  kDropRow,  ///< The row is left out.
};

enum class ColumnRole : uint8_t { kInput, kTarget, kIgnored };

/// A column of a schema.
struct TableColumn {
  std::string name;
  ColumnRole role = ColumnRole::kInput;
  std::vector<std::string> values = {};  ///< Texts of a category, ascending; empty for numbers.
  /// Means of an input over the training rows: one of its numbers, or the share of each value.
  std::vector<double> means = {};
  double deviation = 1;  ///< Standard deviation of an input that is standardised; else 1.
};

/// The roles of the columns of a table. Inputs become f32: a number x is x, or (x - mean) /
/// deviation if it is standardised; a category of v values becomes v numbers, 1 for its value and 0
/// for the others.
struct TableSchema {
  std::vector<TableColumn> columns = {};  ///< Inputs in their order, then targets, then ignored.
  int64_t classes = 0;                    ///< Classes of the target; 0: targets are numbers.
  std::vector<std::string> labels = {};   ///< Text of each class; empty: class k is the number k.
  bool standardized = false;
  MissingCells missing = MissingCells::kRefuse;
  TableFormat format = {};  ///< Format of the table that it was inferred from, header kYes or kNo.

  std::vector<std::string> names(ColumnRole role) const;
  /// Number of f32 values that the inputs of a row become.
  int64_t inputs() const;
};

/// Formats a schema for people: "inputs 4: a, b, c, d; target label, 3 classes". A category has the
/// number of its values after its name. The texts of classes follow their number.
std::string to_string(const TableSchema& schema);

/// Returns the schema as JSON. Error{kUsage} if it would have more than 16 MiB.
std::string to_json(const TableSchema& schema);
/// Reads a schema that to_json() wrote. The text is untrusted: Error{kBadFile} naming `file`.
TableSchema schema_from_json(std::string_view text, const std::string& file);

/// A CSV file with the names of its columns (RFC 4180, plain or gzip, UTF-8). A plain file is read
/// when its rows are, and must not change meanwhile; a file in gzip is held in memory.
class Table {
 public:
  /// Reads line 1. If the format does not specify whether line 1 is a header, it is one if it has
  /// all names of `known`, or by the rule of infer_schema(). Error{kIo}, Error{kBadFile} as
  /// from_csv().
  explicit Table(const std::string& path, const TableFormat& format = {},
                 std::span<const std::string> known = {});

  const std::string& path() const { return path_; }
  const TableFormat& format() const { return format_; }  ///< Its header is kYes or kNo.
  /// Names in the header, or "0", "1", … without one.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the indices of columns by their names. Error{kUsage}, which begins with `what` and
  /// lists the columns of the table and `wanted`, if a name is missing or names several columns.
  std::vector<size_t> columns_of(std::span<const std::string> wanted, std::string_view what) const;

  /// The text, for readers of the table.
  const std::shared_ptr<const CsvText>& text() const { return text_; }

 private:
  std::string path_;
  TableFormat format_;
  std::shared_ptr<const CsvText> text_;
  std::vector<std::string> names_;
};

/// The choice of columns for infer_schema().
struct TableChoice {
  std::vector<std::string> inputs = {};   ///< Empty: all columns that are no targets.
  std::vector<std::string> targets = {};  ///< One column of classes, or columns of numbers.
  bool classes = true;                    ///< Whether the target is a class.
  bool standardize = false;
  MissingCells missing = MissingCells::kRefuse;
};

/// Infers the roles of the columns of a table. A column whose cells are numbers is one of numbers;
/// a column of texts is a category, or the classes of the target in ascending order.
/// Error{kBadFile} naming line and column for a column that has both, for a category of more than
/// 1000 values, and for names and texts that are not UTF-8.
///
/// With CsvHeader::kDetect, line 1 is a header if it has no number and a column below has numbers.
/// It is a row if all its cells are numbers, unless they are ascending whole numbers. Any other
/// line 1 may be either: Error{kBadFile}, which names --header.
TableSchema infer_schema(const Table& table, const TableChoice& choice);

/// The rows of a table as numbers, by row, then by input and target of the schema. A category or a
/// class in text is the index of its value. A missing cell is NaN.
struct TableRows {
  std::vector<double> cells = {};
  std::vector<int64_t> lines = {};  ///< Line of the file in which each row begins.
  int64_t dropped = 0;              ///< Rows that were left out for a missing cell.
  int64_t filled = 0;               ///< Missing cells.

  int64_t rows() const { return static_cast<int64_t>(lines.size()); }
};

/// Parts of a table that read_rows() reads.
struct RowChoice {
  std::vector<std::string> inputs = {};   ///< Names in this table; empty: those of the schema.
  std::vector<std::string> targets = {};  ///< As above.
  bool has_targets = true;                ///< If false, targets are not read.
  MissingCells missing = MissingCells::kRefuse;
};

/// Reads the rows of a table. Columns are matched by name; others are not read. Error{kUsage} as
/// Table::columns_of(). Error{kBadFile} naming line and column for a cell that its column cannot
/// have.
TableRows read_rows(const Table& table, const TableSchema& schema, const RowChoice& choice = {});

/// Computes the means and deviations of the inputs over rows: those in `training`, or all if it is
/// empty.
void fit_scaling(TableSchema& schema, const TableRows& rows, std::span<const int64_t> training);

/// Returns the rows as samples: images (n, inputs) f32 and labels, (n) i32 classes, or (n) or (n,
/// targets) f32. Without targets, the labels have no element. Error{kBadFile} naming the line if a
/// value that is standardised exceeds float32.
Samples encode(const Table& table, const TableSchema& schema, const TableRows& rows);

}  // namespace sluice::data
