#include "sluice/planner/test_instances.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sluice/base/error.h"

namespace sluice::planner {
namespace {

class Draw {
 public:
  explicit Draw(Seed seed) : seed_(seed) {}
  /// Draws a whole number of [0, limit); each is equally likely.
  int64_t below(int64_t limit) {
    const auto words = philox(seed_, count_++);
    const uint64_t wide = uint64_t{words[0]} << 32 | words[1];
    return static_cast<int64_t>(wide % static_cast<uint64_t>(limit));
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(below(int64_t{1} << 53)) * 0x1p-53; }

 private:
  Seed seed_;
  uint64_t count_ = 0;
};

std::string name_of(int64_t index) { return "b" + std::to_string(index); }

struct Piece {
  Interval life;
  int64_t offset;
  int64_t size;
  int64_t length() const { return life.end - life.begin; }
  double area() const { return static_cast<double>(length()) * static_cast<double>(size); }
};

// Returns the piece to cut, one of `indices`.
size_t choose(Cuts::Next next, const std::vector<Piece>& pieces, const std::vector<size_t>& indices,
              Draw& draw) {
  if (next == Cuts::Next::kAny) {
    return indices[static_cast<size_t>(draw.below(static_cast<int64_t>(indices.size())))];
  }
  if (next == Cuts::Next::kLargest) {
    // Among equal areas, choose the last piece.
    return *std::max_element(indices.begin(), indices.end(), [&](size_t a, size_t b) {
      return std::pair(pieces[a].area(), a) < std::pair(pieces[b].area(), b);
    });
  }
  double sum = 0;
  for (const size_t i : indices) sum += pieces[i].area();
  double left = draw.unit() * sum;
  for (const size_t i : indices) {
    left -= pieces[i].area();
    if (left < 0) return i;
  }
  return indices.back();
}

// Cuts a piece in two at a random place, in time or in bytes.
void cut(std::vector<Piece>& pieces, size_t i, Draw& draw) {
  Piece rest = pieces[i];
  const bool in_time = rest.size == 1 || (rest.length() > 1 && draw.below(2) == 0);
  if (in_time) {
    rest.life.begin += 1 + draw.below(rest.length() - 1);
    pieces[i].life.end = rest.life.begin;
  } else {
    rest.size = 1 + draw.below(rest.size - 1);
    pieces[i].size -= rest.size;
    rest.offset += pieces[i].size;
  }
  pieces.push_back(rest);
}

//   d d c      Cuts a piece in five, as drawn or mirrored. Returns false if it cannot: the piece
//   d m b      is too small, or the middle piece would be empty.
//   a a b
bool turn(std::vector<Piece>& pieces, size_t i, Draw& draw) {
  const Piece whole = pieces[i];
  if (whole.length() < 3 || whole.size < 3) return false;
  int64_t first = 1 + draw.below(whole.length() - 2);
  int64_t second = 1 + draw.below(whole.length() - 2);
  int64_t low = 1 + draw.below(whole.size - 2);
  int64_t high = 1 + draw.below(whole.size - 2);
  if (first == second || low == high) return false;
  if (first > second) std::swap(first, second);
  if (low > high) std::swap(low, high);
  const bool mirror = draw.below(2) == 0;
  const auto piece = [&](int64_t begin, int64_t end, int64_t bottom, int64_t top) {
    const Interval life =
        mirror ? Interval{whole.length() - end, whole.length() - begin} : Interval{begin, end};
    return Piece{{whole.life.begin + life.begin, whole.life.begin + life.end},
                 whole.offset + bottom,
                 top - bottom};
  };
  pieces[i] = piece(0, second, 0, low);
  pieces.push_back(piece(second, whole.length(), 0, high));
  pieces.push_back(piece(first, whole.length(), high, whole.size));
  pieces.push_back(piece(0, first, low, whole.size));
  pieces.push_back(piece(first, second, low, high));
  return true;
}

// Removes random pieces until `cuts.count` are left. Keeps all pieces that live at one random step,
// so that the bound remains.
void leave_out(std::vector<Piece>& pieces, const Cuts& cuts, Draw& draw) {
  const int64_t full = draw.below(cuts.steps);
  std::vector<size_t> others;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].life.begin > full || full >= pieces[i].life.end) others.push_back(i);
  }
  std::vector<char> is_out(pieces.size(), 0);
  for (auto left = static_cast<int64_t>(pieces.size()); left > cuts.count && !others.empty();
       --left) {
    const auto k = static_cast<size_t>(draw.below(static_cast<int64_t>(others.size())));
    is_out[others[k]] = 1;
    others[k] = others.back();
    others.pop_back();
  }
  size_t kept = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!is_out[i]) pieces[kept++] = pieces[i];
  }
  pieces.resize(kept);
}

}  // namespace

Problem random_lifetimes(int64_t count, double mean, Sizes sizes, Seed seed) {
  require(count >= 0 && mean > 1,
          "random_lifetimes: the count must be at least 0 and the mean above 1, got {} and {}",
          count, mean);
  constexpr int64_t kLeast = 64;
  constexpr int64_t kMost = int64_t{16} << 20;
  Draw draw(seed);
  Problem problem;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = draw.below(count);
    const double steps = std::log(1 - draw.unit()) / std::log(1 - 1 / mean);
    int64_t size = kLeast + draw.below(kMost - kLeast + 1);
    if (sizes == Sizes::kLogUniform) {
      size = static_cast<int64_t>(kLeast * std::exp2(draw.unit() * std::log2(kMost / kLeast)));
    }
    problem.buffers.push_back({.name = name_of(i),
                               .lifetime = {{begin, begin + 1 + static_cast<int64_t>(steps)}},
                               .size = size / kLeast * kLeast,
                               .alignment = 64,
                               .fixed_offset = {},
                               .hint = {}});
  }
  return problem;
}

Problem cut_rectangle(const Cuts& cuts, Seed seed) {
  require(cuts.count >= 1 && cuts.steps >= 1 && cuts.bytes >= 1,
          "cut_rectangle: steps, bytes and count must be at least 1, got {}, {} and {}", cuts.steps,
          cuts.bytes, cuts.count);
  Draw draw(seed);
  std::vector<Piece> pieces{{{0, cuts.steps}, 0, cuts.bytes}};
  const int64_t holes = cuts.count * cuts.holes / (100 - cuts.holes);
  std::vector<size_t> whole;  // Pieces that can be cut.
  while (static_cast<int64_t>(pieces.size()) < cuts.count + holes) {
    whole.clear();
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].area() > 1) whole.push_back(i);
    }
    if (whole.empty()) break;
    const size_t i = choose(cuts.next, pieces, whole, draw);
    if (cuts.pinwheels > 0 && draw.below(100) < cuts.pinwheels && turn(pieces, i, draw)) continue;
    cut(pieces, i, draw);
  }
  if (holes > 0) leave_out(pieces, cuts, draw);
  Problem problem;
  for (size_t i = 0; i < pieces.size(); ++i) {
    problem.buffers.push_back({.name = name_of(static_cast<int64_t>(i)),
                               .lifetime = {pieces[i].life},
                               .size = pieces[i].size,
                               .alignment = 1,
                               .fixed_offset = {},
                               .hint = {}});
  }
  return problem;
}

Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed) {
  return cut_rectangle({.count = count, .steps = steps, .bytes = bytes}, seed);
}

Problem nested_lifetimes(int64_t layers, Seed seed) {
  Draw draw(seed);
  Problem problem;
  const auto add = [&](const char* kind, int64_t layer, Interval life, int64_t size) {
    problem.buffers.push_back({.name = kind + std::to_string(layer),
                               .lifetime = {life},
                               .size = size,
                               .alignment = 64,
                               .fixed_offset = {},
                               .hint = {}});
  };
  const int64_t last = 2 * layers - 1;
  int64_t width = 4 * (16 + draw.below(1024));
  for (int64_t k = 0; k < layers; ++k) {
    const int64_t next_width = 4 * (16 + draw.below(1024));
    const int64_t backward = last - k;
    add("activation", k, {k, backward + 1}, 8 * next_width);
    add("scratch", k, {k, k + 1}, 4 * (1 + draw.below(4096)));
    add("gradient", k, {backward, backward + 2}, 8 * width);
    add("weight_gradient", k, {backward, backward + 1}, width / 4 * next_width);
    width = next_width;
  }
  return problem;
}

}  // namespace sluice::planner
