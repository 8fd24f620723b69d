// The sources of arrays with names: NumPy and safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/files/zip_archive.h"

namespace sluice::data {
namespace {

/// Cuts the arrays of a file along their first axes, which must be equal.
Dataset from_arrays(const std::string& path, Element arrays) {
  for (size_t i = 0; i < arrays.arrays.size(); ++i) {
    const Shape& shape = arrays.arrays[i].shape();
    const std::string array =
        arrays.names.empty() ? "the array" : fmt::format("field '{}'", arrays.names[i]);
    if (shape.empty()) {
      fail(ErrorKind::kBadFile, "{}: {} must have a first axis, got a scalar", path, array);
    }
    const int64_t rows = arrays.arrays[0].shape()[0];
    if (shape[0] != rows) {
      fail(ErrorKind::kBadFile, "{}: {} must have {} rows like field '{}', got {}", path, array,
           rows, arrays.names[0], to_string(shape));
    }
  }
  return from_tensors(std::move(arrays));
}

/// Reads the arrays `fields` with read(index in `all`), or all arrays if `fields` is empty.
Dataset choose(const std::string& path, const std::vector<std::string>& all,
               const std::vector<std::string>& fields,
               const std::function<HostTensor(size_t)>& read) {
  if (all.empty()) fail(ErrorKind::kBadFile, "{}: must have at least one array, got none", path);
  Element arrays;
  arrays.names = fields.empty() ? all : fields;
  for (const std::string& name : arrays.names) {
    const auto found = std::find(all.begin(), all.end(), name);
    require(found != all.end(), "{}: the field must be one of [{}], got '{}'", path,
            fmt::join(all, ", "), name);
    arrays.arrays.push_back(read(std::distance(all.begin(), found)));
  }
  return from_arrays(path, std::move(arrays));
}

/// As choose(), with the tensors of an index. A foreign tensor is refused if it is asked for.
Dataset choose_tensors(const std::string& path, const SafetensorsIndex& index,
                       const std::vector<std::string>& fields,
                       const std::function<HostTensor(size_t)>& read) {
  for (const std::string& name : fields) index.refuse_foreign(name, path);
  if (fields.empty()) {
    for (const ForeignTensor& t : index.foreign) index.refuse_foreign(t.name, path);
  }
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : index.tensors) names.push_back(tensor.name);
  return choose(path, names, fields, [&](size_t number) {
    return narrowed(read(number), fmt::format("{} ({})", path, names[number]));
  });
}

bool is_gzip_file(const std::string& path) {
  const sys::File file = sys::open_for_read(path);
  std::array<std::byte, 2> head;
  if (sys::size(file, path) < std::ssize(head)) return false;
  sys::read_exactly(file, path, 0, head);
  return is_gzip(head);
}

}  // namespace

Dataset from_npy(const std::string& path) {
  const std::vector<std::byte> bytes = read_contents(path, Contents::kBinary, "a NumPy array");
  return from_arrays(path, narrowed(read_npy(bytes, path), path));
}

Dataset from_npz(const std::string& path, const std::vector<std::string>& fields) {
  constexpr std::string_view kEnding = ".npy";
  const std::vector<std::byte> bytes = read_contents(path, Contents::kBinary, "a ZIP archive");
  const std::vector<ZipMember> members = read_zip(bytes, path);
  std::vector<std::string> names;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kEnding)) {
      fail(ErrorKind::kBadFile, "{}: byte {}: the name of a member must end with .npy", path,
           member.begin);
    }
    names.push_back(member.name.substr(0, member.name.size() - kEnding.size()));
  }
  return choose(path, names, fields, [&](size_t number) {
    const std::string file = fmt::format("{} ({})", path, members[number].name);
    return narrowed(read_npy(read_member(bytes, path, members[number]), file), file);
  });
}

Dataset from_safetensors(const std::string& path, const std::vector<std::string>& fields) {
  if (is_gzip_file(path)) {
    const std::vector<std::byte> bytes =
        read_contents(path, Contents::kBinary, "a safetensors file");
    const SafetensorsIndex index =
        read_safetensors_index(bytes, static_cast<int64_t>(bytes.size()), path);
    std::vector<NamedArray> arrays = read_safetensors(bytes, path);
    return choose_tensors(path, index, fields,
                          [&](size_t number) { return std::move(arrays[number].array); });
  }
  const SafetensorsReader reader(path);
  return choose_tensors(path, reader.index(), fields, [&](size_t number) {
    const SafetensorsTensor& tensor = reader.index().tensors[number];
    HostTensor array(tensor.spec);
    reader.read(tensor, 0, array.bytes());
    return array;
  });
}

}  // namespace sluice::data
