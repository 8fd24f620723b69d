#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::data::test {

/// What this test program has allocated with `new` so far: how often, and the most bytes at once.
inline std::atomic<int64_t> allocations{0};
inline std::atomic<int64_t> largest_allocation{0};

}  // namespace sluice::data::test
