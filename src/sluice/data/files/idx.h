#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Reads an IDX file of bytes, plain or gzip, of rank 1 to 8: two zero bytes, 0x08 (the type u8),
/// the rank, a u32 big-endian size for each dimension, then the bytes in row-major order. Returns
/// u8. Error{kBadFile} naming `file` and the byte offset for anything else.
HostTensor read_idx_bytes(std::span<const std::byte> bytes, const std::string& file);

}  // namespace sluice::data
