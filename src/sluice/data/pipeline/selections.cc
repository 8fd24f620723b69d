// The combinators that choose elements by their numbers: split and weighted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/data/draw.h"
#include "sluice/data/pipeline/node.h"
#include "sluice/data/pipeline/weights.h"

namespace sluice::data {
namespace {

using internal::Combinator;
using internal::ElementView;
using internal::NumberedStream;
using internal::Stream;

constexpr double kFractionUnits = 1e12;  ///< Fractions are rounded to multiples of 1 / this.
constexpr double kFractionError = 1e-9;  ///< The largest difference of their sum from 1.

/// Elements of an indexed input, chosen by number.
class Selection : public Combinator {
 public:
  Selection(const Dataset& input, int64_t n) : Combinator(input), n_(n) {}

  std::unique_ptr<Stream> open(uint64_t pass) const final {
    return std::make_unique<NumberedStream>(*this, n_, pass);
  }
  std::optional<int64_t> size() const final { return n_; }
  std::optional<int64_t> indexed() const final { return n_; }
  Element at(int64_t k, uint64_t pass) const final { return input().at(chosen(k, pass), pass); }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const final {
    return input().write_at(chosen(k, pass), pass, to);
  }

 protected:
  /// Number in the input of element k of a pass.
  virtual int64_t chosen(int64_t k, uint64_t pass) const = 0;

 private:
  int64_t n_;
};

class SplitPart final : public Selection {
 public:
  using Numbers = std::vector<uint32_t>;

  /// Elements `first` to first + n - 1 of `numbers`.
  SplitPart(const Dataset& input, std::shared_ptr<const Numbers> numbers, int64_t first, int64_t n)
      : Selection(input, n), numbers_(std::move(numbers)), first_(first) {}

 private:
  int64_t chosen(int64_t k, uint64_t) const override { return sluice::at(*numbers_, first_ + k); }

  std::shared_ptr<const Numbers> numbers_;
  int64_t first_;
};

class WeightedDraws final : public Selection {
 public:
  WeightedDraws(const Dataset& input, internal::WeightTable table, uint64_t seed, int64_t n)
      : Selection(input, n), table_(std::move(table)), key_(key_of(seed, "weighted")) {}

 private:
  int64_t chosen(int64_t k, uint64_t pass) const override {
    return static_cast<int64_t>(table_.draw(fold(key_, pass), static_cast<uint64_t>(k)));
  }

  internal::WeightTable table_;
  Seed key_;
};

/// Returns the number of elements of a dataset whose elements are chosen by number.
int64_t selectable(std::string_view what, const Dataset& dataset) {
  const std::optional<int64_t> n = dataset.node()->indexed();
  require(n.has_value(),
          "{}: the dataset must be indexed, so that each element has a number, got one that is "
          "not; use cache(), and shuffle() after {}",
          what, what);
  require(*n != kForever, "{}: the dataset must have an end, got one without; use take(n)", what);
  return *n;
}

/// Returns the number of elements that precede the end of each part.
std::vector<int64_t> ends_of_parts(const std::vector<double>& fractions, int64_t n) {
  __extension__ using Wide = __int128;
  require(!fractions.empty(), "split: requires at least one fraction, got none");
  std::vector<int64_t> ends;
  int64_t units = 0;
  for (const double fraction : fractions) {
    require(fraction > 0 && fraction <= 1,
            "split: a fraction must be above 0 and at most 1, got {}", fraction);
    units += std::llround(fraction * kFractionUnits);
    const auto whole = static_cast<Wide>(kFractionUnits);
    const Wide end = (Wide{2} * n * units + whole) / (2 * whole);
    ends.push_back(static_cast<int64_t>(std::min<Wide>(end, n)));
  }
  const double sum = static_cast<double>(units) / kFractionUnits;
  require(std::abs(sum - 1) <= kFractionError, "split: the sum of the fractions must be 1, got {}",
          sum);
  ends.back() = n;
  for (size_t i = 0; i < ends.size(); ++i) {
    require(ends[i] > (i == 0 ? 0 : ends[i - 1]),
            "split: each part must have elements, got none in part {}, which is {} of {} elements",
            i, fractions[i], n);
  }
  return ends;
}

}  // namespace

std::vector<Dataset> Dataset::split(const std::vector<double>& fractions, uint64_t seed) const {
  const int64_t n = selectable("split", *this);
  require(n <= std::numeric_limits<uint32_t>::max(),
          "split: the dataset must have at most {} elements, got {}",
          std::numeric_limits<uint32_t>::max(), n);
  const std::vector<int64_t> ends = ends_of_parts(fractions, n);
  SplitPart::Numbers numbers(static_cast<size_t>(n));
  random_order(key_of(seed, "split"), numbers);
  int64_t first = 0;
  for (const int64_t end : ends)
    std::sort(numbers.begin() + std::exchange(first, end), numbers.begin() + end);
  const auto shared = std::make_shared<const SplitPart::Numbers>(std::move(numbers));
  std::vector<Dataset> parts;
  first = 0;
  for (const int64_t end : ends) {
    parts.emplace_back(std::make_shared<const SplitPart>(*this, shared, first, end - first));
    first = end;
  }
  return parts;
}

Dataset Dataset::weighted(const std::vector<double>& weights, uint64_t seed,
                          std::optional<int64_t> n) const {
  const int64_t all = selectable("weighted", *this);
  require(std::ssize(weights) == all,
          "weighted: must have one weight for each of {} elements, got {}", all, weights.size());
  require(!n || *n >= 0, "weighted: the number of elements must be at least 0, got {}",
          n.value_or(0));
  return Dataset(std::make_shared<const WeightedDraws>(
      *this, internal::WeightTable("weighted", weights), seed, n.value_or(all)));
}

}  // namespace sluice::data
