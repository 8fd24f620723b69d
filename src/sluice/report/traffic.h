#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// a + b of numbers that are not negative; the largest int64 if it is more.
inline int64_t bounded_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// a · b likewise.
inline int64_t bounded_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/// What one run of a program moves between device memory and one stream or remote buffer, in one
/// direction, on one queue of a device; on each replica.
struct Traffic {
  exe::TransferKind kind = exe::TransferKind::kStreamIn;
  int32_t object = 0;  ///< Index into streams or remote buffers.
  int32_t device = 0;
  int32_t queue = 0;
  int64_t transfers = 0;
  int64_t bytes = 0;  ///< Of the tensors, without what pads entries.
};

/// Counts what programs of an executable move: loops as often as they turn, of a branch the arm
/// that moves more bytes. Numbers of more than 63 bits stay at the largest: plans may come from
/// files.
class TrafficCounter {
 public:
  /// The executable must outlive it.
  explicit TrafficCounter(const exe::Executable& executable);

  std::vector<Traffic> of(const exe::Program& program) const;

 private:
  using Where = std::tuple<exe::TransferKind, int32_t, int32_t, int32_t>;
  using Counts = std::map<Where, Traffic>;

  static void add(const Counts& from, int64_t turns, Counts& to);
  Counts count(const exe::Function& f) const;

  std::vector<Counts> functions_;  ///< Of one activation, callees included.
};

}  // namespace sluice::report
