#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>

#include "sluice/data/dataset.h"

namespace sluice::data::internal {

/// Memory that begins at a page, as that of a feed does.
class Pages {
 public:
  /// Discards the bytes unless there is room for `bytes` already.
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

/// Checks the options of a benchmark. `what` begins the messages.
void check_benchmark(std::string_view what, const BenchmarkOptions& options);
/// Measures the epochs. take() consumes an element and returns its bytes, or nothing at the end.
BenchmarkResult measure(const BenchmarkOptions& options,
                        const std::function<std::optional<int64_t>()>& take);

}  // namespace sluice::data::internal
