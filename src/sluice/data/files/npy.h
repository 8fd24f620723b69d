#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/base/host_tensor.h"

namespace sluice::data {

/// Reads a NumPy array, format versions 1.0, 2.0 and 3.0, in C order and little-endian. Its dtype
/// is one of Sluice's that NumPy has. Error{kBadFile} naming `file` and the byte for anything else.
/// Source: numpy.org/doc/stable, "numpy.lib.format".
HostTensor read_npy(std::span<const std::byte> bytes, const std::string& file);

/// The spec of an array in a file and the byte offset of its elements.
struct NpyHeader {
  TensorSpec spec;
  int64_t begin = 0;
};

/// Returns the number of bytes that read_npy_header() needs of a file that begins with `head`, or
/// those of `head` if it is not a NumPy array. At most about 1 MiB.
int64_t npy_head_bytes(std::span<const std::byte> head);

/// Reads the header of a NumPy array from `head`, the beginning of a file of `file_size` bytes.
/// Errors as read_npy(); a header of more than 1 MiB is Error{kBadFile} too.
NpyHeader read_npy_header(std::span<const std::byte> head, int64_t file_size,
                          const std::string& file);

/// Returns the bytes before those of the array in the file that numpy.save writes, format version
/// 1.0: a multiple of 64. Error{kUsage} if NumPy lacks the dtype, or if the rank is above 32.
std::string npy_header(const TensorSpec& spec);
/// As above, for any dtype of NumPy, such as "<U5".
std::string npy_header(std::string_view descr, const Shape& shape);

}  // namespace sluice::data
