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
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    auto* const line = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
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
