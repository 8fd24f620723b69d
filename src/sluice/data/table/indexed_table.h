#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "sluice/data/dataset.h"
#include "sluice/data/table/table.h"

namespace sluice::data {

/// The rows of a table, which are parsed when they are asked for. A copy is cheap. Several threads
/// may use one object.
class IndexedTable {
 public:
  /// Reads all rows once, to check them. Errors as read_rows().
  IndexedTable(const Table& table, const TableSchema& schema, const RowChoice& choice = {});

  int64_t rows() const;
  int64_t dropped() const;        ///< Rows that were left out for a missing cell.
  int64_t filled() const;         ///< Missing cells.
  int64_t largest_class() const;  ///< The largest class of a target; -1 without one.

  /// Computes the means and deviations of the inputs, with the bits of fit_scaling() for the same
  /// rows in the same order. Error{kBadFile} naming the line if a value exceeds float32 when it is
  /// standardised.
  void fit_scaling(TableSchema& schema, std::span<const uint32_t> training) const;
  /// Error{kBadFile} as above for the means and deviations of `schema`.
  void check_scaling(const TableSchema& schema) const;

  /// Returns an indexed dataset of the fields "input", f32 (inputs), and "labels", i32 (), or
  /// "target", f32 () or (targets). Without targets, it has inputs alone. The values equal the
  /// values of encode().
  Dataset samples(const TableSchema& schema) const;

 private:
  struct State;
  class Samples;
  std::shared_ptr<const State> state_;
};

}  // namespace sluice::data
