#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Reads a NumPy array, format versions 1.0, 2.0 and 3.0, in C order and little-endian. Its dtype
/// is one of Sluice's that NumPy has. Error{kBadFile} naming `file` and the byte for anything else.
/// Source: numpy.org/doc/stable, "numpy.lib.format".
HostTensor read_npy(std::span<const std::byte> bytes, const std::string& file);

/// Returns the bytes before those of the array in the file that numpy.save writes, format version
/// 1.0: a multiple of 64. Error{kUsage} if NumPy lacks the dtype, or if the rank is above 32.
std::string npy_header(const TensorSpec& spec);
/// As above, for any dtype of NumPy, such as "<U5".
std::string npy_header(std::string_view descr, const Shape& shape);

/// Returns f64 as f32 and i64 as i32, and any other array as it is. Error{kBadFile} naming `file`
/// and the element if a value does not fit.
HostTensor narrowed(HostTensor array, const std::string& file);

}  // namespace sluice::data
