#pragma once
#include <cstdint>

namespace sluice {

/// Numbers of a micro-batch and of a row of equal blocks. An op has them relative to those of the
/// call of its graph.
struct Instance {
  int64_t micro_batch = 0;
  int64_t row = 0;
  bool operator==(const Instance&) const = default;
};
Instance operator+(const Instance& a, const Instance& b);
Instance operator*(int64_t count, const Instance& step);

}  // namespace sluice
