#include "malloc_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define SLUICE_COUNTS_ALLOCATIONS 0
#else
#define SLUICE_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<int64_t> count{0};
}  // namespace

namespace sluice::test {
int64_t allocations() { return count.load(); }
bool counts_allocations() { return SLUICE_COUNTS_ALLOCATIONS != 0; }
}  // namespace sluice::test

#if SLUICE_COUNTS_ALLOCATIONS
// These functions replace the functions of the C library, which remain available under these names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* p, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, size);
}
void* memalign(size_t alignment, size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** p, size_t alignment, size_t size) {
  *p = memalign(alignment, size);
  return *p == nullptr ? ENOMEM : 0;
}
}
#endif
