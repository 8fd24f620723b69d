#include "sluice/data/files/idx.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/inflate.h"
#include "sluice/data/mnist.h"
#include "sluice/data/window/file_rows.h"

namespace sluice::data {
namespace {

constexpr uint32_t kBytes = 0x00000800;  // The magic number of rank 0.
constexpr uint32_t kMaxRank = 8;

/// Reads the magic number and returns the rank.
uint32_t read_rank(ByteReader& reader) {
  const uint32_t magic = reader.u32_be("the magic number");
  if (magic <= kBytes || magic > kBytes + kMaxRank) {
    reader.bad(
        "the magic number must be in [{:#010x}, {:#010x}], bytes of rank 1 to {}, got {:#010x}",
        kBytes + 1, kBytes + kMaxRank, kMaxRank, magic);
  }
  return magic - kBytes;
}

Shape read_shape(ByteReader& reader) {
  std::vector<int64_t> dims(read_rank(reader));
  int64_t elements = 1;
  for (int64_t& dim : dims) {
    dim = reader.u32_be("a dimension");
    if (dim == 0) reader.bad("a dimension must be at least 1, got 0");
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      reader.bad("the dimensions must have a product of at most 63 bits");
    }
  }
  return Shape(std::move(dims));
}

/// Expands a gzip file to the number of bytes that its IDX header states.
std::vector<std::byte> expand(std::span<const std::byte> bytes, const std::string& file) {
  Inflater inflater(bytes, file, Inflater::Format::kGzip);
  std::vector<std::byte> plain;
  inflater.append(plain, 4);
  ByteReader magic(file + " (expanded)", plain);
  const int64_t header = 4 * (int64_t{read_rank(magic)} + 1);
  inflater.append(plain, header - 4);
  ByteReader reader(file + " (expanded)", plain);
  const int64_t payload = read_shape(reader).elements();
  if (payload / Inflater::kMaxExpansion > static_cast<int64_t>(bytes.size())) {
    reader.bad("the header announces {} bytes, more than {} bytes of gzip can hold", payload,
               bytes.size());
  }
  inflater.append(plain, payload);
  if (static_cast<int64_t>(plain.size()) == header + payload) inflater.finish();
  return plain;
}

/// The array of an IDX file: in memory if the file is gzip, else in the file.
struct IdxArray {
  Shape shape;
  std::optional<HostTensor> bytes = std::nullopt;
  FileArray file = {};
};

IdxArray open_array(const std::string& path, const std::shared_ptr<WindowMemory>& memory,
                    Decoding decoding) {
  const auto window = std::make_shared<const FileWindow>(path, memory);
  const std::vector<std::byte> head = window->head(4 * (int64_t{kMaxRank} + 1));
  if (is_gzip(head)) {
    HostTensor bytes = read_idx_bytes(sys::read_file(path), path);
    Shape shape = bytes.shape();
    return {std::move(shape), std::move(bytes)};
  }
  refuse_other_kind(head, path, Contents::kBinary, "an IDX file");
  ByteReader reader(path, head);
  const Shape shape = read_shape(reader);
  const int64_t left = window->size() - reader.offset();
  if (left != shape.elements()) {
    reader.bad("an array {} needs {} bytes, {} are left in the file", to_string(shape),
               shape.elements(), left);
  }
  return {shape, std::nullopt, {window, reader.offset(), {shape, u8, {}}, decoding, path}};
}

/// Converts bytes to pixels or labels.
HostTensor converted(HostTensor bytes, Decoding decoding) {
  if (decoding == Decoding::kCopy) return bytes;
  HostTensor out({bytes.shape(), decoding == Decoding::kPixel ? f32 : i32, {}});
  const auto from = bytes.as<uint8_t>();
  if (decoding == Decoding::kPixel) {
    std::transform(from.begin(), from.end(), out.as<float>().begin(), normalised_pixel);
  } else {
    std::copy(from.begin(), from.end(), out.as<int32_t>().begin());
  }
  return out;
}

/// A dataset with one field.
Dataset from_array(const std::string& path, IdxArray array, const char* name, Decoding decoding) {
  if (array.bytes) return from_tensors({{name, converted(std::move(*array.bytes), decoding)}});
  return from_file_arrays(path, {std::move(array.file)}, {name});
}

}  // namespace

HostTensor read_idx_bytes(std::span<const std::byte> bytes, const std::string& file) {
  std::vector<std::byte> plain;
  std::string name = file;
  if (is_gzip(bytes)) {
    plain = expand(bytes, file);
    bytes = plain;
    name += " (expanded)";
  }
  refuse_other_kind(bytes, file, Contents::kBinary, "an IDX file");
  ByteReader reader(name, bytes);
  const Shape shape = read_shape(reader);
  if (reader.remaining() != shape.elements()) {
    reader.bad("an array {} needs {} bytes, {} are left in the file", to_string(shape),
               shape.elements(), reader.remaining());
  }
  HostTensor array({shape, u8, {}});
  const auto payload = reader.take(shape.elements(), "the array");
  std::copy(payload.begin(), payload.end(), array.bytes().begin());
  return array;
}

Dataset idx_images(const std::string& path) {
  const auto memory = std::make_shared<WindowMemory>();
  return from_array(path, open_array(path, memory, Decoding::kPixel), "image", Decoding::kPixel);
}

Dataset from_idx(const std::string& images, const std::string& labels, IdxPixels pixels) {
  const Decoding decoding = pixels == IdxPixels::kRaw ? Decoding::kCopy : Decoding::kPixel;
  const auto memory = std::make_shared<WindowMemory>();
  IdxArray image = open_array(images, memory, decoding);
  IdxArray label = open_array(labels, memory, Decoding::kLabel);
  if (label.shape.rank() != 1 || label.shape[0] != image.shape[0]) {
    fail(ErrorKind::kBadFile, "{}: byte 4: must have one label for each of {} images in {}, got {}",
         labels, image.shape[0], images, to_string(label.shape));
  }
  if (!image.bytes && !label.bytes)
    return from_file_arrays(images, {std::move(image.file), std::move(label.file)},
                            {"image", "label"});
  return zip({from_array(images, std::move(image), "image", decoding),
              from_array(labels, std::move(label), "label", Decoding::kLabel)});
}

Dataset from_idx(const std::string& folder, Split split, IdxPixels pixels) {
  const auto [images, labels] = mnist_files(folder, split);
  return from_idx(images, labels, pixels);
}

}  // namespace sluice::data
