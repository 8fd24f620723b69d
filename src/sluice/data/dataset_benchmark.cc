#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>

#include "sluice/base/error.h"
#include "sluice/data/dataset.h"

namespace sluice::data {
namespace {

constexpr int64_t kMaxEpochs = 1'000'000;

/// Memory that begins at a page, as that of a feed does.
class Pages {
 public:
  void copy(std::span<const std::byte> bytes) {
    if (bytes.size() > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new[](bytes.size(), kPage)));
      size_ = bytes.size();
    }
    if (!bytes.empty()) std::memcpy(memory_.get(), bytes.data(), bytes.size());
  }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kPage); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  size_t size_ = 0;
};

/// Returns the least of `sorted` that a share `share` of them does not exceed; 0 if there is none.
double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

void check_dimensions(const Element& element) {
  for (const HostTensor& array : element.arrays) {
    require(array.elements() != 0, "dataset_benchmark: dimensions must be at least 1, got {}",
            to_string(array.spec()));
  }
}

BenchmarkEpoch measure(Iterator& pass, const BenchmarkOptions& options, std::vector<Pages>& pages) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  BenchmarkEpoch epoch;
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  Clock::time_point before = start;
  while (epoch.elements_processed < options.elements) {
    const std::optional<Element> element = pass.next();
    if (!element) break;
    check_dimensions(*element);
    pages.resize(std::max(pages.size(), element->arrays.size()));
    for (size_t i = 0; options.copy && i < element->arrays.size(); ++i) {
      pages[i].copy(element->arrays[i].bytes());
    }
    ++epoch.elements_processed;
    epoch.total_bytes_processed += element->bytes();
    const Clock::time_point now = Clock::now();
    times.push_back(seconds(now - before));
    before = now;
  }
  if (epoch.elements_processed == 0) return epoch;
  // A clock may not advance during a short epoch: a rate is never a division by 0.
  epoch.time_elapsed = std::max(seconds(Clock::now() - start), 1e-9);
  epoch.elements_per_second = static_cast<double>(epoch.elements_processed) / epoch.time_elapsed;
  epoch.bandwidth = static_cast<double>(epoch.total_bytes_processed) / epoch.time_elapsed / 1e9;
  std::sort(times.begin(), times.end());
  epoch.p50 = percentile(times, 0.50);
  epoch.p99 = percentile(times, 0.99);
  return epoch;
}

}  // namespace

BenchmarkResult dataset_benchmark(const Dataset& dataset, const BenchmarkOptions& options) {
  require(options.epochs >= 1 && options.epochs <= kMaxEpochs,
          "dataset_benchmark: epochs must be in [1, {}], got {}", kMaxEpochs, options.epochs);
  require(options.elements >= 1, "dataset_benchmark: elements must be at least 1, got {}",
          options.elements);
  BenchmarkResult result;
  if (__builtin_mul_overflow(options.epochs, options.elements, &result.requested)) {
    fail(ErrorKind::kUsage, "dataset_benchmark: epochs x elements must fit 63 bits, got {} x {}",
         options.epochs, options.elements);
  }
  Iterator pass = dataset.iterate();
  std::vector<Pages> pages;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    result.epochs.push_back(measure(pass, options, pages));
    result.produced += result.epochs.back().elements_processed;
  }
  return result;
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
