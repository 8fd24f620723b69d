// Speed of the f32 matrix product, as a fraction of the machine's fused multiply-add peak measured
// in the same seconds: forward, dX and dW on a weight in panels, and forward on row-major operands;
// one thread and two. `--json` prints one object, `--isa NAME` uses that instruction set,
// `--rounds N` takes N samples of each (default 40), `--threads 1` leaves out two threads,
// `--shape M,K,N` measures that shape (may be repeated).
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/cpu/gemm.h"
#include "sluice/cpu/panels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace sluice;
using cpu::GemmArgs;
using cpu::GemmGrid;
using cpu::Isa;
using cpu::Panels;

constexpr int kMostThreads = 2;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- The machine's peak: twelve independent chains, no memory.

constexpr int kChains = 12;

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
#endif

/// Flops of one step of run_chains().
int64_t chain_flops(Isa isa) {
  return 2 * kChains * (isa == Isa::kAvx512 ? 16 : isa == Isa::kAvx2 ? 8 : 1);
}

void run_chains(Isa isa, int64_t steps) {
  static std::atomic<float> sink;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return sink.store(chains_avx512(steps), std::memory_order_relaxed);
  if (isa == Isa::kAvx2) return sink.store(chains_avx2(steps), std::memory_order_relaxed);
#endif
  float x[kChains];
  std::fill(std::begin(x), std::end(x), 1.0f);
  for (int64_t i = 0; i < steps; ++i)
    for (float& v : x) v = std::fma(v, 0.999f, 0.001f);
  sink.store(x[0], std::memory_order_relaxed);
}

// ---- Two threads that spin for work.

class Team {
 public:
  Team() : other_([this] { serve(); }) {}
  ~Team() {
    stop_.store(true);
    round_.fetch_add(1);
    other_.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Calls work(worker) on every worker and waits for all.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    const int64_t round = round_.fetch_add(1, std::memory_order_release) + 1;
    work(0);
    while (done_.load(std::memory_order_acquire) != round) pause();
  }

 private:
  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  void serve() {
    for (int64_t seen = 0;;) {
      // Sleeps while nothing comes, so that runs on one thread have the machine.
      for (int64_t spins = 0; round_.load(std::memory_order_acquire) == seen; ++spins) {
        pause();
        if (spins > 20'000) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      ++seen;
      if (stop_.load()) return;
      (*work_)(1);
      done_.store(seen, std::memory_order_release);
    }
  }

  const std::function<void(int)>* work_ = nullptr;
  alignas(64) std::atomic<int64_t> round_ = 0;
  alignas(64) std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread other_;
};

// ---- Products.

/// Floats on a cache line of their own.
class Floats {
 public:
  explicit Floats(int64_t size)
      : data_(static_cast<float*>(
            std::aligned_alloc(4096, static_cast<size_t>((size * 4 + 4096) / 4096 * 4096)))) {
    for (int64_t i = 0; i < size; ++i)
      data_.get()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  }
  float* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
};

struct Size {
  int64_t m, k, n;
  double flops() const { return 2.0 * static_cast<double>(m * k) * static_cast<double>(n); }
};

/// One product and its operands.
struct Case {
  std::string name;
  GemmArgs args;
  std::vector<Floats> operands;
  std::vector<Floats> workspaces;
  GemmGrid grid;  ///< As the compiler cuts it.

  Case(std::string what, GemmArgs sizes, int64_t a, int64_t b, int64_t c)
      : name(std::move(what)), args(sizes), grid(cpu::gemm_grid(sizes, 16)) {
    for (const int64_t floats : {a, b, c}) operands.emplace_back(floats);
    args.a = operands[0].get();
    args.b = operands[1].get();
    args.c = operands[2].get();
    for (int i = 0; i < kMostThreads; ++i)
      workspaces.emplace_back(cpu::gemm_workspace_bytes(args) / 4);
  }

  /// The tasks of one worker.
  void run(Isa isa, int worker, int workers) const {
    for (int64_t t = grid.tasks() * worker / workers; t < grid.tasks() * (worker + 1) / workers;
         ++t) {
      const int64_t row = t % grid.row_blocks * grid.rows, col = t / grid.row_blocks * grid.cols;
      cpu::gemm(args, row, std::min(row + grid.rows, args.m), col,
                std::min(col + grid.cols, args.n), workspaces[static_cast<size_t>(worker)].get(),
                isa);
    }
  }
};

std::vector<Case> cases_of(const Size& s) {
  const auto [m, k, n] = s;
  const Panels w = Panels::of(k, n);
  std::vector<Case> cases;
  cases.emplace_back("forward",
                     GemmArgs{.m = m, .n = n, .k = k, .lda = k, .b_panel = w.width, .ldc = n},
                     m * k, w.floats(), m * n);
  cases.emplace_back(
      "dX",
      GemmArgs{.m = m, .n = k, .k = n, .lda = n, .trans_b = true, .b_panel = w.width, .ldc = k},
      m * n, w.floats(), m * k);
  cases.emplace_back(
      "dW",
      GemmArgs{.m = k, .n = n, .k = m, .lda = k, .trans_a = true, .ldb = n, .c_panel = w.width},
      m * k, m * n, w.floats());
  cases.emplace_back("row-major", GemmArgs{.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n},
                     m * k, k * n, m * n);
  return cases;
}

// ---- Measuring.

struct Samples {
  std::vector<double> gflops;
  double best() const { return *std::max_element(gflops.begin(), gflops.end()); }
  double median() {
    std::nth_element(gflops.begin(), gflops.begin() + static_cast<int64_t>(gflops.size() / 2),
                     gflops.end());
    return gflops[gflops.size() / 2];
  }
};

/// One sample: calls for about 300 µs, after one that is not counted.
void sample(Samples& samples, double flops, double seconds_guess, const std::function<void()>& f) {
  f();
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(3e-4 / seconds_guess));
  const double start = now();
  for (int64_t i = 0; i < calls; ++i) f();
  samples.gflops.push_back(static_cast<double>(calls) * flops / (now() - start) * 1e-9);
}

struct Row {
  Size size;
  std::string name;
  int threads;
  double best, median;  ///< GF/s.
  double peak;          ///< The machine's best in the same seconds, on as many threads.
};

class Bench {
 public:
  Bench(Isa isa, int rounds, int most_threads)
      : isa_(isa), rounds_(rounds), most_threads_(most_threads) {}

  void measure(const Size& size) {
    const std::vector<Case> cases = cases_of(size);
    for (int threads = 1; threads <= most_threads_; ++threads) {
      std::vector<Samples> samples(cases.size());
      Samples peaks;
      for (int round = 0; round < rounds_; ++round) {
        for (size_t c = 0; c < cases.size(); ++c) {
          sample_peak(peaks, threads);
          const auto work = [&](int worker) { cases[c].run(isa_, worker, threads); };
          sample(samples[c], size.flops(), size.flops() / (1e11 * threads),
                 on_threads(threads, work));
        }
      }
      for (size_t c = 0; c < cases.size(); ++c) {
        rows_.push_back(
            {size, cases[c].name, threads, samples[c].best(), samples[c].median(), peaks.best()});
      }
    }
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::function<void()> on_threads(int threads, std::function<void(int)> work) {
    if (threads == 1) return [work] { work(0); };
    return [this, work] { team_.run(work); };
  }

  void sample_peak(Samples& peaks, int threads) {
    constexpr int64_t kSteps = 20'000;
    const auto flops = static_cast<double>(chain_flops(isa_) * kSteps);
    sample(peaks, flops * threads, flops / 1e11,
           on_threads(threads, [this](int) { run_chains(isa_, kSteps); }));
  }

  Isa isa_;
  int rounds_;
  int most_threads_;
  std::vector<Row> rows_;
  Team team_;
};

void print_table(Isa isa, const Bench& bench) {
  fmt::print("{}, GF/s; peak: fused multiply-adds without memory, in the same seconds\n",
             to_string(isa));
  fmt::print("{:<16} {:<10} | {:>7} {:>7} {:>7} {:>8} | {:>7} {:>7} {:>7} {:>8} | {:>6}\n", "M,K,N",
             "product", "median", "best", "peak", "of peak", "median", "best", "peak", "of peak",
             "2 / 1");
  const std::vector<Row>& rows = bench.rows();
  for (const Row& one : rows) {
    if (one.threads != 1) continue;
    const auto& s = one.size;
    fmt::print("{:<16} {:<10}", fmt::format("{},{},{}", s.m, s.k, s.n), one.name);
    for (const Row& row : rows) {
      if (row.name != one.name || row.size.m != s.m || row.size.k != s.k || row.size.n != s.n)
        continue;
      fmt::print(" | {:>7.1f} {:>7.1f} {:>7.1f} {:>8.3f}", row.median, row.best, row.peak,
                 row.best / row.peak);
      if (row.threads > 1) fmt::print(" | {:>6.2f}", row.best / one.best);
    }
    fmt::print("\n");
  }
}

void print_json(Isa isa, const Bench& bench) {
  nlohmann::json result = {{"isa", to_string(isa)}, {"unit", "GF/s"}};
  for (const Row& row : bench.rows()) {
    result["gemm"].push_back({{"m", row.size.m},
                              {"k", row.size.k},
                              {"n", row.size.n},
                              {"product", row.name},
                              {"threads", row.threads},
                              {"best", row.best},
                              {"median", row.median},
                              {"peak", row.peak},
                              {"of_peak", row.best / row.peak}});
  }
  fmt::print("{}\n", result.dump(2));
}

int64_t number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value > 0,
          "expected a number > 0, got '{}'", text);
  return value;
}

Size size_of(std::string_view text) {
  const size_t first = text.find(','), second = text.find(',', first + 1);
  require(first != text.npos && second != text.npos, "expected M,K,N, got '{}'", text);
  return {number(text.substr(0, first)), number(text.substr(first + 1, second - first - 1)),
          number(text.substr(second + 1))};
}

void run(std::span<char*> arguments) {
  bool json = false;
  Isa isa = cpu::current_isa();
  int64_t rounds = 40, threads = kMostThreads;
  std::vector<Size> sizes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view flag = arguments[i];
    const auto value = [&] {
      require(++i < arguments.size(), "{} needs a value", flag);
      return std::string_view(arguments[i]);
    };
    if (flag == "--json") {
      json = true;
    } else if (flag == "--isa") {
      isa = cpu::isa_from_name(value());
    } else if (flag == "--rounds") {
      rounds = number(value());
    } else if (flag == "--threads") {
      threads = std::min<int64_t>(number(value()), kMostThreads);
    } else if (flag == "--shape") {
      sizes.push_back(size_of(value()));
    } else {
      fail(ErrorKind::kUsage,
           "usage: gemm_bench [--json] [--isa NAME] [--rounds N] [--threads 1|2] [--shape M,K,N]…");
    }
  }
  require(isa <= cpu::detect_isa(), "this machine lacks {}", to_string(isa));
  if (sizes.empty()) {
    sizes = {{8, 784, 512},   {8, 512, 512}, {64, 784, 512},  {64, 512, 512},
             {256, 512, 512}, {64, 512, 10}, {128, 768, 2304}};
  }
  Bench bench(isa, static_cast<int>(rounds), static_cast<int>(threads));
  for (const Size& size : sizes) bench.measure(size);
  json ? print_json(isa, bench) : print_table(isa, bench);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  } catch (const sluice::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
