#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "sluice/data/dataset.h"

namespace sluice::data::internal {

/// Checks the options of a benchmark. `what` begins the messages.
void check_benchmark(std::string_view what, const BenchmarkOptions& options);
/// Measures the epochs. take() consumes an element and returns its bytes, or nothing at the end.
BenchmarkResult measure(const BenchmarkOptions& options,
                        const std::function<std::optional<int64_t>()>& take);

}  // namespace sluice::data::internal
