#include "sluice/data/table/record_index.h"

#include "sluice/base/error.h"

namespace sluice::data {

void RecordIndex::add(int64_t offset, int64_t line) {
  if (records_++ % stride_ != 0) return;
  if (positions_.size() == kMaxPositions) {
    for (size_t i = 0; i < kMaxPositions / 2; ++i) positions_[i] = positions_[2 * i];
    positions_.resize(kMaxPositions / 2);
    stride_ *= 2;
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
