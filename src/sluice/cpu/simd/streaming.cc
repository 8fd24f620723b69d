#include "sluice/cpu/simd/streaming.h"

#include <algorithm>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace sluice::cpu {

void stream(const std::byte* from, std::byte* to, int64_t bytes) {
#if defined(__x86_64__)
  constexpr int64_t kLine = 64;
  const auto copy = [&](int64_t count) {
    std::copy_n(from, count, to);
    from += count;
    to += count;
    bytes -= count;
  };
  // Stream whole cache lines only; copy the bytes before and after them.
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLine);
  if (past != 0) copy(std::min(bytes, kLine - past));
  for (; bytes >= kLine; bytes -= kLine, from += kLine, to += kLine) {
    __m128i line[4];
    for (int i = 0; i < 4; ++i)
      line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
  }
  copy(bytes);
#else
  std::copy_n(from, bytes, to);
#endif
}

void finish_streams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace sluice::cpu
