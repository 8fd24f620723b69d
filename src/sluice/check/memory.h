#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/check/interval_map.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// One value at run time: a value of one activation or iteration.
struct Instance {
  int64_t id = -1;
  int64_t bytes = 0;
  exe::ValueId name = exe::kNoValue;  ///< The name that it was made under, for messages.
  DType dtype = DType::kF32;
  const std::string* layout = nullptr;  ///< In the executable.
};

/// Bytes of an arena.
struct Range {
  int32_t arena = -1;  ///< -1: no such bytes.
  int64_t begin = 0;
  int64_t end = 0;

  bool exists() const { return arena >= 0; }
  bool overlaps(const Range& o) const { return arena == o.arena && begin < o.end && o.begin < end; }
  bool operator==(const Range&) const = default;
};

/// What a byte holds: byte (address - origin) of an instance.
struct Content {
  int64_t id = -1;
  int64_t origin = 0;
  exe::ValueId name = exe::kNoValue;
  bool operator==(const Content& o) const { return id == o.id && origin == o.origin; }
};

/// The map from bytes to values, of all arenas. Changes can be taken back.
class ByteMap {
 public:
  using Pieces = std::vector<IntervalMap<Content>::Piece>;

  explicit ByteMap(size_t arenas) : arenas_(arenas) {}

  void write(const Range& r, const Instance& i);
  void forget(const Range& r);
  /// The range is exactly this instance.
  bool holds(const Range& r, const Instance& i) const;
  /// What lies there, in words.
  std::string describe(const Range& r, const exe::Executable& executable) const;
  const IntervalMap<Content>& arena(size_t a) const { return arenas_[a]; }

  /// Changes since a mark are kept until it is released; marks nest.
  size_t mark();
  void release() {
    if (--marks_ == 0) changes_.clear();
  }
  /// Ranges changed since the mark, merged.
  std::vector<Range> changed(size_t mark) const;
  /// The same bytes as disjoint ranges in order.
  static std::vector<Range> merged(std::vector<Range> ranges);
  Pieces pieces(const Range& r) const {
    return arenas_[static_cast<size_t>(r.arena)].pieces(r.begin, r.end);
  }
  /// Makes a range what `pieces` say, without more.
  void restore(const Range& r, const Pieces& pieces);
  void roll_back(size_t mark);

 private:
  struct Change {
    Range range;
    Pieces before;
  };
  void note(const Range& r);

  std::vector<IntervalMap<Content>> arenas_;
  int marks_ = 0;
  std::vector<Change> changes_;
};

/// Which bytes which task of a step touches: task t from `base + t * stride`. Equal grids touch the
/// same bytes by the same task, which one worker runs. One task: worker 0 runs it, whatever its
/// bytes.
struct Grid {
  int64_t tasks = 1;
  int64_t stride = 0;
  int64_t base = 0;
  int64_t pitch = 0;
  bool operator==(const Grid&) const = default;

  static Grid of(int64_t tasks, int64_t stride, int64_t pitch, int64_t base) {
    return tasks == 1 ? Grid{} : Grid{tasks, stride, base, pitch};
  }
  /// Every worker touches all of it.
  static Grid everyone() { return {2, 0, 0, 0}; }
  bool shared() const { return tasks > 1 && stride == 0; }
};

/// What one device's workers have touched since their last barrier.
class Window {
 public:
  explicit Window(size_t arenas) : arenas_(arenas) {}

  void barrier();
  /// A touch by `grid` could happen at the same time as an earlier one, and one of the two writes.
  bool conflicts(const Range& r, bool writes, const Grid& grid) const;
  void touch(const Range& r, bool writes, const Grid& grid);
  /// Everything that either of two has seen.
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

  std::vector<IntervalMap<Touches>> arenas_;
  std::vector<int32_t> used_;
};

}  // namespace sluice::check
