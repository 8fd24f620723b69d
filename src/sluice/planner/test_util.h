#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/planner/problem.h"

namespace sluice::planner {

/// A buffer of alignment 1 that lives in one interval.
inline Buffer make_buffer(std::string name, int64_t begin, int64_t end, int64_t size) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.lifetime = {{begin, end}};
  buffer.size = size;
  return buffer;
}

/// Runs `action` and expects Error{kind} whose text contains `part`.
template <typename Action>
void expect_error(ErrorKind kind, const std::string& part, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "no error with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

/// Returns the lowest height of all plans: tries to stack the buffers in every order. For few
/// buffers that live in steps 0 to 19.
inline int64_t brute_force(const Problem& problem) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<size_t> order(problem.buffers.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  int64_t best = kNone;
  do {
    std::vector<int64_t> end(20, 0);
    int64_t height = 0;
    for (const size_t i : order) {
      const Buffer& buffer = problem.buffers[i];
      int64_t top = 0;
      for (const Interval& life : buffer.lifetime) {
        for (int64_t s = life.begin; s < life.end; ++s) top = std::max(top, end[s]);
      }
      top = (top + buffer.alignment - 1) / buffer.alignment * buffer.alignment;
      if (buffer.fixed_offset) {
        if (top > *buffer.fixed_offset) height = kNone;
        top = *buffer.fixed_offset;
      }
      top += buffer.size;
      for (const Interval& life : buffer.lifetime) {
        for (int64_t s = life.begin; s < life.end; ++s) end[s] = top;
      }
      height = std::max(height, top);
    }
    best = std::min(best, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace sluice::planner
