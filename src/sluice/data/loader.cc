#include "sluice/data/loader.h"

#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "sluice/base/rng.h"
#include "sluice/data/draw.h"

namespace sluice::data {
namespace {

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

void shuffled_order(uint64_t seed, int64_t epoch, std::span<uint32_t> order) {
  std::iota(order.begin(), order.end(), 0u);
  const Seed start{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
  const Seed key = fold(fold(start, "loader"), static_cast<uint64_t>(epoch));
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[random_below(key, i, static_cast<uint32_t>(i + 1))]);
  }
}

DataLoader::DataLoader(const Samples& samples, Options options)
    : samples_(samples), options_(options) {
  require(options_.batch >= 1, "loader: batch must be at least 1 sample, got {}", options_.batch);
  require(samples.images.dtype() == f32 && samples.labels.dtype() == i32,
          "loader: images must be float32 and labels int32, got {} and {}",
          name_of(samples.images.dtype()), name_of(samples.labels.dtype()));
  require(samples.labels.shape().rank() == 1 && samples.images.shape().rank() >= 1,
          "loader: labels must be (n,) and images (n, …), got {} and {}",
          to_string(samples.labels.shape()), to_string(samples.images.shape()));
  const int64_t count = samples.size();
  require(samples.images.shape()[0] == count,
          "loader: every image must have one label, got {} images and {} labels",
          samples.images.shape()[0], count);
  require(count >= options_.batch,
          "loader: the data must fill one batch of {} samples, got {}; use a smaller batch",
          options_.batch, count);
  require(count <= std::numeric_limits<uint32_t>::max(),
          "loader: the number of samples must fit 32 bits, got {}", count);
  order_.resize(static_cast<size_t>(count));
  start_epoch(0);
}

void DataLoader::start_epoch(int64_t epoch) {
  require(epoch >= 0, "loader: epoch must be at least 0, got {}", epoch);
  epoch_ = epoch;
  if (options_.shuffle) {
    shuffled_order(options_.seed, epoch, order_);
  } else {
    std::iota(order_.begin(), order_.end(), 0u);
  }
}

void DataLoader::fill(int64_t index, const ArrayView& images, const ArrayView& labels) const {
  require(index >= 0 && index < batches(), "loader: batch must be in [0, {}), got {}", batches(),
          index);
  const int64_t pixels = samples_.images.elements() / size();
  check_view("images", images.spec, f32, options_.batch, pixels);
  check_view("labels", labels.spec, i32, options_.batch, 1);
  const size_t image_bytes = static_cast<size_t>(pixels) * sizeof(float);
  const std::byte* from_images = samples_.images.bytes().data();
  const std::byte* from_labels = samples_.labels.bytes().data();
  for (size_t k = 0; k < static_cast<size_t>(options_.batch); ++k) {
    const size_t sample = order_[static_cast<size_t>(index * options_.batch) + k];
    std::memcpy(images.data + k * image_bytes, from_images + sample * image_bytes, image_bytes);
    std::memcpy(labels.data + k * sizeof(int32_t), from_labels + sample * sizeof(int32_t),
                sizeof(int32_t));
  }
}

}  // namespace sluice::data
