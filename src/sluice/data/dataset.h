#pragma once
#include <cstdint>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Labelled samples in memory.
struct Dataset {
  HostTensor images;   ///< (n, …) f32, normalised; (n, 28, 28) for digits.
  HostTensor labels;   ///< (n) i32.
  std::string source;  ///< Where they come from, for people: a folder, or what generated them.

  int64_t size() const { return labels.elements(); }
};

inline constexpr int64_t kDigitSide = 28;

/// A grey value (0 black, 255 ink) scaled to [0, 1] and normalised with MNIST's mean 0.1307 and
/// deviation 0.3081.
inline float normalised_pixel(uint8_t grey) {
  return (static_cast<float>(grey) / 255.0f - 0.1307f) / 0.3081f;
}

}  // namespace sluice::data
