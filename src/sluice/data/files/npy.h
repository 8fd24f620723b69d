#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/data/window/file_window.h"

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

/// Returns the beginning of a file, with its whole header if it is a NumPy array whose header has
/// at most 1 MiB. Error{kBadFile} for another kind of file.
std::vector<std::byte> npy_head(const FileWindow& window);

/// Reads the header of a NumPy array from `head`, the beginning of a file of `file_size` bytes.
/// Errors as read_npy(); a header of more than 1 MiB is Error{kBadFile} too.
NpyHeader read_npy_header(std::span<const std::byte> head, int64_t file_size,
                          const std::string& file);

/// The ids of tokens in a NumPy file, (n): unsigned of 1 or 2 bytes, or integers of 4 or 8 bytes.
struct NpyIds {
  int64_t count = 0;
  int64_t bytes = 0;  ///< Bytes of an id.
  bool is_signed = false;
  int64_t begin = 0;  ///< Byte offset of the first id.
};
/// Reads the header of a file of ids, as read_npy_header().
NpyIds read_npy_ids_header(std::span<const std::byte> head, int64_t file_size,
                           const std::string& file);

/// Returns the bytes before those of the array in the file that numpy.save writes, format version
/// 1.0: a multiple of 64. Error{kUsage} if NumPy lacks the dtype, or if the rank is above 32.
std::string npy_header(const TensorSpec& spec);
/// As above, for any dtype of NumPy, such as "<U5".
std::string npy_header(std::string_view descr, const Shape& shape);

}  // namespace sluice::data
