#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/figure.h"

namespace sluice::bench {

/// What the rounds of a case gave, medians all.
struct Row {
  const Case* of = nullptr;
  double amount = 0;
  double least = 0;
  std::optional<double> limit;
  std::optional<double> part;  ///< Of the limit's speed: 1 is all of it.
  struct Other {
    std::optional<double> amount;
    std::optional<double> ratio;  ///< Above 1: Sluice is faster.
  };
  std::vector<Other> pytorch;    ///< By the options' `pythons`.
  std::optional<double> of_one;  ///< Speed over that of the same case with one thread.

  /// The figure that a goal bounds, if it was measured.
  std::optional<double> value(const Goal& goal) const;
  /// Whether all goals are met; nothing if there are none or one cannot be told.
  std::optional<bool> met() const;
};

/// One side to compare with.
struct PythonInfo {
  std::string python, version, trouble;
};

/// The table's heading and a row of it, as lines.
std::string heading(size_t pythons);
std::string line(const Row& row);
/// Everything as one JSON object.
std::string json(const std::string& isa, const std::vector<PythonInfo>& pythons,
                 const std::vector<Row>& rows);

}  // namespace sluice::bench
