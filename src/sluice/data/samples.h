#pragma once
#include <cstdint>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

class Dataset;

/// Labelled samples in memory.
struct Samples {
  HostTensor images;   ///< (n, …) f32, normalised; (n, 28, 28) for digits.
  HostTensor labels;   ///< Classes, (n) i32, or targets of a regression, (n, …) f32.
  std::string source;  ///< Origin of the samples, for people: a folder or a generator.

  int64_t size() const { return labels.shape().empty() ? 0 : labels.shape()[0]; }
};

/// Returns a dataset of the fields "input" and "labels", fields of train::classifier(), with one
/// element for each sample. Error{kUsage} if the numbers of images and labels differ.
Dataset from_samples(Samples samples);

inline constexpr int64_t kDigitSide = 28;

/// Scales a grey value (0 background, 255 ink) to [0, 1] and normalises it with MNIST's mean 0.1307
/// and standard deviation 0.3081.
inline float normalised_pixel(uint8_t grey) {
  return (static_cast<float>(grey) / 255.0f - 0.1307f) / 0.3081f;
}

enum class Split { kTrain, kTest };

/// Loads the digits in `folder` (or folder/mnist): images (n, 28, 28) f32, normalised, and labels
/// (n) i32 in 0..9. Error{kIo} if a file is missing or cannot be read. Error{kBadFile} naming file
/// and byte if a file is damaged, or if the numbers of images and labels differ.
Samples load_mnist(const std::string& folder, Split split);

/// Loads the digits that find_mnist(explicit_folder) finds, or generates digits if it finds none:
/// 20,000 to train on (seed 1), 4,000 to test on (seed 2). Samples::source names the origin. Errors
/// as find_mnist() and load_mnist().
Samples load_digits(Split split, const std::string& explicit_folder = "");

}  // namespace sluice::data
