#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "bench/figure.h"
#include "sluice/base/checked.h"
#include "sluice/base/ids/ids.h"
#include "sluice/cpu/gemm/gemm.h"
#include "sluice/cpu/gemm/panels.h"

namespace sluice::bench {
namespace {

using cpu::GemmArgs;
using cpu::Panels;

constexpr int kGemmSamples = 8;
constexpr double kGemmSeconds = 3e-4;

struct GemmSize {
  int64_t m, k, n;
};
constexpr GemmSize kGemmSizes[] = {{8, 784, 512},   {8, 512, 512}, {64, 784, 512},  {64, 512, 512},
                                   {256, 512, 512}, {64, 512, 10}, {128, 768, 2304}};

enum class Product { kForward, kInputGradient, kWeightGradient, kRowMajor };
struct GemmKind {
  Product product;
  const char* name;
  // Goals as parts of the peak, with 8 rows and with 64 or more; 0 for no goal.
  double at_8, at_64;
};
constexpr GemmKind kGemmKinds[] = {{Product::kForward, "forward", 0.85, 0.92},
                                   {Product::kInputGradient, "dX", 0.45, 0.8},
                                   {Product::kWeightGradient, "dW", 0.7, 0.9},
                                   {Product::kRowMajor, "row-major", 0, 0}};
constexpr double kNarrowPart = 0.5;  // Goal if a vector is only partly used.

// One product with its operands, cut into tasks like the compiler does.
class Gemm {
 public:
  Gemm(const GemmSize& s, Product product, int threads) {
    const auto [m, k, n] = s;
    const Panels w = Panels::of(k, n);
    int64_t a = m * k, b = w.floats(), c = m * n;  // Sizes of the operands in floats.
    switch (product) {
      case Product::kForward:
        args_ = {.m = m, .n = n, .k = k, .lda = k, .b_panel = w.width, .ldc = n};
        break;
      case Product::kInputGradient:
        args_ = {.m = m, .n = k, .k = n, .lda = n, .trans_b = true, .b_panel = w.width, .ldc = k};
        std::swap(a, c);
        break;
      case Product::kWeightGradient:
        args_ = {.m = k, .n = n, .k = m, .lda = k, .trans_a = true, .ldb = n, .c_panel = w.width};
        std::swap(b, c);
        break;
      case Product::kRowMajor:
        args_ = {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n};
        b = k * n;
        break;
    }
    // Place the operands one after another, as in an arena. Operands that all begin at a page would
    // share cache sets.
    const int64_t workspace = cpu::gemm_workspace_bytes(args_) / 4;
    int64_t floats = 0;
    const auto size_of_operand = [&](int64_t size) {
      return std::exchange(floats, floats + round_up(size, 16));
    };
    const int64_t a_at = size_of_operand(a), b_at = size_of_operand(b), c_at = size_of_operand(c);
    for (int i = 0; i < threads; ++i) workspaces_at_.push_back(size_of_operand(workspace));
    memory_ = std::make_unique<Memory>(floats * 4);
    args_.a = memory_->floats() + a_at;
    args_.b = memory_->floats() + b_at;
    args_.c = memory_->floats() + c_at;
    grid_ = cpu::gemm_grid(args_, 16);
  }

  /// Runs the tasks of one worker.
  void run(cpu::Isa isa, int worker, int workers) const {
    const int64_t tasks = grid_.tasks();
    for (int64_t t = tasks * worker / workers; t < tasks * (worker + 1) / workers; ++t) {
      const int64_t row = t % grid_.row_blocks * grid_.rows,
                    col = t / grid_.row_blocks * grid_.cols;
      cpu::gemm(args_, row, std::min(row + grid_.rows, args_.m), col,
                std::min(col + grid_.cols, args_.n), memory_->floats() + at(workspaces_at_, worker),
                isa);
    }
  }

 private:
  GemmArgs args_;
  std::unique_ptr<Memory> memory_;
  std::vector<int64_t> workspaces_at_;  // Offsets in memory_, in floats.
  cpu::GemmGrid grid_;
};

Case gemm_case(Machine& machine, const GemmSize& s, const GemmKind& kind, int threads) {
  const double flops = 2.0 * static_cast<double>(s.m * s.k) * static_cast<double>(s.n);
  Case c{.group = "gemm",
         .name = fmt::format("{},{},{} {}", s.m, s.k, s.n, kind.name),
         .threads = threads,
         .unit = Unit::kGigaflops,
         .work = flops,
         .pytorch = fmt::format("gemm {} {} {} {} {}", kind.name, s.m, s.k, s.n, threads)};
  if (kind.product != Product::kRowMajor) {
    const double part = s.n < 16 ? kNarrowPart : s.m >= 64 ? kind.at_64 : kind.at_8;
    c.goals.push_back({Goal::Of::kPart, part});
    if (threads > 1) c.goals.push_back({Goal::Of::kOneThread, 1.8});
  }
  c.start = [&machine, s, kind, threads, flops]() -> std::function<Round()> {
    auto gemm = std::make_shared<const Gemm>(s, kind.product, threads);
    return [&machine, gemm, threads, flops] {
      const auto work = [&](int worker) { gemm->run(machine.isa(), worker, threads); };
      std::vector<double> seconds, limits;
      for (int i = 0; i < kGemmSamples; ++i) {
        limits.push_back(flops / machine.peak(threads));
        seconds.push_back(seconds_a_call(kGemmSeconds, [&] { machine.run(threads, work); }));
      }
      return Round{median(seconds), median(limits)};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> gemm_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const GemmSize& size : kGemmSizes) {
    for (const GemmKind& kind : kGemmKinds) {
      for (int threads = 1; threads <= kMaxThreads; ++threads)
        cases.push_back(gemm_case(machine, size, kind, threads));
    }
  }
  return cases;
}

}  // namespace sluice::bench
