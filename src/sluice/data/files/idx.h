#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "sluice/base/host_tensor.h"
#include "sluice/data/dataset.h"

namespace sluice::data {

/// Reads an IDX file of bytes, plain or gzip, of rank 1 to 8: two zero bytes, 0x08 (the type u8),
/// the rank, a u32 big-endian size for each dimension, then the bytes in row-major order. Returns
/// u8. Error{kBadFile} naming `file` and the byte offset for anything else.
HostTensor read_idx_bytes(std::span<const std::byte> bytes, const std::string& file);

/// Cuts a file of images along its first axis: f32, by normalised_pixel(). A plain file is read by
/// offset, a file in gzip is read into memory. Errors as above.
Dataset idx_images(const std::string& path);

}  // namespace sluice::data
