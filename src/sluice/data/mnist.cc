#include "sluice/data/mnist.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/sys.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/inflate.h"
#include "sluice/data/synthetic_digits.h"

namespace sluice::data {
namespace {

constexpr int64_t kMaxSamples = 1'000'000;
constexpr int64_t kPixels = kDigitSide * kDigitSide;

constexpr std::array<const char*, 4> kMnistFiles{
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

/// Constants of one kind of IDX file.
struct IdxKind {
  uint32_t magic;
  int64_t header_bytes;
  int64_t item_bytes;
};
constexpr IdxKind kImages{0x00000803, 16, kPixels};
constexpr IdxKind kLabels{0x00000801, 8, 1};

/// Reads and checks the header; returns the number of items.
int64_t read_header(ByteReader& reader, const IdxKind& kind) {
  const uint32_t magic = reader.u32_be("the magic number");
  if (magic != kind.magic)
    reader.bad("the magic number must be {:#010x}, got {:#010x}", kind.magic, magic);
  const int64_t count = reader.u32_be("the number of items");
  if (count < 1 || count > kMaxSamples)
    reader.bad("the number of items must be in [1, {}], got {}", kMaxSamples, count);
  if (kind.magic == kImages.magic) {
    const uint32_t rows = reader.u32_be("the number of rows");
    const uint32_t columns = reader.u32_be("the number of columns");
    if (rows != kDigitSide || columns != kDigitSide) {
      reader.bad("images must be {} x {}, got {} x {}", kDigitSide, kDigitSide, rows, columns);
    }
  }
  return count;
}

/// Expands a gzip file to the number of bytes that its IDX header states.
std::vector<std::byte> expand(std::span<const std::byte> bytes, const std::string& file,
                              const IdxKind& kind) {
  Inflater inflater(bytes, file, Inflater::Format::kGzip);
  std::vector<std::byte> plain;
  inflater.append(plain, kind.header_bytes);
  ByteReader reader(file + " (expanded)", plain);
  const int64_t payload = read_header(reader, kind) * kind.item_bytes;
  if (payload / Inflater::kMaxExpansion > static_cast<int64_t>(bytes.size())) {
    reader.bad("the header announces {} bytes, more than {} bytes of gzip can hold", payload,
               bytes.size());
  }
  inflater.append(plain, payload);
  if (static_cast<int64_t>(plain.size()) == kind.header_bytes + payload) inflater.finish();
  return plain;
}

/// Reads the header and returns the result of use(count, reader). `reader` has exactly the bytes of
/// the `count` items left.
template <typename F>
auto read_idx(std::span<const std::byte> bytes, const std::string& file, const IdxKind& kind,
              F use) {
  std::vector<std::byte> plain;
  std::string name = file;
  if (is_gzip(bytes)) {
    plain = expand(bytes, file, kind);
    bytes = plain;
    name += " (expanded)";
  }
  refuse_other_kind(bytes, file, Contents::kBinary, "an IDX file");
  ByteReader reader(name, bytes);
  const int64_t count = read_header(reader, kind);
  if (reader.remaining() != count * kind.item_bytes) {
    reader.bad("{} items need {} bytes, {} are left in the file", count, count * kind.item_bytes,
               reader.remaining());
  }
  return use(count, reader);
}

/// Reads a file. Error{kBadFile}, before reading, if it is larger than any valid IDX file.
std::vector<std::byte> read_bounded(const std::string& path) {
  const int64_t limit = kImages.header_bytes + kMaxSamples * kPixels;
  const int64_t size = sys::size(sys::open_for_read(path), path);
  if (size > limit) {
    fail(ErrorKind::kBadFile, "{}: byte {}: the file must have at most {} bytes, got {}", path,
         limit, limit, size);
  }
  return sys::read_file(path);
}

std::optional<std::string> mnist_folder(const std::string& folder) {
  for (const char* suffix : {"", "/mnist"}) {
    std::string candidate = folder + suffix;
    if (std::all_of(kMnistFiles.begin(), kMnistFiles.end(), [&](const char* name) {
          return find_data_file(candidate, name).has_value();
        })) {
      return candidate;
    }
  }
  return std::nullopt;
}

[[noreturn]] void missing(const std::string& folder) {
  fail(ErrorKind::kIo,
       "{0} or {0}/mnist must contain MNIST's files: {1}, {2}, {3}, {4} (each plain or .gz)",
       folder, kMnistFiles[0], kMnistFiles[1], kMnistFiles[2], kMnistFiles[3]);
}

}  // namespace

std::optional<std::string> find_mnist(const std::string& explicit_folder) {
  if (!explicit_folder.empty()) {
    sys::check_folder(explicit_folder);
    if (auto found = mnist_folder(explicit_folder)) return found;
    missing(explicit_folder);
  }
  if (const char* variable = std::getenv("SLUICE_DATA"); variable != nullptr && *variable != '\0') {
    if (auto found = mnist_folder(variable)) return found;
  }
  return mnist_folder("data/mnist");
}

HostTensor read_idx_images(std::span<const std::byte> bytes, const std::string& file) {
  std::array<float, 256> normalised;
  for (size_t grey = 0; grey < normalised.size(); ++grey) {
    normalised[grey] = normalised_pixel(static_cast<uint8_t>(grey));
  }
  return read_idx(bytes, file, kImages, [&](int64_t count, ByteReader& reader) {
    HostTensor images(TensorSpec{{count, kDigitSide, kDigitSide}, f32, {}});
    const auto pixels = reader.take(count * kPixels, "the images");
    std::transform(pixels.begin(), pixels.end(), images.as<float>().begin(),
                   [&](std::byte grey) { return at(normalised, grey); });
    return images;
  });
}

HostTensor read_idx_labels(std::span<const std::byte> bytes, const std::string& file) {
  return read_idx(bytes, file, kLabels, [&](int64_t count, ByteReader& reader) {
    HostTensor labels(TensorSpec{{count}, i32, {}});
    ByteReader here = reader;
    const auto bytes = reader.take(count, "the labels");
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto label = static_cast<int32_t>(bytes[i]);
      if (label > 9) {
        here.take(static_cast<int64_t>(i), "the labels");
        here.bad("a label must be in [0, 9], got {}", label);
      }
      labels.as<int32_t>()[i] = label;
    }
    return labels;
  });
}

std::pair<std::string, std::string> mnist_files(const std::string& folder, Split split) {
  const auto found = mnist_folder(folder);
  if (!found) missing(folder);
  const size_t first = split == Split::kTrain ? 0 : 2;
  return {*find_data_file(*found, kMnistFiles[first]),
          *find_data_file(*found, kMnistFiles[first + 1])};
}

Samples load_mnist(const std::string& folder, Split split) {
  const auto [images_path, labels_path] = mnist_files(folder, split);
  Samples set;
  set.images = read_idx_images(read_bounded(images_path), images_path);
  set.labels = read_idx_labels(read_bounded(labels_path), labels_path);
  if (set.images.shape()[0] != set.labels.shape()[0]) {
    fail(ErrorKind::kBadFile, "{}: byte 4: must have one label for each of {} images in {}, got {}",
         labels_path, set.images.shape()[0], images_path, set.labels.shape()[0]);
  }
  set.source = fmt::format("MNIST, {} digits of {}", split == Split::kTrain ? "training" : "test",
                           images_path.substr(0, images_path.rfind('/')));
  return set;
}

Samples load_digits(Split split, const std::string& explicit_folder) {
  const auto folder = find_mnist(explicit_folder);
  if (folder) return load_mnist(*folder, split);
  return split == Split::kTrain ? synthetic_digits(20000, 1) : synthetic_digits(4000, 2);
}

}  // namespace sluice::data
