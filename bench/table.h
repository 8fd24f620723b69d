#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/figure.h"

namespace sluice::bench {

/// Medians over the rounds of a case.
struct TableRow {
  const Case* of = nullptr;
  double amount = 0;
  double min = 0;
  std::optional<double> limit;
  std::optional<double> part;  ///< Part of the limit's speed; 1 is the limit.
  struct Other {
    std::optional<double> amount;
    std::optional<double> ratio;  ///< Above 1 if Sluice is faster.
  };
  std::vector<Other> pytorch;    ///< One for each of SuiteOptions::pythons.
  std::optional<double> of_one;  ///< Speed divided by that of the case with one thread.

  /// Returns the figure that a goal bounds, if it was measured.
  std::optional<double> value(const Goal& goal) const;
  /// Returns whether all goals are met; nothing without goals or if a value is unknown.
  std::optional<bool> met() const;
};

/// A Python with PyTorch to compare with.
struct PythonInfo {
  std::string python, version, trouble;
};

/// Return the table's heading, and a row of it, as lines.
std::string heading(size_t pythons);
std::string line(const TableRow& row);
/// Returns all results as one JSON object.
std::string json(const std::string& isa, const std::vector<PythonInfo>& pythons,
                 const std::vector<TableRow>& rows);

}  // namespace sluice::bench
