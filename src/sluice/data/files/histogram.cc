#include "sluice/data/files/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace sluice::data {
namespace {

// The positive limits, and for each eighth of a power of two the first limit above its begin.
class Limits {
 public:
  Limits() {
    for (double v = 1e-12; v < 1e20; v *= 1.1) limits_.push_back(v);
    limits_.push_back(std::numeric_limits<double>::max());
    for (size_t i = 0; i < first_.size(); ++i) {
      const auto begin = std::bit_cast<double>((kMin + i) << kShift);
      first_[i] = static_cast<uint16_t>(std::lower_bound(limits_.begin(), limits_.end(), begin) -
                                        limits_.begin());
    }
  }

  size_t size() const { return limits_.size(); }
  double operator[](size_t i) const { return limits_[i]; }
  // Returns the index of the bucket of a finite value among all limits: minus these ones from the
  // last one on, 0, and these ones.
  size_t bin(double v) const {
    const double size = std::abs(v);
    const uint64_t part = std::bit_cast<uint64_t>(size) >> kShift;
    size_t i = part < kMin ? 0 : first_[std::min<uint64_t>(part - kMin, first_.size() - 1)];
    // An eighth of a power of two has at most two limits. Sums replace branches.
    for (int step = 0; step < 2; ++step) i += limits_[i] < size ? 1 : 0;
    while (limits_[i] < size) ++i;
    // A limit is in the bucket above it. The last bucket takes the largest number too.
    const size_t above = i + (limits_[i] == size && i + 1 < limits_.size() ? 1 : 0);
    return v < 0 ? limits_.size() - i : limits_.size() + 1 + above;
  }

 private:
  static constexpr int kShift = 52 - 3;  // Exponent and three bits of the mantissa are left.
  static constexpr uint64_t kMin = (1023 - 40) << 3;  // 2^-40 < 1e-12
  std::vector<double> limits_;
  std::array<uint16_t, (40 + 67) * 8> first_{};  // 1e20 < 2^67
};

const Limits& limits() {
  static const Limits all;
  return all;
}

template <typename T>
T element(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

Histogram::Histogram() : counts_(2 * limits().size() + 1) {}

template <typename Value>
void Histogram::add_all(size_t count, const Value& value) {
  const Limits& table = limits();
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0, squares = 0;
  int64_t finite = 0;
  for (size_t i = 0; i < count; ++i) {
    const double v = value(i);
    if (!std::isfinite(v)) continue;
    ++counts_[table.bin(v)];
    ++finite;
    min = std::min(min, v);
    max = std::max(max, v);
    sum += v;
    squares += v * v;
  }
  non_finite_ += static_cast<int64_t>(count) - finite;
  if (finite == 0) return;
  min_ = count_ == 0 ? min : std::min(min_, min);
  max_ = count_ == 0 ? max : std::max(max_, max);
  count_ += finite;
  sum_ += sum;
  sum_squares_ += squares;
}

void Histogram::add(DType dtype, std::span<const std::byte> elements) {
  const size_t count = elements.size() / static_cast<size_t>(size_of(dtype));
  visit_storage(dtype, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, uint16_t>) {
      const auto widen = dtype == f16 ? half_to_float : bfloat_to_float;
      add_all(count, [&](size_t i) { return double{widen(element<uint16_t>(elements, i))}; });
    } else {
      add_all(count, [&](size_t i) { return static_cast<double>(element<T>(elements, i)); });
    }
  });
}

std::vector<Histogram::Bucket> Histogram::buckets() const {
  const Limits& table = limits();
  const size_t zero = table.size();
  std::vector<Bucket> all;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const double limit = i < zero ? -table[zero - 1 - i] : i == zero ? 0.0 : table[i - zero - 1];
    const auto count = static_cast<double>(counts_[i]);
    if (count == 0 && !all.empty() && all.back().count == 0)
      all.back().limit = limit;
    else
      all.push_back({limit, count});
  }
  return all;
}

}  // namespace sluice::data
