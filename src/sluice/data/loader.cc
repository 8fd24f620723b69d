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

DataLoader::DataLoader(const Samples& samples, LoaderOptions options)
    : samples_(samples), options_(options) {
  require(options_.batch >= 1, "loader: batch must be at least 1 sample, got {}", options_.batch);
  const HostTensor& labels = samples.labels;
  const bool classes = labels.dtype() == i32;
  require(samples.images.dtype() == f32 && (classes || labels.dtype() == f32),
          "loader: images must be float32 and labels int32, or float32 targets, got {} and {}",
          name_of(samples.images.dtype()), name_of(labels.dtype()));
  const int rank = labels.shape().rank();
  require((classes ? rank == 1 : rank >= 1) && samples.images.shape().rank() >= 1,
          "loader: labels must be {} and images (n, …), got {} and {}", classes ? "(n,)" : "(n, …)",
          to_string(labels.shape()), to_string(samples.images.shape()));
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
  const HostTensor& targets = samples_.labels;
  const int64_t pixels = samples_.images.elements() / size();
  const int64_t values = targets.elements() / size();
  check_view("images", images.spec, f32, options_.batch, pixels);
  check_view("labels", labels.spec, targets.dtype(), options_.batch, values);
  const size_t image_bytes = static_cast<size_t>(pixels) * sizeof(float);
  const size_t label_bytes = static_cast<size_t>(values * size_of(targets.dtype()));
  const std::byte* from_images = samples_.images.bytes().data();
  const std::byte* from_labels = targets.bytes().data();
  for (size_t k = 0; k < static_cast<size_t>(options_.batch); ++k) {
    const size_t sample = order_[static_cast<size_t>(index * options_.batch) + k];
    std::memcpy(images.data + k * image_bytes, from_images + sample * image_bytes, image_bytes);
    std::memcpy(labels.data + k * label_bytes, from_labels + sample * label_bytes, label_bytes);
  }
}

}  // namespace sluice::data
