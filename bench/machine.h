#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "sluice/cpu/simd/isa.h"
#include "sluice/runtime/pool.h"

namespace sluice::bench {

/// Maximum number of threads of a case.
inline constexpr int kMaxThreads = 2;

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the mean seconds of a call of `f`. Calls `f` once without counting, then for about
/// `seconds`.
template <typename F>
double seconds_a_call(double seconds, F&& f) {
  const double begin = seconds_now();
  f();
  const double first = seconds_now();
  const auto calls = std::clamp(static_cast<int64_t>(seconds / (first - begin + 1e-9)), int64_t{1},
                                int64_t{1} << 20);
  const double start = seconds_now();
  for (int64_t i = 0; i < calls; ++i) f();
  return (seconds_now() - start) / static_cast<double>(calls);
}

/// Memory like the engine's arenas: aligned, in large pages if possible, already touched.
class Memory {
 public:
  explicit Memory(int64_t bytes);
  std::byte* bytes() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

enum class CopyWith { kMemcpy, kPlainStores };

/// Measures the limits of this machine, one sample at a time, with the threads that the engine
/// uses.
class Machine {
 public:
  /// Uses vectors of this instruction set.
  explicit Machine(cpu::Isa isa) : isa_(isa) {}

  cpu::Isa isa() const { return isa_; }
  /// Calls work(worker) on workers 0 to threads - 1 and returns when all calls have returned.
  /// Workers wait for the call by spinning.
  template <typename F>
  void run(int threads, const F& work) {
    team(threads).run([](void* f, int worker) { (*static_cast<const F*>(f))(worker); },
                      const_cast<F*>(&work));
  }

  /// Returns floating-point operations per second of fused multiply-adds without memory access:
  /// the best of all measurements with so many threads until now. A worker that shares a core with
  /// another program for a moment thus lowers no limit.
  double peak(int threads);
  /// Returns the seconds of a copy of `bytes`, of which each thread copies a part. Measures for
  /// about `seconds`.
  double copy_seconds(CopyWith with, const Memory& from, const Memory& to, int64_t bytes,
                      int threads, double seconds);
  /// Returns the seconds in which each thread reads a part of `bytes` zeros, again and again.
  /// Measures for about `seconds`.
  double read_seconds(const Memory& from, int64_t bytes, int threads, double seconds);
  /// Returns the seconds of a barrier of `threads` spinning workers.
  double barrier_seconds(int threads);
  /// Returns the seconds from a store of one spinning thread to the next step of another one.
  double hand_over_seconds();
  /// Returns the seconds of an empty job of the team: the fixed cost of a run.
  double empty_job_seconds(int threads);

 private:
  runtime::Pool& team(int threads);

  cpu::Isa isa_;
  std::array<std::unique_ptr<runtime::Pool>, kMaxThreads> teams_;
  std::array<double, kMaxThreads> best_peaks_{};
};

}  // namespace sluice::bench
