#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "sluice/base/error.h"

namespace sluice::cpu {

/// For tests: an array of `size` elements between two guard pages, which fault on any access. The
/// array ends at the second page (kEnd), which detects accesses past the end. Or it begins right
/// after the first page (kBegin), which detects accesses before the begin.
template <typename T>
class GuardedBuffer {
 public:
  enum class Against { kBegin, kEnd };

  explicit GuardedBuffer(int64_t size, Against side = Against::kEnd) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    const size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    void* p = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(p != MAP_FAILED, "guarded buffer: cannot map {} bytes", mapped_);
    base_ = static_cast<std::byte*>(p);
    require(inner == 0 || mprotect(base_ + page, inner, PROT_READ | PROT_WRITE) == 0,
            "guarded buffer: cannot make {} bytes accessible", inner);
    data_ = reinterpret_cast<T*>(base_ + page + (side == Against::kEnd ? inner - bytes : 0));
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }

 private:
  int64_t size_ = 0;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace sluice::cpu
