#pragma once
#include <cstdint>
#include <vector>

namespace sluice::data {

/// Positions of every stride-th record of a text. The stride grows with the text, so that memory is
/// bounded.
class RecordIndex {
 public:
  static constexpr int64_t kMaxPositions = int64_t{1} << 19;  ///< 8 MiB.

  /// Holds at most `max_positions` >= 2 positions.
  explicit RecordIndex(int64_t max_positions = kMaxPositions) : max_positions_(max_positions) {}

  /// Adds the next record, which begins at a byte and in a line of the file.
  void add(int64_t offset, int64_t line);
  /// Ends the last record.
  void finish(int64_t end) { end_ = end; }

  int64_t records() const { return records_; }

  /// The bytes from an indexed record to the next one, or to the end of the text.
  struct Span {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t line = 0;     ///< Line of the first record.
    int64_t skipped = 0;  ///< Records before the wanted one.
  };
  /// Returns the bytes that have record k in [0, records()).
  Span find(int64_t k) const;

 private:
  struct Position {
    int64_t offset = 0;
    int64_t line = 0;
  };
  int64_t max_positions_;
  std::vector<Position> positions_;
  int64_t stride_ = 1;
  int64_t records_ = 0;
  int64_t end_ = 0;
};

}  // namespace sluice::data
