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

/// The `__metadata__` of a safetensors file: UTF-8 text to UTF-8 text.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Where one tensor of a safetensors file lies.
struct SafetensorsTensor {
  std::string name;
  TensorSpec spec;
  int64_t offset = 0;  ///< Of its first byte, from the start of the file.
};

/// What a safetensors file says about itself.
struct SafetensorsIndex {
  std::vector<SafetensorsTensor> tensors;  ///< In the order of the header.
  SafetensorsMetadata metadata;
};

/// Format: u64 N (little-endian); N bytes of JSON, padded with spaces, an object of
/// `name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}` and at most one
/// `"__metadata__": {text: text}`; then the bytes of the tensors, row-major, little-endian, without
/// overlap or holes. Dtypes F32 F16 BF16 I32 U32 U8 BOOL F64 I64; any rank up to 64; dimensions may
/// be 0. Source: github.com/huggingface/safetensors, README.md, "Format".
///
/// Readers trust nothing: whatever breaks the format (duplicate keys, numbers that are not unsigned
/// integers, unknown dtypes, sizes that do not match, overlap, holes, bools other than 0 and 1,
/// headers over 100 MB) is Error{kBadFile} naming `file` and the byte offset, and no more is
/// allocated than the file's bytes justify.

/// Reads the index of a file of `file_size` bytes whose first bytes (8 + N of them or more) are
/// `head`.
SafetensorsIndex read_safetensors_index(std::span<const std::byte> head, int64_t file_size,
                                        const std::string& file);

/// Reads every tensor, in the order of the header. `metadata`, if given, receives the file's.
std::vector<NamedArray> read_safetensors(std::span<const std::byte> bytes, const std::string& file,
                                         SafetensorsMetadata* metadata = nullptr);

/// A file whose tensors are read a part at a time, so that they need not fit any memory.
class SafetensorsReader {
 public:
  /// Error{kIo} if it cannot be read.
  explicit SafetensorsReader(const std::string& path);

  const SafetensorsIndex& index() const { return index_; }
  /// Bytes of a tensor from `offset` on, a multiple of its element's size.
  void read(const SafetensorsTensor& tensor, int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  sys::File file_;
  SafetensorsIndex index_;
};

/// All tensors of a file, without a second copy of its bytes. Error{kIo} if it cannot be read.
std::vector<NamedArray> read_safetensors_file(const std::string& path,
                                              SafetensorsMetadata* metadata = nullptr);

/// The bytes of a file that holds `arrays`: a pure function of names, arrays and metadata, whatever
/// the order of `arrays`. Tensors are ordered by element size, largest first, then by name, so that
/// each is aligned to its element. Error{kUsage} if a name appears twice, is "__metadata__" or is
/// not UTF-8.
std::vector<std::byte> write_safetensors(std::span<const NamedArray> arrays,
                                         const SafetensorsMetadata& metadata = {});

/// A tensor and the name that it gets in a file.
struct NamedSpec {
  std::string name;
  TensorSpec spec;
};

/// Gives bytes of tensor number `tensor` from `offset` on.
using TensorSource = std::function<void(size_t tensor, int64_t offset, std::span<std::byte> out)>;

/// Takes the bytes of a file from its first to its last.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// The same file as of arrays, asking for a part of a tensor at a time.
void write_safetensors(std::span<const NamedSpec> tensors, const TensorSource& source,
                       const ByteSink& sink, const SafetensorsMetadata& metadata = {});

/// Replaces the file `path` by the one that write_safetensors makes, asking for a part of a tensor at a time: a reader
/// finds the old file or the new one. Error{kIo} if it cannot.
void write_safetensors_file(const std::string& path, std::span<const NamedSpec> tensors,
                            const TensorSource& source, const SafetensorsMetadata& metadata = {});
/// The same of arrays.
void write_safetensors_file(const std::string& path, std::span<const NamedArray> arrays,
                            const SafetensorsMetadata& metadata = {});

}  // namespace sluice
