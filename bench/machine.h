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

/// Most threads that a case uses.
inline constexpr int kMostThreads = 2;

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Mean seconds of a call of `f`: calls for about `seconds`, after one that is not counted.
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

/// Bytes as the engine has its arenas: aligned, in large pages where there are some, touched.
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

/// What this machine can do at best, a sample at a time; the engine's kind of threads to do it
/// with.
class Machine {
 public:
  /// Vectors of that instruction set.
  explicit Machine(cpu::Isa isa) : isa_(isa) {}

  cpu::Isa isa() const { return isa_; }
  /// Calls work(worker) on workers 0 to threads - 1, of which the others spin for it; returns when
  /// all have returned.
  template <typename F>
  void run(int threads, const F& work) {
    team(threads).run([](void* f, int worker) { (*static_cast<const F*>(f))(worker); },
                      const_cast<F*>(&work));
  }

  /// Floating-point operations a second in fused multiply-adds without memory.
  double peak(int threads);
  /// Seconds of a copy of `bytes`, each thread copying its part; of what is copied, not of reads
  /// and writes.
  double copy_seconds(CopyWith with, const Memory& from, const Memory& to, int64_t bytes,
                      int threads, double seconds);
  /// Seconds of a barrier of `threads` workers that spin.
  double barrier_seconds(int threads);
  /// Seconds from one spinning thread's store to another one's next step.
  double hand_over_seconds();
  /// Seconds of a job of the team that does nothing: what a run costs with nothing in it.
  double empty_job_seconds(int threads);

 private:
  runtime::Pool& team(int threads);

  cpu::Isa isa_;
  std::array<std::unique_ptr<runtime::Pool>, kMostThreads> teams_;
};

}  // namespace sluice::bench
