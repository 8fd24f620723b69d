#pragma once
#include "sluice/exe/executable.h"
#include "sluice/report/places.h"
#include "sluice/report/report.h"
#include "sluice/report/trace.h"

namespace sluice::report {

/// Returns which part of a block each function, kernel and call runs. Requires a report with its
/// parts and functions.
///
/// Where a function runs a part several times, each run has values of its own for tensors of the
/// same names, so the order of a name's values gives the number of the run. Steps that compute
/// activations again, for backward steps alone, have no part.
PartNumbers part_numbers(const exe::Executable& executable, const Places& places,
                         const Report& report);

}  // namespace sluice::report
