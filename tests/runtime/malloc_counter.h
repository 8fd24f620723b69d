#pragma once
#include <cstdint>

namespace sluice::test {

/// Allocations of this process so far, by any thread: calls of malloc, calloc, realloc and the aligned forms, so also of
/// operator new. Always 0 under a sanitizer, which has an allocator of its own.
int64_t allocations();

/// False where allocations are not counted.
bool counts_allocations();

}  // namespace sluice::test
