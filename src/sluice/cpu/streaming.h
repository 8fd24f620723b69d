#pragma once
#include <cstddef>
#include <cstdint>

/// Results larger than the caches: written round them, block by block, from a block that the first cache holds. A plain
/// store would read the memory first and push out what the caches hold, and the result would be gone before it is read.
namespace sluice::cpu {

/// From so many bytes on a tensor is streamed.
inline constexpr int64_t kStreamedBytes = 8 << 20;

/// to[i] = from[i] for i < bytes, by streaming stores where the processor has them; the two do not overlap.
void stream(const std::byte* from, std::byte* to, int64_t bytes);

/// What this thread streamed comes before what it stores from here on, as others see it. Needed once before a kernel's
/// task ends.
void finish_streams();

/// Asks for [p, p + bytes), to be read soon. No harm is done if it is nobody's memory.
inline void prefetch(const void* p, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const auto* const begin = static_cast<const std::byte*>(p);
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at);
}

}  // namespace sluice::cpu
