#pragma once
#include <cstdint>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Labelled samples in memory.
struct Dataset {
  HostTensor images;   ///< (n, …) f32, normalised; (n, 28, 28) for digits.
  HostTensor labels;   ///< (n) i32.
  std::string source;  ///< Origin of the samples, for people: a folder or a generator.

  int64_t size() const { return labels.elements(); }
};

inline constexpr int64_t kDigitSide = 28;

/// Scales a grey value (0 background, 255 ink) to [0, 1] and normalises it with MNIST's mean 0.1307
/// and standard deviation 0.3081.
inline float normalised_pixel(uint8_t grey) {
  return (static_cast<float>(grey) / 255.0f - 0.1307f) / 0.3081f;
}

}  // namespace sluice::data
