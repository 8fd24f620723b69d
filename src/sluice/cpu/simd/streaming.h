#pragma once
#include <cstddef>
#include <cstdint>

/// Streaming stores for results larger than the caches: copies blocks from the L1 cache to memory
/// and bypasses the caches. A normal store would first read the line from memory and evict other
/// data. The result would be evicted as well before anyone reads it.
namespace sluice::cpu {

/// Returns whether a result of `bytes` bytes is streamed. It is not if it is small, or if computing
/// it takes longer than writing it to memory.
inline bool is_streamed(int64_t bytes, double flops_per_element) {
  constexpr int64_t kMinBytes = 8 << 20;
  constexpr double kMaxFlops = 8;
  return bytes >= kMinBytes && flops_per_element <= kMaxFlops;
}

/// Copies `bytes` bytes, with streaming stores if the processor has them. `from` and `to` must not
/// overlap.
void stream(const std::byte* from, std::byte* to, int64_t bytes);

/// Makes all streaming stores of this thread visible to other threads before its later stores. A
/// task that streams must call it once before it ends.
void finish_streams();

/// Elements of a streamed block. It is small because a core can wait for few cache lines at once,
/// and transfers should overlap with computation.
inline constexpr int64_t kStreamedBlock = 256;

/// Prefetches the bytes that are 2 KiB after [p, p + bytes), which will be read soon. They need not
/// be valid memory.
inline void prefetch_ahead(const void* p, int64_t bytes) {
  constexpr int64_t kLine = 64, kDistance = 2048;
  const auto* const begin = static_cast<const std::byte*>(p) + kDistance;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at);
}

}  // namespace sluice::cpu
