// The source of arrays that stay in their files.
#include "sluice/data/window/file_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/data/samples.h"
#include "sluice/data/window/indexed_node.h"
#include "sluice/data/window/narrow.h"

namespace sluice::data {
namespace {

using internal::ElementView;
using internal::IndexedNode;
using internal::Node;

DType decoded(DType stored, Decoding decoding) {
  if (decoding == Decoding::kPixel) return f32;
  if (decoding == Decoding::kLabel) return i32;
  if (decoding == Decoding::kNarrow) return stored == f64 ? f32 : i32;
  return stored;
}

/// Converts stored elements. `first` is the index of the first one in its array.
void decode(const FileArray& array, int64_t first, std::span<const std::byte> stored,
            std::byte* out) {
  const auto* const grey = reinterpret_cast<const uint8_t*>(stored.data());
  switch (array.decoding) {
    case Decoding::kNarrow:
      narrow(array.stored.dtype, stored, first, out, array.title);
      return;
    case Decoding::kPixel:
      std::transform(grey, grey + stored.size(), reinterpret_cast<float*>(out), normalised_pixel);
      return;
    case Decoding::kLabel:
      std::copy_n(grey, stored.size(), reinterpret_cast<int32_t*>(out));
      return;
    case Decoding::kCopy:
    case Decoding::kBool:
      std::copy(stored.begin(), stored.end(), out);
      return;
  }
}

ElementSpecs specs_of_arrays(std::span<const FileArray> arrays, std::vector<std::string> names) {
  internal::check_names(arrays.size(), names, arrays[0].window->path());
  ElementSpecs specs;
  specs.names = std::move(names);
  for (const FileArray& a : arrays) {
    const Shape& shape = a.stored.shape;
    specs.arrays.push_back(
        {Shape({shape.begin() + 1, shape.end()}), decoded(a.stored.dtype, a.decoding), {}});
  }
  return specs;
}

class FileRows final : public IndexedNode {
 public:
  FileRows(std::vector<FileArray> arrays, std::vector<std::string> names)
      : IndexedNode(specs_of_arrays(arrays, std::move(names)), arrays[0].stored.shape[0]),
        arrays_(std::move(arrays)) {
    for (const TensorSpec& spec : known_specs().arrays) row_elements_.push_back(spec.elements());
  }

  Element at(int64_t k, uint64_t /*pass*/) const override {
    Element element = blank();
    for (size_t i = 0; i < arrays_.size(); ++i) read_row(k, i, element.arrays[i].bytes().data());
    return element;
  }
  size_t write_at(int64_t k, uint64_t pass, const ElementView& to) const override {
    if (!fits(to)) return Node::write_at(k, pass, to);  // Reports the difference.
    for (size_t i = 0; i < arrays_.size(); ++i) read_row(k, i, to.arrays[i].data);
    return arrays_.size();
  }

 private:
  void read_row(int64_t k, size_t index, std::byte* out) const {
    const FileArray& array = arrays_[index];
    const int64_t size = size_of(array.stored.dtype), elements = row_elements_[index];
    const int64_t first = k * elements, begin = array.begin + first * size;
    if (array.decoding == Decoding::kCopy || array.decoding == Decoding::kBool) {
      const std::span<std::byte> row(out, static_cast<size_t>(elements * size));
      array.window->read(begin, row);
      if (array.decoding == Decoding::kBool) check_bools(array, begin, row);
      return;
    }
    std::array<std::byte, 8192> part;
    const int64_t step = std::ssize(part) / size, wide = size_of(known_specs().arrays[index].dtype);
    for (int64_t e = 0; e < elements; e += step) {
      const std::span<std::byte> stored =
          std::span(part).first(static_cast<size_t>(std::min(step, elements - e) * size));
      array.window->read(begin + e * size, stored);
      decode(array, first + e, stored, out + e * wide);
    }
  }

  static void check_bools(const FileArray& array, int64_t begin, std::span<const std::byte> bytes) {
    const auto wrong =
        std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (wrong == bytes.end()) return;
    fail(ErrorKind::kBadFile, "{}: byte {}: a bool must be 0 or 1, got {}", array.title,
         begin + (wrong - bytes.begin()), static_cast<int>(*wrong));
  }

  std::vector<FileArray> arrays_;
  std::vector<int64_t> row_elements_;  ///< Indexed by array.
};

}  // namespace

Decoding decoding_of(DType stored) {
  if (stored == boolean) return Decoding::kBool;
  return stored == f64 || stored == i64 ? Decoding::kNarrow : Decoding::kCopy;
}

void require_rows(const std::string& path, std::span<const TensorSpec> specs,
                  const std::vector<std::string>& names) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const Shape& shape = specs[i].shape;
    const std::string array = names.empty() ? "the array" : fmt::format("field '{}'", names[i]);
    if (shape.empty()) {
      fail(ErrorKind::kBadFile, "{}: {} must have a first axis, got a scalar", path, array);
    }
    const int64_t rows = specs[0].shape[0];
    if (shape[0] != rows) {
      fail(ErrorKind::kBadFile, "{}: {} must have {} rows like field '{}', got {}", path, array,
           rows, names[0], to_string(shape));
    }
  }
}

Dataset from_file_arrays(const std::string& path, std::vector<FileArray> arrays,
                         std::vector<std::string> names) {
  std::vector<TensorSpec> specs;
  for (const FileArray& a : arrays) specs.push_back(a.stored);
  require_rows(path, specs, names);
  return Dataset(std::make_shared<const FileRows>(std::move(arrays), std::move(names)));
}

}  // namespace sluice::data
