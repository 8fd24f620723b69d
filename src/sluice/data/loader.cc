#include "sluice/data/loader.h"

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "sluice/base/rng.h"

namespace sluice::data {
namespace {

/// Returns a uniform number in [0, bound) from one counter value, which gives four random words. If
/// all four are rejected, the last one is used; the chance is below 2^-48 for a million samples.
/// Source: Lemire, "Fast random integer generation in an interval", 2019.
uint32_t random_below(Seed key, uint64_t counter, uint32_t bound) {
  const uint32_t threshold = (0u - bound) % bound;
  uint64_t product = 0;
  for (const uint32_t word : philox(key, counter)) {
    product = uint64_t{word} * bound;
    if (static_cast<uint32_t>(product) >= threshold) break;
  }
  return static_cast<uint32_t>(product >> 32);
}

/// Checks that `spec` has the shape of `batch` samples of `sample` elements each
/// (DataLoader::fill).
void check_view(const char* what, const TensorSpec& spec, DType dtype, int64_t batch,
                int64_t sample) {
  require(spec.dtype == dtype, "loader: the array for {} must be {}, got {}", what, name_of(dtype),
          name_of(spec.dtype));
  const Shape& shape = spec.shape;
  bool right = shape.elements() == batch * sample;
  int64_t leading = 1;
  for (int axis = 0; right && leading < batch && axis < shape.rank(); ++axis)
    leading *= shape[axis];
  right = right && leading == batch;
  if (!right) {
    fail(
        ErrorKind::kUsage,
        "loader: the array for {} must have leading dimensions of product {} and others of product "
        "{}, got {}",
        what, batch, sample, to_string(shape));
  }
}

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(options) {
  require(options_.batch >= 1, "loader: batch must be at least 1 sample, got {}", options_.batch);
  require(dataset.images.dtype() == f32 && dataset.labels.dtype() == i32,
          "loader: images must be float32 and labels int32, got {} and {}",
          name_of(dataset.images.dtype()), name_of(dataset.labels.dtype()));
  require(dataset.labels.shape().rank() == 1 && dataset.images.shape().rank() >= 1,
          "loader: labels must be (n,) and images (n, …), got {} and {}",
          to_string(dataset.labels.shape()), to_string(dataset.images.shape()));
  const int64_t samples = dataset.size();
  require(dataset.images.shape()[0] == samples,
          "loader: every image must have one label, got {} images and {} labels",
          dataset.images.shape()[0], samples);
  require(samples >= options_.batch,
          "loader: the data must fill one batch of {} samples, got {}; use a smaller batch",
          options_.batch, samples);
  require(samples <= std::numeric_limits<uint32_t>::max(),
          "loader: the number of samples must fit 32 bits, got {}", samples);
  order_.resize(static_cast<size_t>(samples));
  start_epoch(0);
}

void DataLoader::start_epoch(int64_t epoch) {
  require(epoch >= 0, "loader: epoch must be at least 0, got {}", epoch);
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0u);
  if (!options_.shuffle) return;
  const Seed seed{static_cast<uint32_t>(options_.seed >> 32), static_cast<uint32_t>(options_.seed)};
  const Seed key = fold(fold(seed, "loader"), static_cast<uint64_t>(epoch));
  for (size_t i = order_.size(); i-- > 1;) {
    std::swap(order_[i], order_[random_below(key, i, static_cast<uint32_t>(i + 1))]);
  }
}

void DataLoader::fill(int64_t index, const ArrayView& images, const ArrayView& labels) const {
  require(index >= 0 && index < batches(), "loader: batch must be in [0, {}), got {}", batches(),
          index);
  const int64_t pixels = dataset_.images.elements() / size();
  check_view("images", images.spec, f32, options_.batch, pixels);
  check_view("labels", labels.spec, i32, options_.batch, 1);
  const size_t image_bytes = static_cast<size_t>(pixels) * sizeof(float);
  const std::byte* from_images = dataset_.images.bytes().data();
  const std::byte* from_labels = dataset_.labels.bytes().data();
  for (size_t k = 0; k < static_cast<size_t>(options_.batch); ++k) {
    const size_t sample = order_[static_cast<size_t>(index * options_.batch) + k];
    std::memcpy(images.data + k * image_bytes, from_images + sample * image_bytes, image_bytes);
    std::memcpy(labels.data + k * sizeof(int32_t), from_labels + sample * sizeof(int32_t),
                sizeof(int32_t));
  }
}

}  // namespace sluice::data
