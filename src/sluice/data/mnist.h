#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "sluice/data/dataset.h"

namespace sluice::data {

enum class Split { kTrain, kTest };

/// Finds the folder with MNIST's four files, plain IDX or gzip (`.gz`). If `explicit_folder` is not
/// empty, only that folder is searched. Otherwise the function searches $SLUICE_DATA, then
/// data/mnist in the working directory, and returns nothing if both fail. In each place it tries
/// the folder, then its subfolder mnist. Error{kIo} naming the four files if `explicit_folder`
/// lacks one of them. Error{kBadFile} if `explicit_folder` is not a folder.
std::optional<std::string> find_mnist(const std::string& explicit_folder = "");

/// Loads the digits in `folder` (or folder/mnist): images (n, 28, 28) f32, normalised, and labels
/// (n) i32 in 0..9. Error{kIo} if a file is missing or cannot be read. Error{kBadFile} naming file
/// and byte if a file is damaged, or if the numbers of images and labels differ.
Dataset load_mnist(const std::string& folder, Split split);

/// Loads the digits that find_mnist(explicit_folder) finds, or generates digits if it finds none:
/// 20,000 to train on (seed 1), 4,000 to test on (seed 2). Dataset::source names the origin. Errors
/// are those of find_mnist() and load_mnist().
Dataset load_digits(Split split, const std::string& explicit_folder = "");

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
