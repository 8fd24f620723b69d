#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// Returns a + b for non-negative numbers, or INT64_MAX if the sum is larger.
inline int64_t bounded_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// Returns a · b for non-negative numbers, or INT64_MAX if the product is larger.
inline int64_t bounded_product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/// Transfers of one replica in one run of a program. They move between device memory and one stream
/// or remote buffer, in one direction, on one queue.
struct Traffic {
  exe::TransferKind kind = exe::TransferKind::kStreamIn;
  int32_t object = 0;  ///< Index into streams or remote buffers.
  int32_t device = 0;
  int32_t queue = 0;
  int64_t transfers = 0;
  int64_t bytes = 0;  ///< Bytes of the tensors, without padding of entries.
};

/// Counts the transfers of an executable's programs. A loop counts by its trips; a branch counts
/// the arm that moves more bytes. Sums saturate at INT64_MAX, because a plan may be read from an
/// untrusted file.
class TrafficCounter {
 public:
  /// The executable must outlive the counter.
  explicit TrafficCounter(const exe::Executable& executable);

  std::vector<Traffic> of(const exe::Program& program) const;

 private:
  using Where = std::tuple<exe::TransferKind, int32_t, int32_t, int32_t>;
  using Counts = std::map<Where, Traffic>;

  static void add(const Counts& from, int64_t turns, Counts& to);
  Counts count(const exe::Function& f) const;

  /// Transfers of one activation of each function and its callees.
  std::vector<Counts> functions_;
};

}  // namespace sluice::report
