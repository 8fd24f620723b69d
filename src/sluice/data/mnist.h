#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "sluice/data/samples.h"

namespace sluice::data {

inline constexpr int64_t kMnistSide = 28;  ///< Pixels of a row and of a column.
inline constexpr int64_t kMnistClasses = 10;

/// Finds the folder with MNIST's four files, plain IDX or gzip (`.gz`), with the names of the
/// download or `train-images.idx3-ubyte`. If `explicit_folder` is not empty, only that folder is
/// searched. Otherwise the function searches $SLUICE_DATA, then data/mnist in the working
/// directory, and returns nothing if both fail. In each of these folders it tries the folder, then
/// its subfolder mnist. Error{kIo}, which names the four files, if one of them is not in
/// `explicit_folder`. Error{kBadFile} if `explicit_folder` is not a folder.
std::optional<std::string> find_mnist(const std::string& explicit_folder = "");

/// Returns the paths of the images and of the labels in `folder` (or folder/mnist). Error{kIo}
/// naming the four files if one is missing.
std::pair<std::string, std::string> mnist_files(const std::string& folder, Split split);

// Format IDX: u32 big-endian magic (0x00000803 images, 0x00000801 labels), a u32 big-endian size
// for each dimension, then the bytes in row-major order, then the end of the file. Source:
// yann.lecun.com/exdb/mnist, "File formats".
//
// Both readers accept plain or gzip bytes and 1 to 1,000,000 samples. Anything else is
// Error{kBadFile} naming `file` and the byte offset. They allocate no more memory than the number
// of bytes justifies.

/// Reads images as (n, 28, 28) f32, normalised.
HostTensor read_idx_images(std::span<const std::byte> bytes, const std::string& file);
/// Reads labels as (n) i32 in 0..9.
HostTensor read_idx_labels(std::span<const std::byte> bytes, const std::string& file);

}  // namespace sluice::data
