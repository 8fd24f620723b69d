#pragma once
#include <cstdint>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace sluice {

/// While an object of this class exists, its thread reads denormal floats as zero and replaces
/// denormal results by zero. Code that defines or computes the bits of a run creates one. The
/// destructor restores the previous mode.
class FlushToZero {
 public:
  FlushToZero() : previous_(read()) { write(previous_ | kFlush); }
  ~FlushToZero() { write(previous_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
#if defined(__SSE__)
  static constexpr uint64_t kFlush = 0x8040;  // results (FTZ) and operands (DAZ)
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t{1} << 24;
  static uint64_t read() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif
  uint64_t previous_;
};

}  // namespace sluice
