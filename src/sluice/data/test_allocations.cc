#include "sluice/data/test_allocations.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

void* counted(size_t size, size_t alignment) {
  using sluice::data::test::largest_allocation;
  ++sluice::data::test::allocations;
  largest_allocation = std::max<int64_t>(largest_allocation, static_cast<int64_t>(size));
  // posix_memalign takes the exact size, so a sanitizer detects access to the first byte after it.
  void* p = nullptr;
  if (::posix_memalign(&p, alignment, size) != 0) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new[](size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept try {
  return counted(size, static_cast<size_t>(alignment));
} catch (const std::bad_alloc&) {
  return nullptr;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
