#include "sluice/data/table/indexed_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/table/record_index.h"
#include "sluice/data/table/row_numbers.h"
#include "sluice/data/window/indexed_node.h"

namespace sluice::data {

struct IndexedTable::State {
  State(const Table& t, const TableSchema& s, const RowChoice& c)
      : table(t), schema(s), choice(c), columns(columns_to_read(table, schema, choice)) {}

  /// Reads the numbers of row k and returns its line.
  int64_t read(int64_t k, std::vector<double>& cells) const {
    const RecordIndex::Span span = index.find(k);
    RowReader row(table, span.begin, span.end, span.line);
    if (dropped == 0) row.skip(span.skipped);
    for (int64_t left = dropped == 0 ? 0 : span.skipped; left > 0;) {
      SLUICE_CHECK(row.next());
      if (is_kept(row)) --left;
    }
    do {
      SLUICE_CHECK(row.next());
      cells.clear();
    } while (!append_cells(row, columns, choice.missing, table.format().decimal, cells));
    return row.line();
  }
  /// Whether a row is not left out. Does not parse its numbers.
  bool is_kept(const RowReader& row) const {
    return choice.missing != MissingCells::kDropRow ||
           std::none_of(columns.begin(), columns.end(), [&](const ReadColumn& c) {
             return is_missing(row.cell(c.column_index), c.values == nullptr);
           });
  }

  Table table;
  TableSchema schema;
  RowChoice choice;
  std::vector<ReadColumn> columns;  ///< They refer to `schema`.
  RecordIndex index;                ///< Index of the rows that are kept.
  int64_t dropped = 0;
  int64_t filled = 0;
  int64_t largest_class = -1;
  /// The smallest and the largest number of each input, indexed as `columns`.
  std::vector<std::pair<double, double>> ranges;
};

namespace {

using internal::ElementView;
using internal::IndexedNode;
using internal::Node;

}  // namespace

IndexedTable::IndexedTable(const Table& table, const TableSchema& schema, const RowChoice& choice) {
  const auto state = std::make_shared<State>(table, schema, choice);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  state->ranges.assign(state->columns.size(), {kInfinity, -kInfinity});
  RowReader row(state->table);
  std::vector<double> cells;
  while (true) {
    const int64_t offset = row.offset(), line = row.next_line();
    if (!row.next()) break;
    cells.clear();
    const auto missing =
        append_cells(row, state->columns, choice.missing, state->table.format().decimal, cells);
    if (!missing) {
      ++state->dropped;
      continue;
    }
    state->filled += *missing;
    state->index.add(offset, line);
    for (size_t c = 0; c < cells.size(); ++c) {
      auto& [low, high] = state->ranges[c];
      low = std::fmin(low, cells[c]);
      high = std::fmax(high, cells[c]);
      if (state->columns[c].is_class)
        state->largest_class = std::max(state->largest_class, static_cast<int64_t>(cells[c]));
    }
  }
  state->index.finish(row.offset());
  if (state->index.records() == 0) {
    fail(ErrorKind::kBadFile,
         "{}: must have at least one row without missing cells, got none of {}", table.path(),
         state->dropped);
  }
  state_ = state;
}

int64_t IndexedTable::rows() const { return state_->index.records(); }
int64_t IndexedTable::dropped() const { return state_->dropped; }
int64_t IndexedTable::filled() const { return state_->filled; }
int64_t IndexedTable::largest_class() const { return state_->largest_class; }

void IndexedTable::fit_scaling(TableSchema& schema, std::span<const uint32_t> training) const {
  std::vector<double> cells;
  const auto visit = [&](int64_t row, const auto& f) {
    state_->read(row, cells);
    f(cells);
  };
  std::vector<bool> trains;
  if (sums_in_file_order(schema, filled())) {
    trains.resize(static_cast<size_t>(rows()));
    for (const uint32_t row : training) trains[row] = true;
  }
  const CellVisitor visit_training = [&](const auto& f) {
    if (trains.empty()) {
      for (const uint32_t row : training) visit(row, f);
    }
    for (size_t row = 0; row < trains.size(); ++row) {
      if (trains[row]) visit(static_cast<int64_t>(row), f);
    }
  };
  const CellVisitor visit_all = [&](const auto& f) {
    for (int64_t row = 0; row < rows(); ++row) visit(row, f);
  };
  std::optional<int64_t> complete;
  if (filled() == 0) complete = std::ssize(training);
  data::fit_scaling(schema, visit_training, visit_all, complete);
  check_scaling(schema);
}

void IndexedTable::check_scaling(const TableSchema& schema) const {
  if (!schema.standardized) return;
  const auto fits = [&](size_t c) {
    const TableColumn& column = *std::find_if(
        schema.columns.begin(), schema.columns.end(),
        [&](const TableColumn& s) { return s.name == state_->columns[c].column->name; });
    if (column.role != ColumnRole::kInput || !column.values.empty()) return true;
    const auto scaled = [&](double x) {
      return static_cast<float>((x - column.means[0]) / column.deviation);
    };
    const auto [low, high] = state_->ranges[c];
    return low > high || (std::isfinite(scaled(low)) && std::isfinite(scaled(high)));
  };
  bool all_fit = true;
  for (size_t c = 0; c < state_->columns.size(); ++c) all_fit = all_fit && fits(c);
  if (all_fit) return;
  for (const Element& e : samples(schema)) SLUICE_CHECK(!e.arrays.empty());  // Names the line.
}

/// The rows of a table as samples.
class IndexedTable::Samples final : public IndexedNode {
 public:
  Samples(std::shared_ptr<const State> state, TableSchema schema, ElementSpecs specs)
      : IndexedNode(std::move(specs), state->index.records()),
        state_(std::move(state)),
        schema_(std::move(schema)) {
    inputs_ = std::ssize(schema_.names(ColumnRole::kInput));
  }

  Element at(int64_t k, uint64_t /*pass*/) const override {
    Element element = blank();
    read(k, [&](size_t i) { return element.arrays[i].bytes().data(); });
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    if (!fits(to)) return Node::write_at(k, pass, to);  // Reports the difference.
    read(k, [&](size_t i) { return to.arrays[i].data; });
    return known_specs().arrays.size();
  }

 private:
  /// Writes array i of row k to to(i).
  template <typename To>
  void read(int64_t k, const To& to) const {
    std::vector<double> cells;
    const int64_t line = state_->read(k, cells);
    encode_inputs(schema_, cells, reinterpret_cast<float*>(to(0)), state_->table.path(), line);
    const std::span<const double> targets = std::span(cells).subspan(static_cast<size_t>(inputs_));
    if (targets.empty()) return;
    if (schema_.classes > 0) {
      *reinterpret_cast<int32_t*>(to(1)) = static_cast<int32_t>(targets[0]);
    } else {
      std::transform(targets.begin(), targets.end(), reinterpret_cast<float*>(to(1)),
                     [](double x) { return static_cast<float>(x); });
    }
  }

  std::shared_ptr<const State> state_;
  TableSchema schema_;
  int64_t inputs_ = 0;
};

Dataset IndexedTable::samples(const TableSchema& schema) const {
  ElementSpecs specs{{{{schema.inputs()}, f32, {}}}, {"input"}};
  const auto targets =
      std::count_if(state_->columns.begin(), state_->columns.end(),
                    [](const ReadColumn& c) { return c.column->role == ColumnRole::kTarget; });
  if (targets > 0) {
    const bool classes = schema.classes > 0;
    specs.arrays.push_back({targets == 1 ? Shape{} : Shape{targets}, classes ? i32 : f32, {}});
    specs.names.emplace_back(classes ? "labels" : "target");
  }
  return Dataset(std::make_shared<const Samples>(state_, schema, std::move(specs)));
}

}  // namespace sluice::data
