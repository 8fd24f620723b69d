#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <vector>

#include "sluice/runtime/device_address.h"

namespace sluice::opaque {

/// Alignment of device memory, in bytes. Addresses are never aligned to more.
inline constexpr int64_t kAlignment = 256;

/// Bytes [begin, end) of device memory, or of pinned memory of the host.
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

inline Range range_of(runtime::DeviceAddress begin, int64_t bytes) {
  return {begin.in_device(), begin.in_device() + static_cast<uint64_t>(bytes)};
}
inline Range range_of(const std::byte* begin, int64_t bytes) {
  const auto number = reinterpret_cast<uintptr_t>(begin);
  return {number, number + static_cast<uintptr_t>(bytes)};
}

/// The memory of an open device, and the host memory that it knows. Device addresses lie in pages
/// that the host cannot touch; the bytes lie elsewhere. Any thread may call a function.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns the address of bytes with the value 0xff. Error{kDoesNotFit} if the system refuses
  /// them.
  runtime::DeviceAddress allocate(int64_t bytes);
  /// Returns the bytes at an address. Error{kInternal} unless all of them lie in one allocation.
  std::byte* bytes_at(runtime::DeviceAddress begin, int64_t bytes) const;

  /// Error{kInternal} if `memory` is empty or overlaps pinned memory.
  void pin(std::span<std::byte> memory);
  /// Error{kInternal} unless these bytes lie in a span that was pinned.
  void check_pinned(const std::byte* begin, int64_t bytes) const;

  /// All ranges that were allocated or pinned.
  std::vector<Range> ranges() const;

 private:
  struct Pages {  // Unmaps pages without access.
    size_t mapped;
    void operator()(std::byte* pages) const;
  };
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  struct Block {
    int64_t bytes;
    std::unique_ptr<std::byte[], Free> data;
    std::unique_ptr<std::byte, Pages> pages;
  };

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Block> blocks_;  // Keyed by address.
  std::vector<Range> pinned_;
};

}  // namespace sluice::opaque
