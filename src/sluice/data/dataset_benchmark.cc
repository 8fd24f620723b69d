#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"
#include "sluice/data/pipeline/measure.h"

namespace sluice::data {
namespace {

constexpr int64_t kMaxEpochs = 1'000'000;

/// Memory that begins at a page, like the memory of a feed.
class Pages {
 public:
  /// Allocates new memory, without the old bytes, unless there is room for `bytes` already.
  void resize(size_t bytes) {
    if (bytes <= size_) return;
    memory_.reset();
    size_ = 0;
    memory_.reset(static_cast<std::byte*>(::operator new[](bytes, kPage)));
    size_ = bytes;
  }
  std::byte* data() { return memory_.get(); }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kPage); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  size_t size_ = 0;
};

/// Returns the smallest value of `sorted` such that a share `share` of all values is not larger.
/// Returns 0 for an empty list.
double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

using Take = std::function<std::optional<int64_t>()>;

BenchmarkEpoch measure_epoch(int64_t elements, const Take& take) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  BenchmarkEpoch epoch;
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  Clock::time_point before = start;
  while (epoch.elements_processed < elements) {
    const std::optional<int64_t> bytes = take();
    if (!bytes) break;
    ++epoch.elements_processed;
    epoch.total_bytes_processed += *bytes;
    const Clock::time_point now = Clock::now();
    times.push_back(seconds(now - before));
    before = now;
  }
  if (epoch.elements_processed == 0) return epoch;
  // A clock may not advance during a short epoch, so avoid a division by 0.
  epoch.time_elapsed = std::max(seconds(Clock::now() - start), 1e-9);
  epoch.elements_per_second = static_cast<double>(epoch.elements_processed) / epoch.time_elapsed;
  epoch.bandwidth = static_cast<double>(epoch.total_bytes_processed) / epoch.time_elapsed / 1e9;
  std::sort(times.begin(), times.end());
  epoch.p50 = percentile(times, 0.50);
  epoch.p99 = percentile(times, 0.99);
  return epoch;
}

}  // namespace

namespace internal {

void check_benchmark(std::string_view what, const BenchmarkOptions& options) {
  require(options.epochs >= 1 && options.epochs <= kMaxEpochs,
          "{}: epochs must be in [1, {}], got {}", what, kMaxEpochs, options.epochs);
  require(options.elements >= 1, "{}: elements must be at least 1, got {}", what, options.elements);
  int64_t all = 0;
  require(!__builtin_mul_overflow(options.epochs, options.elements, &all),
          "{}: epochs x elements must fit 63 bits, got {} x {}", what, options.epochs,
          options.elements);
}

BenchmarkResult measure(const BenchmarkOptions& options, const Take& take) {
  BenchmarkResult result;
  result.requested = options.epochs * options.elements;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    result.epochs.push_back(measure_epoch(options.elements, take));
    result.produced += result.epochs.back().elements_processed;
  }
  return result;
}

}  // namespace internal

BenchmarkResult dataset_benchmark(const Dataset& dataset, const BenchmarkOptions& options) {
  internal::check_benchmark("dataset_benchmark", options);
  Iterator pass = dataset.iterate();
  std::vector<Pages> pages;
  return internal::measure(options, [&]() -> std::optional<int64_t> {
    const std::optional<Element> element = pass.next();
    if (!element) return std::nullopt;
    pages.resize(std::max(pages.size(), element->arrays.size()));
    for (size_t i = 0; i < element->arrays.size(); ++i) {
      const HostTensor& array = element->arrays[i];
      require(array.elements() != 0, "dataset_benchmark: dimensions must be at least 1, got {}",
              to_string(array.spec()));
      if (!options.copy) continue;
      pages[i].resize(array.bytes().size());
      std::memcpy(pages[i].data(), array.bytes().data(), array.bytes().size());
    }
    return element->bytes();
  });
}

std::string BenchmarkResult::to_json() const {
  std::string text = "{\"epochs\": [";
  for (const BenchmarkEpoch& epoch : epochs) {
    if (&epoch != &epochs.front()) text += ", ";
    text += fmt::format(
        "{{\"elements_processed\": {}, \"total_bytes_processed\": {}, \"time_elapsed\": {}, "
        "\"elements_per_second\": {}, \"bandwidth\": {}}}",
        epoch.elements_processed, epoch.total_bytes_processed, epoch.time_elapsed,
        epoch.elements_per_second, epoch.bandwidth);
  }
  return text + fmt::format("], \"requested\": {}, \"produced\": {}}}", requested, produced);
}

}  // namespace sluice::data
