#pragma once
#include <cstddef>
#include <cstdint>

/// Results larger than the caches: written round them, block by block, from a block that the first cache holds. A plain
/// store would read the memory first and push out what the caches hold, and the result would be gone before it is read.
namespace sluice::cpu {

/// Whether a result of so many bytes is streamed: not if the processor computes longer than the memory takes.
inline bool is_streamed(int64_t bytes, double flops_per_element) {
  constexpr int64_t kLeastBytes = 8 << 20;
  constexpr double kMostFlops = 8;
  return bytes >= kLeastBytes && flops_per_element <= kMostFlops;
}

/// to[i] = from[i] for i < bytes, by streaming stores where the processor has them; the two do not overlap.
void stream(const std::byte* from, std::byte* to, int64_t bytes);

/// What this thread streamed comes before what it stores from here on, as others see it. Needed once before a kernel's
/// task ends.
void finish_streams();

/// Elements of a block: as many lines as the processor can wait for at once are few, and what streams in and out should go
/// on while it computes.
inline constexpr int64_t kStreamedBlock = 128;

/// Asks for what lies 2 KiB behind [p, p + bytes), to be read soon. No harm is done if it is nobody's memory.
inline void prefetch_behind(const void* p, int64_t bytes) {
  constexpr int64_t kLine = 64, kDistance = 2048;
  const auto* const begin = static_cast<const std::byte*>(p) + kDistance;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at);
}

}  // namespace sluice::cpu
