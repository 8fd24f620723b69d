// The sources of arrays with names: NumPy and safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
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

/// Reads the arrays `fields` with read(place in `all`), or all arrays if `fields` is empty.
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
    arrays.arrays.push_back(read(static_cast<size_t>(found - all.begin())));
  }
  return from_arrays(path, std::move(arrays));
}

}  // namespace

Dataset from_npy(const std::string& path) {
  return from_arrays(path, narrowed(read_npy(sys::read_file(path), path), path));
}

Dataset from_npz(const std::string& path, const std::vector<std::string>& fields) {
  constexpr std::string_view kEnding = ".npy";
  const std::vector<std::byte> bytes = sys::read_file(path);
  const std::vector<ZipMember> members = read_zip(bytes, path);
  std::vector<std::string> names;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kEnding)) {
      fail(ErrorKind::kBadFile, "{}: byte {}: the name of a member must end with .npy", path,
           member.begin);
    }
    names.push_back(member.name.substr(0, member.name.size() - kEnding.size()));
  }
  return choose(path, names, fields, [&](size_t place) {
    const std::string file = fmt::format("{} ({})", path, members[place].name);
    return narrowed(read_npy(read_member(bytes, path, members[place]), file), file);
  });
}

Dataset from_safetensors(const std::string& path, const std::vector<std::string>& fields) {
  const SafetensorsReader reader(path);
  const std::vector<SafetensorsTensor>& tensors = reader.index().tensors;
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
  return choose(path, names, fields, [&](size_t place) {
    HostTensor array(tensors[place].spec);
    reader.read(tensors[place], 0, array.bytes());
    return narrowed(std::move(array), path + " (" + tensors[place].name + ")");
  });
}

}  // namespace sluice::data
