#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Reads a NumPy array, format versions 1.0, 2.0 and 3.0, in C order and little-endian. Its dtype
/// is one of Sluice's that NumPy has. Error{kBadFile} naming `file` and the byte for anything else.
/// Source: numpy.org/doc/stable, "numpy.lib.format".
HostTensor read_npy(std::span<const std::byte> bytes, const std::string& file);

/// Returns f64 as f32 and i64 as i32, and any other array as it is. Error{kBadFile} naming `file`
/// and the element if a value does not fit.
HostTensor narrowed(HostTensor array, const std::string& file);

}  // namespace sluice::data
