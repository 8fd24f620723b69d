#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/base/sys.h"

namespace sluice {

/// The `__metadata__` of a safetensors file: UTF-8 keys and UTF-8 values.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Name, spec and position of one tensor in a safetensors file.
struct SafetensorsTensor {
  std::string name;
  TensorSpec spec;
  int64_t offset = 0;  ///< Byte offset of the tensor from the start of the file.
};

/// A tensor of a dtype that Sluice lacks. Its bytes cannot be read.
struct ForeignTensor {
  std::string name;
  std::string dtype;  ///< As in the file: "I8".
  Shape shape;
  int64_t bytes = 0;
};

/// The header of a safetensors file.
struct SafetensorsIndex {
  std::vector<SafetensorsTensor> tensors;  ///< In the order of the header.
  std::vector<ForeignTensor> foreign;      ///< In the order of the header.
  SafetensorsMetadata metadata;

  /// Throws Error{kBadFile} naming `file` if `name` names a foreign tensor.
  void refuse_foreign(const std::string& name, const std::string& file) const;
};

// Format of a safetensors file:
//   u64 N, little-endian;
//   N bytes of JSON, padded with spaces: an object that maps each tensor's name to
//     {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
//     with at most one "__metadata__": {text: text};
//   the bytes of the tensors: row-major, little-endian, without overlap or holes.
// The dtypes that can be read are F32 F16 BF16 I32 U32 U8 BOOL F64 I64. The other dtypes of the
// format (I8, F8_E4M3, …) do not matter until their tensors are asked for. The rank is at most 64.
// Dimensions may be 0.
// Source: github.com/huggingface/safetensors, README.md, "Format".
//
// Readers do not trust the file. They throw Error{kBadFile} naming `file` and the byte offset if
// the file breaks the format. Examples are duplicate keys, numbers that are not unsigned integers,
// unknown dtypes, sizes that do not match, overlap, holes and bools other than 0 and 1. A header
// over 100 MB is an error too. Readers never allocate more memory than the size of the file
// justifies.

/// Reads the index of a file of `file_size` bytes. `head` is the beginning of the file, at least
/// 8 + N bytes.
SafetensorsIndex read_safetensors_index(std::span<const std::byte> head, int64_t file_size,
                                        const std::string& file);

/// Reads every tensor that is not foreign, in the order of the header. Stores the file's metadata
/// in `metadata` if it is not null.
std::vector<NamedArray> read_safetensors(std::span<const std::byte> bytes, const std::string& file,
                                         SafetensorsMetadata* metadata = nullptr);

/// Reads tensors of a file in parts, so that a tensor need not fit in memory.
class SafetensorsReader {
 public:
  /// Reads the index. Error{kIo} if the file cannot be read.
  explicit SafetensorsReader(const std::string& path);

  const SafetensorsIndex& index() const { return index_; }
  /// Reads bytes of a tensor into `out`, from byte `offset` of the tensor on. `offset` is a
  /// multiple of the element's size.
  void read(const SafetensorsTensor& tensor, int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  sys::File file_;
  SafetensorsIndex index_;
};

/// Reads all tensors that are not foreign, without a second copy of the file's bytes in memory.
/// Error{kIo} if the file cannot be read.
std::vector<NamedArray> read_safetensors_file(const std::string& path,
                                              SafetensorsMetadata* metadata = nullptr);

/// Returns the bytes of a file that holds `arrays`. They do not depend on the order of `arrays`:
/// tensors are sorted by element size, largest first, then by name. So each tensor is aligned to
/// its element size. Error{kUsage} if a name appears twice, is "__metadata__" or is not UTF-8.
std::vector<std::byte> write_safetensors(std::span<const NamedArray> arrays,
                                         const SafetensorsMetadata& metadata = {});

/// A tensor to write: its name in the file and its spec.
struct NamedSpec {
  std::string name;
  TensorSpec spec;
};

/// Stores bytes of tensor number `tensor` in `out`, from byte `offset` of the tensor on.
using TensorSource = std::function<void(size_t tensor, int64_t offset, std::span<std::byte> out)>;

/// Receives the bytes of a file in parts, in order.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Writes to `sink` the bytes that the function above returns for the same tensors. It reads the
/// tensors from `source` in parts.
void write_safetensors(std::span<const NamedSpec> tensors, const TensorSource& source,
                       const ByteSink& sink, const SafetensorsMetadata& metadata = {});

/// Writes tensors to the file at `path` with sys::replace_file: a reader finds the whole old file
/// or the whole new one. It reads the tensors from `source` in parts. Error{kIo} if the file cannot
/// be written.
void write_safetensors_file(const std::string& path, std::span<const NamedSpec> tensors,
                            const TensorSource& source, const SafetensorsMetadata& metadata = {});
/// Writes arrays to the file at `path` like the function above.
void write_safetensors_file(const std::string& path, std::span<const NamedArray> arrays,
                            const SafetensorsMetadata& metadata = {});

}  // namespace sluice
