#include "bench/suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "bench/pytorch.h"
#include "bench/table.h"
#include "sluice/base/error.h"
#include "sluice/base/sys.h"

namespace sluice::bench {
namespace {

std::vector<Case> all_cases(Machine& machine) {
  std::vector<Case> all;
  const auto append = [&](std::vector<Case> cases) {
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  };
  append(limit_cases(machine));
  append(gemm_cases(machine));
  append(conv_cases(machine));
  append(memory_cases(machine));
  append(operator_cases(machine));
  append(step_cases(machine));
  append(model_cases(machine));
  append(attention_cases(machine));
  append(transformer_cases(machine));
  append(phase_cases());
  append(stage_cases());
  append(message_cases(machine));
  append(loop_cases());
  append(collective_cases(machine));
  append(compile_cases());
  append(checkpoint_cases());
  return all;
}

std::optional<double> median_if_any(std::vector<double> values) {
  return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
}

using Pythons = std::vector<std::unique_ptr<PyTorch>>;

TableRow measure(const Case& c, int rounds, const Pythons& pythons) {
  const std::function<Round()> round = c.start();
  std::vector<double> amounts, limits, parts;
  std::vector<std::vector<double>> theirs(pythons.size()), ratios(pythons.size());
  for (int r = 0; r < rounds; ++r) {
    const Round own = round();
    amounts.push_back(own.amount);
    if (own.limit) {
      limits.push_back(*own.limit);
      parts.push_back(*own.limit / own.amount);
    }
    for (size_t p = 0; p < pythons.size() && !c.pytorch.empty(); ++p) {
      const auto seconds = pythons[p]->ask(c.pytorch);
      if (!seconds) continue;
      theirs[p].push_back(*seconds);
      ratios[p].push_back(*seconds / own.amount);
    }
  }
  TableRow row{.of = &c,
               .amount = median(amounts),
               .min = *std::min_element(amounts.begin(), amounts.end()),
               .limit = median_if_any(limits),
               .part = median_if_any(parts)};
  for (size_t p = 0; p < pythons.size(); ++p)
    row.pytorch.push_back({median_if_any(theirs[p]), median_if_any(ratios[p])});
  return row;
}

void print_end(const std::vector<PythonInfo>& pythons, const std::vector<TableRow>& rows) {
  for (size_t i = 0; i < pythons.size(); ++i) {
    const PythonInfo& p = pythons[i];
    fmt::print("{} {}: {}{}\n", i == 0 ? "PyTorch" : fmt::format("no. {}", i + 1), p.version,
               p.python, p.trouble.empty() ? "" : " (" + p.trouble + ")");
  }
  int64_t met = 0, known = 0;
  for (const TableRow& row : rows) {
    const auto good = row.met();
    known += good.has_value() ? 1 : 0;
    met += good.value_or(false) ? 1 : 0;
  }
  fmt::print(
      "part: of the limit's speed; x 1: of the speed with one thread; ratio: over PyTorch's "
      "speed\n");
  fmt::print("goals met: {} of {} rows that could be judged\n", met, known);
}

}  // namespace

void run_suite(const SuiteOptions& options) {
  require(options.rounds >= 1, "--rounds: must be at least 1, got {}", options.rounds);
  const int threads = options.threads > 0 ? options.threads : sys::usable_cores();
  Machine machine(cpu::current_isa());
  std::vector<Case> cases = all_cases(machine);
  std::erase_if(cases, [&](const Case& c) {
    return c.threads > threads || c.title().find(options.only) == std::string::npos;
  });
  require(!cases.empty(),
          "--only: must be part of the name of a case with at most {} threads, got '{}'", threads,
          options.only);
  Pythons pythons;
  const bool asked =
      std::any_of(cases.begin(), cases.end(), [](const Case& c) { return !c.pytorch.empty(); });
  for (const std::string& python : options.pythons) {
    if (asked) pythons.push_back(std::make_unique<PyTorch>(python));
  }
  if (!options.json) fmt::print("{}\n", heading(pythons.size()));
  std::vector<TableRow> rows;
  std::map<std::string, double> with_one_thread;  // Speed by title.
  for (const Case& c : cases) {
    TableRow row = measure(c, options.rounds, pythons);
    const double speed = (c.work > 0 ? c.work : 1) / row.amount;
    if (c.threads == 1) {
      with_one_thread[c.title()] = speed;
    } else if (const auto one = with_one_thread.find(c.title()); one != with_one_thread.end()) {
      row.of_one = speed / one->second;
    }
    if (!options.json) {
      fmt::print("{}\n", line(row));
      std::fflush(stdout);
    }
    rows.push_back(std::move(row));
  }
  std::vector<PythonInfo> infos;
  for (const auto& p : pythons) infos.push_back({p->python(), p->version(), p->trouble()});
  if (options.json) {
    fmt::print("{}\n", json(std::string(cpu::to_string(machine.isa())), infos, rows));
  } else {
    print_end(infos, rows);
  }
}

}  // namespace sluice::bench
