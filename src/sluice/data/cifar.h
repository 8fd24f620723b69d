#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "sluice/data/samples.h"

namespace sluice::data {

inline constexpr int64_t kCifarSide = 32;
inline constexpr int64_t kCifarClasses = 10;
inline constexpr int64_t kCifarChannels = 3;
inline constexpr int64_t kCifarPlane = kCifarSide * kCifarSide;  ///< Elements of a channel.

/// Scales a value of channel 0 (red), 1 (green) or 2 (blue) to [0, 1] and normalises it with the
/// mean and standard deviation of CIFAR-10's training images.
inline float normalised_color(uint8_t value, int channel) {
  constexpr std::array<float, 3> kMean{0.4914f, 0.4822f, 0.4465f};
  constexpr std::array<float, 3> kDeviation{0.2470f, 0.2435f, 0.2616f};
  return (static_cast<float>(value) / 255.0f - at(kMean, channel)) / at(kDeviation, channel);
}

/// Finds the folder with the six files of CIFAR-10's binary version. If `explicit_folder` is not
/// empty, only that folder is searched. Otherwise the function searches $SLUICE_DATA, then
/// data/cifar10 in the working directory, and returns nothing if both fail. In each of these
/// folders it tries the folder, then its subfolder cifar-10-batches-bin. Error{kIo}, which names
/// the files, if one of them is not in `explicit_folder`. Error{kBadFile} if `explicit_folder` is
/// not a folder.
std::optional<std::string> find_cifar(const std::string& explicit_folder = "");

/// Loads the images in `folder`, a result of find_cifar(): (n, 3, 32, 32) f32, normalised, and
/// labels (n) i32 in 0..9. Error{kIo} if a file cannot be read. Error{kBadFile} naming file and
/// byte if a file is damaged.
Samples load_cifar(const std::string& folder, Split split);

// Format: records of a label byte and 3 x 1024 bytes: the red, green and blue planes, row-major.
// Source: cs.toronto.edu/~kriz/cifar.html, "Binary version".
//
// The reader accepts 1 to 10,000 records. Anything else is Error{kBadFile} naming `file` and the
// byte offset.

/// Reads the records of one file.
Samples read_cifar(std::span<const std::byte> bytes, const std::string& file);

}  // namespace sluice::data
