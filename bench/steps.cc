#include "bench/steps.h"

#include <algorithm>
#include <vector>

#include "bench/figure.h"
#include "sluice/runtime/strand.h"

namespace sluice::bench {

StepTimes time_steps(Session& session, Binding& binding, int64_t steps) {
  for (int64_t i = 0; i < std::min<int64_t>(steps, 20); ++i) session.run_into(binding);
  const runtime::Counters before = session.counters();
  std::vector<double> seconds;
  for (int64_t i = 0; i < steps; ++i) {
    const double begin = seconds_now();
    session.run_into(binding);
    seconds.push_back(seconds_now() - begin);
  }
  const runtime::Counters after = session.counters();
  const auto count = static_cast<double>(steps);
  return {.median_seconds = median(seconds),
          .min_seconds = *std::min_element(seconds.begin(), seconds.end()),
          .flops = (after.flops - before.flops) / count,
          .bytes = static_cast<double>(after.bytes - before.bytes) / count};
}

}  // namespace sluice::bench
