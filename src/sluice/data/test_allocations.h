#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::data::test {

/// Number of calls of `new` in this test program so far, and the bytes of the largest one.
inline std::atomic<int64_t> allocations{0};
inline std::atomic<int64_t> largest_allocation{0};

}  // namespace sluice::data::test
