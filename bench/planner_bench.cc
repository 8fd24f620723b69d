// Heights that the planner reaches, over the live-set bound, and what they cost. `--csv FILE…`
// plans MiniMalloc files.
#include <fmt/core.h>

#include <chrono>
#include <ctime>
#include <exception>
#include <span>
#include <string_view>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/planner/csv.h"
#include "sluice/planner/instances.h"
#include "sluice/planner/solve.h"
#include "sluice/planner/validate.h"

namespace {

using namespace sluice;
using planner::Problem;
using planner::Sizes;

void bench(std::string_view name, const Problem& problem) {
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  const planner::Solution solution = planner::solve(problem);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  const planner::Verdict verdict = planner::validate(problem, solution);
  const double ratio = solution.bound == 0 ? 1.0
                                           : static_cast<double>(solution.height) /
                                                 static_cast<double>(solution.bound);
  fmt::print("{:<28} {:>8} {:>14} {:>14} {:>8.5f} {:>8} {:>8.3f} {:>8.3f}{}\n", name,
             problem.buffers.size(), solution.height, solution.bound, ratio,
             solution.optimal ? "optimal" : "-", seconds.count(), cpu,
             verdict ? "" : "  WRONG: " + verdict.message);
  std::fflush(stdout);
}

void bench_made_up() {
  for (const double mean : {10.0, 100.0, 1000.0}) {
    bench(fmt::format("log-uniform, mean life {}", mean),
          planner::random_lifetimes(10'000, mean, Sizes::kLogUniform, {1, 1}));
  }
  for (const double mean : {10.0, 100.0, 1000.0}) {
    bench(fmt::format("uniform, mean life {}", mean),
          planner::random_lifetimes(10'000, mean, Sizes::kUniform, {1, 2}));
  }
  for (const double mean : {10.0, 100.0}) {
    bench(fmt::format("log-uniform, mean life {}", mean),
          planner::random_lifetimes(100'000, mean, Sizes::kLogUniform, {1, 3}));
  }
  for (const int64_t count : {15, 50, 200, 1'000, 10'000}) {
    bench("perfect cuts", planner::perfect_cuts(count, 10 * count, 1 << 20, {1, 4}));
  }
  for (const int64_t layers : {4, 100, 25'000}) {
    bench("nested lifetimes", planner::nested_lifetimes(layers, {1, 5}));
  }
}

void run(std::span<char*> arguments) {
  fmt::print("{:<28} {:>8} {:>14} {:>14} {:>8} {:>8} {:>8} {:>8}\n", "case", "buffers", "height",
             "bound", "ratio", "", "seconds", "cpu");
  if (arguments.empty()) return bench_made_up();
  require(std::string_view(arguments[0]) == "--csv", "usage: planner_bench [--csv FILE…]");
  for (const std::string path : arguments.subspan(1)) {
    const auto bytes = sys::read_file(path);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bench(path.substr(path.rfind('/') + 1), planner::parse_csv(text, path));
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  } catch (const sluice::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
