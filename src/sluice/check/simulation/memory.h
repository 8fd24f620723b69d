#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/check/interval_map.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// One value at run time. Each activation or iteration makes its own instance of a value.
struct Instance {
  int64_t id = -1;
  int64_t bytes = 0;
  exe::ValueId name = exe::kNoValue;  ///< Name under which it was made, for messages.
  DType dtype = DType::kF32;
  const std::string* layout = nullptr;  ///< Not owned.
};

/// A range of bytes of an arena.
struct Range {
  exe::ArenaId arena;  ///< Invalid: the range does not exist.
  int64_t begin = 0;
  int64_t end = 0;

  bool exists() const { return arena.valid(); }
  bool overlaps(const Range& o) const { return arena == o.arena && begin < o.end && o.begin < end; }
  bool operator==(const Range&) const = default;
};

/// Content of a byte: byte (address - origin) of instance `id`.
struct ByteOrigin {
  int64_t id = -1;
  int64_t origin = 0;
  exe::ValueId name = exe::kNoValue;
  bool operator==(const ByteOrigin& o) const { return id == o.id && origin == o.origin; }
};

/// Map from bytes to values for all arenas. Changes can be rolled back.
class ByteMap {
 public:
  using Pieces = std::vector<IntervalMap<ByteOrigin>::Piece>;

  explicit ByteMap(size_t arenas) : arenas_(arenas) {}

  void write(const Range& r, const Instance& i);
  void forget(const Range& r);
  /// Returns whether the range holds all bytes of this instance, and only these.
  bool holds(const Range& r, const Instance& i) const;
  /// Describes the contents of the range, for messages.
  std::string describe(const Range& r, const exe::Executable& executable) const;
  const IntervalMap<ByteOrigin>& arena(exe::ArenaId a) const { return arenas_[a]; }

  /// Begins to record changes, for `changed` and `roll_back`. Each mark must be released; marks
  /// nest.
  size_t mark();
  void release() {
    if (--marks_ == 0) changes_.clear();
  }
  /// Returns the ranges changed since the mark, merged.
  std::vector<Range> changed(size_t mark) const;
  /// Returns the union of `ranges` as disjoint ranges in ascending order.
  static std::vector<Range> merged(std::vector<Range> ranges);
  Pieces pieces(const Range& r) const { return arenas_[r.arena].pieces(r.begin, r.end); }
  /// Replaces the contents of the range by `pieces`.
  void restore(const Range& r, const Pieces& pieces);
  void roll_back(size_t mark);

 private:
  struct Change {
    Range range;
    Pieces before;
  };
  void note(const Range& r);

  Ids<exe::ArenaId, IntervalMap<ByteOrigin>> arenas_;
  int marks_ = 0;
  std::vector<Change> changes_;
};

/// The bytes that each task of a step touches: task t begins at `base + t * stride`. In steps with
/// equal grids, task t touches the same bytes and runs on the same worker. All steps of one task
/// have equal grids, because worker 0 runs them.
struct Grid {
  int64_t tasks = 1;
  int64_t stride = 0;
  int64_t base = 0;
  int64_t pitch = 0;
  bool operator==(const Grid&) const = default;

  static Grid of(int64_t tasks, int64_t stride, int64_t pitch, int64_t base) {
    return tasks == 1 ? Grid{} : Grid{tasks, stride, base, pitch};
  }
  /// Grid of a step in which every worker touches all bytes.
  static Grid everyone() { return {2, 0, 0, 0}; }
  bool shared() const { return tasks > 1 && stride == 0; }
};

/// Record of the bytes that the workers of one device have touched since their last barrier.
class Window {
 public:
  explicit Window(size_t arenas) : arenas_(arenas) {}

  void barrier();
  /// Returns whether a touch by `grid` may run at the same time as a recorded touch of these bytes,
  /// and one of the two writes.
  bool conflicts(const Range& r, bool writes, const Grid& grid) const;
  void touch(const Range& r, bool writes, const Grid& grid);
  /// Adds the touches that `other` has recorded.
  void merge(const Window& other);
  void serialise(std::vector<int64_t>& out) const;

 private:
  enum class Who : uint8_t { kNobody, kGrid, kSeveral };
  struct Touches {
    Who writers = Who::kNobody;
    Who readers = Who::kNobody;
    Grid writer;
    Grid reader;
  };
  static void join(Who& who, Grid& grid, Who other, const Grid& other_grid);

  Ids<exe::ArenaId, IntervalMap<Touches>> arenas_;
  std::vector<exe::ArenaId> used_;
};

}  // namespace sluice::check
