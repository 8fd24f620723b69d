#include "sluice/planner/test_instances.h"

#include <algorithm>
#include <cmath>
#include <queue>
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

}  // namespace

Problem random_lifetimes(int64_t count, double mean, Sizes sizes, Seed seed) {
  require(count >= 0 && mean > 1,
          "random_lifetimes: the count must be at least 0 and the mean above 1, got {} and {}",
          count, mean);
  constexpr int64_t kMin = 64;
  constexpr int64_t kMax = int64_t{16} << 20;
  Draw draw(seed);
  Problem problem;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = draw.below(count);
    const double steps = std::log(1 - draw.unit()) / std::log(1 - 1 / mean);
    int64_t size = kMin + draw.below(kMax - kMin + 1);
    if (sizes == Sizes::kLogUniform) {
      size = static_cast<int64_t>(kMin * std::exp2(draw.unit() * std::log2(kMax / kMin)));
    }
    problem.buffers.push_back({.name = name_of(i),
                               .lifetime = {{begin, begin + 1 + static_cast<int64_t>(steps)}},
                               .size = size / kMin * kMin,
                               .alignment = 64,
                               .fixed_offset = {},
                               .hint = {}});
  }
  return problem;
}

Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed) {
  require(count >= 1 && steps >= 1 && bytes >= 1,
          "perfect_cuts: steps, bytes and count must be at least 1, got {}, {} and {}", steps,
          bytes, count);
  struct Piece {
    Interval life;
    int64_t size;
  };
  Draw draw(seed);
  std::vector<Piece> pieces{{{0, steps}, bytes}};
  // Among equal areas, the last piece is cut first.
  std::priority_queue<std::pair<double, size_t>> largest;
  const auto push = [&](size_t i) {
    const auto& [life, size] = pieces[i];
    largest.emplace(static_cast<double>(life.end - life.begin) * static_cast<double>(size), i);
  };
  push(0);
  while (static_cast<int64_t>(pieces.size()) < count && !largest.empty()) {
    const size_t i = largest.top().second;
    largest.pop();
    Piece rest = pieces[i];
    const int64_t length = rest.life.end - rest.life.begin;
    if (length == 1 && rest.size == 1) continue;
    const bool in_time = rest.size == 1 || (length > 1 && draw.below(2) == 0);
    if (in_time) {
      rest.life.begin += 1 + draw.below(length - 1);
      pieces[i].life.end = rest.life.begin;
    } else {
      rest.size = 1 + draw.below(rest.size - 1);
      pieces[i].size -= rest.size;
    }
    pieces.push_back(rest);
    push(i);
    push(pieces.size() - 1);
  }
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
