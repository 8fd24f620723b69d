#include "bench/suite.h"
#include "sluice/base/error.h"

namespace sluice::bench {

void run_suite(const SuiteOptions&) {
  fail(ErrorKind::kUsage,
       "sluice bench: requires a model, because this build has no benchmarks; to build them, run "
       "cmake with -DSLUICE_BUILD_BENCH=ON");
}

}  // namespace sluice::bench
