#include "sluice/cpu/move/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/cpu/move/transpose_block.h"
#include "sluice/cpu/simd/streaming.h"

namespace sluice::cpu {
namespace {

// Enumerates the indices of some axes in row-major order, with their offsets in both arrays.
class Odometer {
 public:
  // The axes [begin, end), of which there is at least one.
  Odometer(const CopyAxis* begin, const CopyAxis* end, int64_t index)
      : begin_(begin), last_(end - 1), index_(index) {
    locate();
  }
  // Indices until the last axis begins again.
  int64_t left() const { return last_->size - in_last_; }
  // Moves on by `steps`, at most left().
  void advance(int64_t steps) {
    index_ += steps;
    in_last_ += steps;
    from += steps * last_->from;
    to += steps * last_->to;
    if (in_last_ == last_->size) locate();
  }

  int64_t from = 0;
  int64_t to = 0;

 private:
  void locate() {
    from = 0;
    to = 0;
    int64_t rest = index_;
    in_last_ = rest % last_->size;
    for (const CopyAxis* axis = last_;; --axis) {
      const int64_t i = axis == begin_ ? rest : rest % axis->size;
      from += i * axis->from;
      to += i * axis->to;
      if (axis == begin_) return;
      rest /= axis->size;
    }
  }

  const CopyAxis* begin_;
  const CopyAxis* last_;
  int64_t index_;
  int64_t in_last_ = 0;
};

// Some rows of equal length.
struct Rows {
  const std::byte* from;
  std::byte* to;
  int64_t from_step, to_step;  // Bytes from row to row.
  int64_t rows;
  int64_t size;     // Elements of a row.
  int64_t element;  // Bytes from element to element of the source.
};

// Copies rows of kBytes bytes.
template <int64_t kBytes>
void copy_short_rows(const Rows& r) {
  const std::byte* from = r.from;
  std::byte* to = r.to;
  for (int64_t i = 0; i < r.rows; ++i, from += r.from_step, to += r.to_step)
    std::memcpy(to, from, kBytes);
}

// Fewest bytes of a row that is streamed.
constexpr int64_t kStreamed = 128;

void copy_rows(const Rows& r, int64_t width, bool streams) {
  constexpr int64_t kLong = 256, kVector = 16;
  const int64_t bytes = r.size * width;
  if (bytes == 1) return copy_short_rows<1>(r);
  if (bytes == 2) return copy_short_rows<2>(r);
  if (bytes == 4) return copy_short_rows<4>(r);
  if (bytes == 8) return copy_short_rows<8>(r);
  if (bytes == 16) return copy_short_rows<16>(r);
  if (bytes == 32) return copy_short_rows<32>(r);
  if (bytes == 64) return copy_short_rows<64>(r);
  const std::byte* from = r.from;
  std::byte* to = r.to;
  for (int64_t i = 0; i < r.rows; ++i, from += r.from_step, to += r.to_step) {
    if (streams && bytes >= kStreamed) {
      stream(from, to, bytes);
    } else if (bytes >= kLong || bytes < kVector) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    } else {
      for (int64_t at = 0; at < bytes - kVector; at += kVector)
        std::memcpy(to + at, from + at, kVector);
      std::memcpy(to + bytes - kVector, from + bytes - kVector, kVector);
    }
  }
}

template <typename T>
void fill_rows(const Rows& r) {
  for (int64_t i = 0; i < r.rows; ++i) {
    T value;
    std::memcpy(&value, r.from + i * r.from_step, sizeof value);
    std::fill_n(reinterpret_cast<T*>(r.to + i * r.to_step), r.size, value);
  }
}

// A vector of elements; arrays may not be aligned to it.
template <typename T>
struct ElementVector {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  static constexpr int64_t kCount = kVectorBytes / static_cast<int64_t>(sizeof(T));

  static Vector load(const std::byte* from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  template <size_t... kLane>
  static Vector reversed(Vector v, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(v, v, static_cast<int>(kCount - 1 - kLane)...);
  }
  template <size_t... kLane>
  static Vector every_second(Vector a, Vector b, std::index_sequence<kLane...>) {
    return __builtin_shufflevector(a, b, static_cast<int>(2 * kLane)...);
  }
};

// Copies n elements that are `step` bytes apart, which may be negative, to an array.
template <typename T>
void gather_elements(const std::byte* from, int64_t step, std::byte* to, int64_t n) {
  using L = ElementVector<T>;
  constexpr auto lanes = std::make_index_sequence<static_cast<size_t>(L::kCount)>{};
  constexpr auto width = static_cast<int64_t>(sizeof(T));
  const auto store = [to](typename L::Vector v, int64_t i) {
    std::memcpy(to + i * width, &v, sizeof v);
  };
  int64_t i = 0;
  if (step == -width) {
    // Processors fetch ahead of ascending reads, so the last elements are first.
    for (i = n; i >= L::kCount; i -= L::kCount)
      store(L::reversed(L::load(from - (i - 1) * width), lanes), i - L::kCount);
    n = std::exchange(i, 0);
  } else if (step == 2 * width) {
    // The last vector would read past the last element.
    for (; i + L::kCount < n; i += L::kCount) {
      const std::byte* const first = from + 2 * i * width;
      store(L::every_second(L::load(first), L::load(first + kVectorBytes), lanes), i);
    }
  }
  for (; i < n; ++i) std::memcpy(to + i * width, from + i * step, sizeof(T));
}

template <typename T>
void gather_rows(const Rows& r, bool streams) {
  constexpr auto width = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kBuffered = 4096;  // Bytes.
  for (int64_t i = 0; i < r.rows; ++i) {
    const std::byte* const from = r.from + i * r.from_step;
    std::byte* const to = r.to + i * r.to_step;
    if (!streams || r.size * width < kStreamed) {
      gather_elements<T>(from, r.element, to, r.size);
      continue;
    }
    alignas(64) std::byte buffer[kBuffered];
    constexpr int64_t kElements = kBuffered / width;
    for (int64_t e = 0; e < r.size; e += kElements) {
      const int64_t n = std::min(kElements, r.size - e);
      gather_elements<T>(from + e * r.element, r.element, buffer, n);
      stream(buffer, to + e * width, n * width);
    }
  }
}

// Calls use(T{}) with an integer of `width` bytes.
template <typename Use>
void with_integer(int64_t width, Use use) {
  if (width == 1) use(uint8_t{});
  if (width == 2) use(uint16_t{});
  if (width == 4) use(uint32_t{});
  if (width == 8) use(uint64_t{});
}

}  // namespace

std::vector<int64_t> byte_strides(const Shape& shape, int64_t width) {
  std::vector<int64_t> strides = shape.strides();
  for (int64_t& stride : strides) stride *= width;
  return strides;
}

StridedCopy::StridedCopy(std::vector<CopyAxis> axes, int64_t width) : width_(width) {
  int64_t elements = 1;
  for (const CopyAxis& axis : axes) elements *= axis.size;
  const int64_t bytes = elements * width;
  merge(std::move(axes));
  widen();
  const CopyAxis& last = axes_.back();
  for (size_t a = 0; a + 1 < axes_.size(); ++a) {
    const bool wide = axes_[a].size * width_ >= kVectorBytes && last.size * width_ >= kVectorBytes;
    if (!wide || axes_[a].from != width_ || last.to != width_ || last.from == width_) continue;
    if (last.from != 0) block_axis_ = a;
  }
  grain_ = std::max<int64_t>(1, kBlockBytes / width_);
  units_ = bytes / width_;
  unit_bytes_ = width_;
  if (!block_axis_) return;
  for (size_t a = *block_axis_ + 1; a < axes_.size(); ++a) {
    unit_bytes_ *= axes_[a].size;
    units_ = axes_[a].size == 0 ? 0 : units_ / axes_[a].size;
  }
}

// Leaves out axes of one index and merges neighbours that are one axis in both arrays.
void StridedCopy::merge(std::vector<CopyAxis> axes) {
  for (const CopyAxis& axis : axes) {
    if (axis.size == 1) continue;
    CopyAxis* const outer = axes_.empty() ? nullptr : &axes_.back();
    if (outer != nullptr && outer->from == axis.size * axis.from &&
        outer->to == axis.size * axis.to) {
      *outer = {outer->size * axis.size, axis.from, axis.to};
    } else {
      axes_.push_back(axis);
    }
  }
  if (axes_.empty() || axes_.back().to != width_) axes_.push_back({1, width_, width_});
  if (axes_.size() == 1) axes_.insert(axes_.begin(), {1, 0, 0});
}

// Makes short runs one wide element.
void StridedCopy::widen() {
  const CopyAxis last = axes_.back();
  const int64_t run = last.size * width_;
  const bool contiguous = last.from == width_ && last.to == width_;
  if (!contiguous || run == width_ || (run != 2 && run != 4 && run != 8) || axes_.size() < 3)
    return;
  const CopyAxis& next = axes_[axes_.size() - 2];
  if (next.to != run) return;
  axes_.pop_back();
  width_ = run;
}

void StridedCopy::run(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                      bool streams) const {
  if (begin >= end) return;
  if (block_axis_) {
    run_blocks(from, to, begin, end, streams);
  } else {
    run_rows(from, to, begin, end, streams);
  }
}

void StridedCopy::run_rows(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                           bool streams) const {
  const CopyAxis& last = axes_.back();
  const CopyAxis& next = axes_[axes_.size() - 2];
  const auto copy = [&](const Rows& r) {
    if (last.from == width_ && last.size > 1) return copy_rows(r, width_, streams);
    with_integer(width_, [&]<typename T>(T) {
      last.from == 0 ? fill_rows<T>(r) : gather_rows<T>(r, streams);
    });
  };
  Odometer at(axes_.data(), &last, begin / last.size);
  for (int64_t offset = begin % last.size; begin < end;) {
    const bool whole = offset == 0 && end - begin >= last.size;
    const int64_t rows = whole ? std::min(at.left(), (end - begin) / last.size) : 1;
    const int64_t size = whole ? last.size : std::min(last.size - offset, end - begin);
    copy({from + at.from + offset * last.from, to + at.to + offset * last.to, next.from, next.to,
          rows, size, last.from});
    at.advance(rows);
    begin += rows * size;
    offset = 0;
  }
}

void StridedCopy::run_blocks(const std::byte* from, std::byte* to, int64_t begin, int64_t end,
                             bool streams) const {
  const CopyAxis& last = axes_.back();
  const size_t block = *block_axis_;
  const CopyAxis& across = axes_[block];
  Matrix m{.from_step = last.from, .to_step = across.to, .cols = last.size, .streams = streams};
  int64_t middle = 1;
  for (size_t a = block + 1; a + 1 < axes_.size(); ++a) middle *= axes_[a].size;
  Odometer at(axes_.data(), axes_.data() + block + 1, begin);
  while (begin < end) {
    const int64_t all = std::min(at.left(), end - begin);
    // Rows of a few lines, so that a line that was read is read no second time.
    const int64_t part = middle == 1 ? all : kBlockBytes / width_;
    for (int64_t row = 0; row < all; row += part) {
      m.rows = std::min(part, all - row);
      if (middle == 1) {
        m.from = from + at.from + row * across.from;
        m.to = to + at.to + row * across.to;
        transpose(m, width_);
        continue;
      }
      Odometer inner(&axes_[block + 1], &last, 0);
      for (int64_t i = 0; i < middle; ++i, inner.advance(1)) {
        m.from = from + at.from + row * across.from + inner.from;
        m.to = to + at.to + row * across.to + inner.to;
        transpose(m, width_);
      }
    }
    at.advance(all);
    begin += all;
  }
}

}  // namespace sluice::cpu
