#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/shape.h"
#include "sluice/data/dataset.h"
#include "sluice/data/window/file_window.h"

namespace sluice::data {

/// The conversion of a stored element to an element of a field.
enum class Decoding : uint8_t {
  kCopy,
  kBool,    ///< A copy of 0 or 1; other bytes are Error{kBadFile}.
  kNarrow,  ///< f64 to f32, or i64 to i32; a value that does not fit is Error{kBadFile}.
  kPixel,   ///< u8 to f32, by normalised_pixel().
  kLabel,   ///< u8 to i32.
};

/// An array of a file whose rows are read when they are asked for.
struct FileArray {
  std::shared_ptr<const FileWindow> window;
  int64_t begin = 0;  ///< Byte offset of the array.
  TensorSpec stored;  ///< Spec of the array in the file, with its first axis.
  Decoding decoding = Decoding::kCopy;
  std::string title;  ///< The file and the array, for errors: "a.safetensors (x)".
};

/// Returns the conversion of arrays of NumPy and safetensors files.
Decoding decoding_of(DType stored);

/// Cuts arrays along their first axes, as from_tensors() does. The arrays stay in their files.
/// `names` has a name for each array, or is empty. Error{kBadFile} naming `path` for a scalar, or
/// if the first axes differ.
Dataset from_file_arrays(const std::string& path, std::vector<FileArray> arrays,
                         std::vector<std::string> names);

/// Error{kBadFile} naming `path` unless all arrays have a first axis of one size. `names` as above.
void require_rows(const std::string& path, std::span<const TensorSpec> specs,
                  const std::vector<std::string>& names);

}  // namespace sluice::data
