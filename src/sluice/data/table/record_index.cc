#include "sluice/data/table/record_index.h"

#include <iterator>

#include "sluice/base/error.h"

namespace sluice::data {

void RecordIndex::add(int64_t offset, int64_t line) {
  if (records_++ % stride_ != 0) return;
  if (std::ssize(positions_) >= max_positions_) {
    const size_t half = (positions_.size() + 1) / 2;
    for (size_t i = 0; i < half; ++i) positions_[i] = positions_[2 * i];
    positions_.resize(half);
    stride_ *= 2;
    if ((records_ - 1) % stride_ != 0) return;
  }
  positions_.push_back({offset, line});
}

RecordIndex::Span RecordIndex::find(int64_t k) const {
  SLUICE_CHECK(0 <= k && k < records_);
  const auto i = static_cast<size_t>(k / stride_);
  return {positions_[i].offset, i + 1 < positions_.size() ? positions_[i + 1].offset : end_,
          positions_[i].line, k % stride_};
}

}  // namespace sluice::data
