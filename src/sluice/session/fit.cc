#include "sluice/session/fit.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "sluice/compiler/compile.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/report/forecast/forecast.h"

namespace sluice {
namespace {

/// A rung that was compiled.
struct Attempt {
  RungProgram program;
  std::shared_ptr<Compiled> compiled;
  RungResult result;
};

Attempt compile_rung(const Rung& rung) {
  const auto begin = std::chrono::steady_clock::now();
  Attempt attempt{rung.build(), nullptr, {.name = rung.name}};
  attempt.compiled = std::make_shared<Compiled>(
      compile(attempt.program.ir, compile_options(attempt.program.session)));
  RungResult& result = attempt.result;
  result.build_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  result.memories = attempt.compiled->memories;
  result.fits = !exe::find_excess(attempt.compiled->executable, result.memories).has_value();
  for (const exe::MemoryNeeds& m : result.memories) {
    if (m.device >= 0) result.device_bytes = std::max(result.device_bytes, m.total_bytes);
  }
  return attempt;
}

report::Rates rates_of(const Ladder& ladder, const Compiled& compiled) {
  if (ladder.rates) return ladder.rates();
  return {.threads = compiled.executable.devices[exe::DeviceId(0)].workers};
}

// Returns the seconds of a run of a program; 0 if it does not exist.
double forecast_seconds(const Compiled& compiled, const std::string& program,
                        const report::Rates& rates) {
  for (const report::ProgramForecast& p : report::forecast(compiled.executable, rates)) {
    if (p.program == program) return p.seconds;
  }
  return 0;
}

void add_seconds(const Ladder& ladder, std::vector<Attempt>& attempts) {
  const report::Rates rates = rates_of(ladder, *attempts[0].compiled);
  double before = forecast_seconds(*attempts[0].compiled, ladder.program, rates);
  for (size_t i = 1; i < attempts.size(); ++i) {
    const double seconds = forecast_seconds(*attempts[i].compiled, ladder.program, rates);
    attempts[i].result.added_seconds = std::max(0.0, seconds - before);
    before = seconds;
  }
}

// The refusal that an advice completes must reach the user, so errors of the search are dropped.
std::optional<size_t> find_advice(const std::vector<Rung>& advice) {
  try {
    for (size_t i = 0; i < advice.size(); ++i) {
      if (compile_rung(advice[i]).result.fits) return i;
    }
  } catch (const std::exception&) {
  }
  return std::nullopt;
}

}  // namespace

Fit find_fit(const Ladder& ladder) {
  SLUICE_CHECK(!ladder.rungs.empty());
  std::vector<Attempt> attempts;
  std::optional<size_t> chosen, advised;
  for (const Rung& rung : ladder.rungs) {
    attempts.push_back(compile_rung(rung));
    RungResult& result = attempts.back().result;
    if (attempts.size() > 1)
      result.saved_bytes = attempts[attempts.size() - 2].result.device_bytes - result.device_bytes;
    if (!result.fits) continue;
    chosen = attempts.size() - 1;
    break;
  }
  if (!chosen) advised = find_advice(ladder.advice);
  if (chosen.value_or(0) > 0) add_seconds(ladder, attempts);
  std::vector<RungResult> tried;
  for (Attempt& a : attempts) tried.push_back(std::move(a.result));
  Attempt& kept = attempts[chosen.value_or(0)];
  return {std::move(tried), chosen, advised, std::move(kept.program), std::move(kept.compiled)};
}

}  // namespace sluice
