#include "bench/machine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::bench {
namespace {

constexpr int kChains = 12;  // Independent chains, to hide latency.

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float chains_avx512(int64_t steps) {
  __m512 x[kChains];
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) x[c] = _mm512_set1_ps(static_cast<float>(c));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) x[c] = _mm512_fmadd_ps(x[c], a, b);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) x[0] = _mm512_add_ps(x[0], x[c]);
  return _mm512_cvtss_f32(x[0]);
}

__attribute__((target("avx2,fma"))) float chains_avx2(int64_t steps) {
  __m256 x[kChains];
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) x[c] = _mm256_set1_ps(static_cast<float>(c));
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) x[c] = _mm256_fmadd_ps(x[c], a, b);
  }
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) x[0] = _mm256_add_ps(x[0], x[c]);
  return _mm256_cvtss_f32(x[0]);
}

__attribute__((target("avx512f"))) void copy_avx512(float* to, const float* from, int64_t n) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += 16) _mm512_storeu_ps(to + i, _mm512_loadu_ps(from + i));
}

__attribute__((target("avx2"))) void copy_avx2(float* to, const float* from, int64_t n) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < n; i += 8) _mm256_storeu_ps(to + i, _mm256_loadu_ps(from + i));
}
#endif

// Flops of one step of run_chains().
int64_t chain_flops(cpu::Isa isa) {
  return 2 * kChains * (isa == cpu::Isa::kAvx512 ? 16 : isa == cpu::Isa::kAvx2 ? 8 : 1);
}

void run_chains(cpu::Isa isa, int64_t steps) {
  static std::atomic<float> sink;
#if defined(__x86_64__)
  if (isa == cpu::Isa::kAvx512) return sink.store(chains_avx512(steps), std::memory_order_relaxed);
  if (isa == cpu::Isa::kAvx2) return sink.store(chains_avx2(steps), std::memory_order_relaxed);
#endif
  float x[kChains];
  std::fill(std::begin(x), std::end(x), 1.0f);
  for (int64_t i = 0; i < steps; ++i) {
    for (float& v : x) v = std::fma(v, 0.999f, 0.001f);
  }
  sink.store(x[0], std::memory_order_relaxed);
}

// Copies n floats, a multiple of 16, vector by vector, as kernels store.
void copy_plainly(cpu::Isa isa, float* to, const float* from, int64_t n) {
#if defined(__x86_64__)
  if (isa == cpu::Isa::kAvx512) return copy_avx512(to, from, n);
  if (isa == cpu::Isa::kAvx2) return copy_avx2(to, from, n);
#endif
  for (int64_t i = 0; i < n; ++i) {
    to[i] = from[i];
    asm volatile("" ::: "memory");  // Keeps the compiler from calling memcpy.
  }
}

// Spins like a worker. Yields the core after a while.
template <typename F>
void spin_until(F&& happened) {
  for (int spins = 0; !happened(); ++spins) {
    if (spins < 10'000)
      runtime::spin_pause();
    else
      std::this_thread::yield();
  }
}

}  // namespace

Memory::Memory(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), sys::kLargePage);
  data_.reset(static_cast<std::byte*>(
      std::aligned_alloc(static_cast<size_t>(sys::kLargePage), static_cast<size_t>(size))));
  if (data_ == nullptr) throw std::bad_alloc();
  sys::prefer_large_pages(data_.get(), size);
  float* const values = floats();
  for (int64_t i = 0; i < size / 4; ++i)
    values[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
}

void Memory::Free::operator()(std::byte* p) const { std::free(p); }

runtime::Pool& Machine::team(int threads) {
  auto& team = teams_.at(static_cast<size_t>(threads - 1));
  if (team == nullptr) {
    const bool cores = sys::usable_cores() >= threads;
    team = std::make_unique<runtime::Pool>(threads,
                                           cores ? runtime::Idle::kSpin : runtime::Idle::kSleep);
  }
  return *team;
}

double Machine::peak(int threads) {
  constexpr int64_t kSteps = 20'000;
  const double seconds =
      seconds_a_call(3e-4, [&] { run(threads, [this](int) { run_chains(isa_, kSteps); }); });
  double& best = best_peaks_.at(static_cast<size_t>(threads - 1));
  best = std::max(best, static_cast<double>(chain_flops(isa_) * kSteps * threads) / seconds);
  return best;
}

double Machine::copy_seconds(CopyWith with, const Memory& from, const Memory& to, int64_t bytes,
                             int threads, double seconds) {
  const auto work = [&](int worker) {
    const int64_t begin = round_up(bytes * worker / threads, 64);
    const int64_t end = round_up(bytes * (worker + 1) / threads, 64);
    if (with == CopyWith::kMemcpy) {
      std::memcpy(to.bytes() + begin, from.bytes() + begin, static_cast<size_t>(end - begin));
    } else {
      copy_plainly(isa_, to.floats() + begin / 4, from.floats() + begin / 4, (end - begin) / 4);
    }
  };
  return seconds_a_call(seconds, [&] { run(threads, work); });
}

double Machine::read_seconds(const Memory& from, int64_t bytes, int threads, double seconds) {
  std::atomic<bool> found{false};
  const auto work = [&](int worker) {
    const int64_t begin = bytes * worker / threads, end = bytes * (worker + 1) / threads;
    // The C library compares vectors. None of the bytes is 1.
    if (std::memchr(from.bytes() + begin, 1, static_cast<size_t>(end - begin)) != nullptr)
      found = true;
  };
  const double result = seconds_a_call(seconds, [&] { run(threads, work); });
  SLUICE_CHECK(!found);
  return result;
}

double Machine::barrier_seconds(int threads) {
  constexpr int64_t kBarriers = 2000;
  alignas(64) std::atomic<int64_t> arrived;
  const double seconds = seconds_a_call(1e-3, [&] {
    arrived = 0;
    run(threads, [&](int) {
      for (int64_t b = 1; b <= kBarriers; ++b) {
        arrived.fetch_add(1, std::memory_order_acq_rel);
        spin_until([&] { return arrived.load(std::memory_order_acquire) >= b * threads; });
      }
    });
  });
  return seconds / static_cast<double>(kBarriers);
}

double Machine::hand_over_seconds() {
  constexpr int64_t kPasses = 4000;
  alignas(64) std::atomic<int64_t> token;
  const double seconds = seconds_a_call(1e-3, [&] {
    token = 0;
    run(2, [&](int worker) {
      for (int64_t t = worker; t < kPasses; t += 2) {
        spin_until([&] { return token.load(std::memory_order_acquire) == t; });
        token.store(t + 1, std::memory_order_release);
      }
    });
  });
  return seconds / static_cast<double>(kPasses);
}

double Machine::empty_job_seconds(int threads) {
  return seconds_a_call(1e-3, [&] { run(threads, [](int) {}); });
}

}  // namespace sluice::bench
