// Prints the heights of the planner's plans, their ratio to the live-set bound, and the time.
// `--csv FILE…` plans MiniMalloc files three times: with the heuristics only, with all searches,
// and with an exact search for the capacity in the file name (NAME.CAPACITY.csv; otherwise the
// bound).
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/planner/csv.h"
#include "sluice/planner/exact/exact.h"
#include "sluice/planner/solve.h"
#include "sluice/planner/test_instances.h"
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

// Runs `action` and returns the seconds it took.
template <typename Action>
double timed(Action&& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t capacity_of(std::string_view name, int64_t otherwise) {
  const size_t begin = name.find('.') + 1;
  int64_t capacity = 0;
  const auto [end, error] =
      std::from_chars(name.data() + begin, name.data() + name.size(), capacity);
  const std::string_view rest(end, name.data() + name.size());
  return error == std::errc() && rest == ".csv" ? capacity : otherwise;
}

const char* to_string(planner::Outcome outcome) {
  switch (outcome) {
    case planner::Outcome::kFound:
      return "found";
    case planner::Outcome::kRefuted:
      return "none";
    case planner::Outcome::kGaveUp:
      return "gave up";
  }
  return "";
}

// Validates the offsets that the exact search found.
planner::Verdict check_offsets(Problem problem, const planner::Instance& instance,
                               const planner::Offsets& offsets, int64_t capacity) {
  planner::Solution solution{.bound = planner::live_set_bound(problem)};
  solution.offsets.resize(problem.buffers.size());
  for (size_t i = 0; i < offsets.size(); ++i) {
    const size_t buffer = instance.buffer[i];
    solution.offsets[buffer] = offsets[i] * instance.unit;
    solution.height =
        std::max(solution.height, solution.offsets[buffer] + problem.buffers[buffer].size);
  }
  problem.capacity = capacity;
  return planner::validate(problem, solution);
}

void bench_file(const std::string& path) {
  const auto bytes = sys::read_file(path);
  const std::string name = path.substr(path.rfind('/') + 1);
  const Problem problem =
      planner::parse_csv({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  planner::Solution heuristic;
  planner::Solution solution;
  const double heuristic_time =
      timed([&] { heuristic = planner::solve(problem, {.exact_nodes = 0}); });
  const double time = timed([&] { solution = planner::solve(problem); });

  const planner::Instance instance = planner::make_instance(problem);
  const int64_t capacity = capacity_of(name, solution.bound);
  planner::Offsets offsets;
  planner::Outcome outcome{};
  int64_t nodes = 0;
  const double exact_time = timed([&] {
    outcome =
        planner::exact_search(instance, planner::make_conflicts(instance), capacity / instance.unit,
                              planner::kLongSearchNodes, offsets, nodes);
  });
  planner::Verdict verdict = planner::validate(problem, solution);
  if (verdict && outcome == planner::Outcome::kFound) {
    verdict = check_offsets(problem, instance, offsets, capacity);
  }
  fmt::print(
      "{:<14} {:>7} {:>9} {:>9} {:>7.3f} {:>9} {:>7} {:>7.3f} {:>9} {:>7} {:>11} {:>7.3f}{}\n",
      name, problem.buffers.size(), solution.bound, heuristic.height, heuristic_time,
      solution.height, solution.optimal ? "optimal" : "-", time, capacity, to_string(outcome),
      nodes, exact_time, verdict ? "" : "  WRONG: " + verdict.message);
  std::fflush(stdout);
}

void run(std::span<char*> arguments) {
  if (arguments.empty()) {
    fmt::print("{:<28} {:>8} {:>14} {:>14} {:>8} {:>8} {:>8} {:>8}\n", "case", "buffers", "height",
               "bound", "ratio", "", "seconds", "cpu");
    return bench_made_up();
  }
  require(std::string_view(arguments[0]) == "--csv", "usage: planner_bench [--csv FILE…]");
  fmt::print("{:<14} {:>7} {:>9} {:>9} {:>7} {:>9} {:>7} {:>7} {:>9} {:>7} {:>11} {:>7}\n", "file",
             "buffers", "bound", "heuristic", "seconds", "solve", "", "seconds", "capacity",
             "exact", "nodes", "seconds");
  for (const std::string path : arguments.subspan(1)) bench_file(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(std::span(argv + 1, argv + argc));
  } catch (const sluice::Error& error) {
    sluice::sys::print_stderr("{}\n", error.what());
    return error.exit_code();
  }
}
