#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "sluice/data/dataset.h"

namespace sluice::data {

enum class Split { kTrain, kTest };

/// The folder with MNIST's four files: `explicit_folder`, if it is not empty, and nothing else;
/// otherwise $SLUICE_DATA, then data/mnist of the working directory, and none if neither has them.
/// Each is tried as the folder itself, then as its parent (folder/mnist). Files may be plain IDX or
/// gzip (`.gz`). Error{kIo} naming the four files if `explicit_folder` lacks one, Error{kBadFile}
/// if it is not a folder.
std::optional<std::string> find_mnist(const std::string& explicit_folder = "");

/// The digits of `folder` (or folder/mnist): images (n, 28, 28) f32 normalised, labels (n) i32 in
/// 0..9. Error{kIo} if a file is missing or cannot be read, Error{kBadFile} naming file and byte if
/// one is damaged or their counts differ.
Dataset load_mnist(const std::string& folder, Split split);

/// IDX: u32 big-endian magic (0x00000803 images, 0x00000801 labels), a u32 big-endian size for each
/// dimension, then the bytes, row-major; nothing after them. Source: yann.lecun.com/exdb/mnist,
/// "File formats". Both readers take plain or gzip bytes, 1 to 1,000,000 samples; whatever else is
/// found is Error{kBadFile} naming `file` and the byte offset. No more is allocated than the bytes
/// present justify.

/// (n, 28, 28) f32, normalised.
HostTensor read_idx_images(std::span<const std::byte> bytes, const std::string& file);
/// (n) i32 in 0..9.
HostTensor read_idx_labels(std::span<const std::byte> bytes, const std::string& file);

}  // namespace sluice::data
