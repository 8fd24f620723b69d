#pragma once
#include <cstdint>

namespace sluice::test {

/// Returns the number of allocations of this process so far, by any thread. Counts calls of malloc,
/// calloc, realloc and the aligned forms, so also operator new. Always 0 under a sanitizer, which
/// has an allocator of its own.
int64_t allocations();

/// Returns false where allocations are not counted.
bool counts_allocations();

}  // namespace sluice::test
