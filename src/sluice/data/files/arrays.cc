// The sources of arrays with names: NumPy and safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/bytes.h"
#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/data/dataset.h"
#include "sluice/data/files/arrays.h"
#include "sluice/data/files/contents.h"
#include "sluice/data/files/npy.h"
#include "sluice/data/files/zip_archive.h"
#include "sluice/data/window/file_rows.h"
#include "sluice/data/window/folder_parts.h"
#include "sluice/data/window/narrow.h"

namespace sluice::data {
namespace {

/// Cuts the arrays of a file along their first axes, which must be equal.
Dataset from_arrays(const std::string& path, Element arrays) {
  std::vector<TensorSpec> specs;
  for (const HostTensor& array : arrays.arrays) specs.push_back(array.spec());
  require_rows(path, specs, arrays.names);
  return from_tensors(std::move(arrays));
}

/// Returns the names of the arrays to read: `fields`, or `all` if it is empty.
std::vector<std::string> chosen_names(const std::string& path, const std::vector<std::string>& all,
                                      const std::vector<std::string>& fields) {
  if (all.empty()) fail(ErrorKind::kBadFile, "{}: must have at least one array, got none", path);
  for (const std::string& name : fields) {
    require(std::find(all.begin(), all.end(), name) != all.end(),
            "{}: the field must be one of [{}], got '{}'", path, fmt::join(all, ", "), name);
  }
  return fields.empty() ? all : fields;
}

size_t index_of(const std::vector<std::string>& all, const std::string& name) {
  return static_cast<size_t>(std::find(all.begin(), all.end(), name) - all.begin());
}

/// Reads the arrays `fields` with read(index in `all`), or all arrays if `fields` is empty.
Dataset choose(const std::string& path, const std::vector<std::string>& all,
               const std::vector<std::string>& fields,
               const std::function<HostTensor(size_t)>& read) {
  Element arrays;
  arrays.names = chosen_names(path, all, fields);
  for (const std::string& name : arrays.names) arrays.arrays.push_back(read(index_of(all, name)));
  return from_arrays(path, std::move(arrays));
}

/// Returns the names of the tensors that can be read. A foreign tensor is refused if it is asked
/// for.
std::vector<std::string> tensor_names(const std::string& path, const SafetensorsIndex& index,
                                      const std::vector<std::string>& fields) {
  for (const std::string& name : fields) index.refuse_foreign(name, path);
  if (fields.empty()) {
    for (const ForeignTensor& t : index.foreign) index.refuse_foreign(t.name, path);
  }
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : index.tensors) names.push_back(tensor.name);
  return names;
}

/// Reads the index of a safetensors file that stays in its file.
SafetensorsIndex read_index(const FileWindow& window) {
  std::vector<std::byte> head = window.head(64);
  if (std::ssize(head) >= 8) {
    ByteReader reader(window.path(), head);
    const uint64_t n = reader.u64_le("the length of the header");
    constexpr uint64_t kMaxRead = 100'000'000;  // The reader refuses a longer header.
    if (n <= kMaxRead && n + 8 > head.size() && static_cast<int64_t>(n) + 8 <= window.size()) {
      refuse_other_kind(head, window.path(), Contents::kBinary, "a safetensors file");
      head = window.head(static_cast<int64_t>(n) + 8);
    }
  }
  return read_safetensors_index(head, window.size(), window.path());
}

bool is_gzip_file(const std::string& path) {
  const sys::File file = sys::open_for_read(path);
  std::array<std::byte, 2> head;
  if (sys::size(file, path) < std::ssize(head)) return false;
  sys::read_exactly(file, path, 0, head);
  return is_gzip(head);
}

/// Opens one file of from_npy().
Dataset npy_part(const std::string& path, const std::shared_ptr<WindowMemory>& memory) {
  if (is_gzip_file(path)) {
    const std::vector<std::byte> bytes = read_contents(path, Contents::kBinary, "a NumPy array");
    return from_arrays(path, narrowed(read_npy(bytes, path), path));
  }
  const auto window = std::make_shared<const FileWindow>(path, memory);
  const NpyHeader header = read_npy_header(npy_head(*window), window->size(), path);
  return from_file_arrays(
      path, {{window, header.begin, header.spec, decoding_of(header.spec.dtype), path}}, {});
}

/// Opens one file of from_safetensors().
Dataset safetensors_part(const std::string& path, const std::vector<std::string>& fields,
                         const std::shared_ptr<WindowMemory>& memory) {
  if (is_gzip_file(path)) {
    const std::vector<std::byte> bytes =
        read_contents(path, Contents::kBinary, "a safetensors file");
    const SafetensorsIndex index =
        read_safetensors_index(bytes, static_cast<int64_t>(bytes.size()), path);
    std::vector<NamedArray> arrays = read_safetensors(bytes, path);
    const std::vector<std::string> names = tensor_names(path, index, fields);
    return choose(path, names, fields, [&](size_t number) {
      return narrowed(std::move(arrays[number].array), fmt::format("{} ({})", path, names[number]));
    });
  }
  const auto window = std::make_shared<const FileWindow>(path, memory);
  const SafetensorsIndex index = read_index(*window);
  const std::vector<std::string> all = tensor_names(path, index, fields);
  const std::vector<std::string> names = chosen_names(path, all, fields);
  std::vector<FileArray> arrays;
  for (const std::string& name : names) {
    const SafetensorsTensor& tensor = index.tensors[index_of(all, name)];
    arrays.push_back({window, tensor.offset, tensor.spec, decoding_of(tensor.spec.dtype),
                      fmt::format("{} ({})", path, name)});
  }
  return from_file_arrays(path, std::move(arrays), names);
}

}  // namespace

Dataset from_npy(const std::string& path) { return join_parts(parts_of(path, {".npy"}), npy_part); }

namespace {

std::vector<std::string> member_names(const std::vector<ZipMember>& members,
                                      const std::string& path) {
  constexpr std::string_view kEnding = ".npy";
  std::vector<std::string> names;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kEnding)) {
      fail(ErrorKind::kBadFile, "{}: byte {}: the name of a member must end with .npy", path,
           member.begin);
    }
    names.push_back(member.name.substr(0, member.name.size() - kEnding.size()));
  }
  return names;
}

}  // namespace

std::vector<std::string> npz_names(const std::string& path) {
  return member_names(read_zip(read_contents(path, Contents::kBinary, "a ZIP archive"), path),
                      path);
}

std::vector<std::string> safetensors_names(const std::string& path) {
  const std::string part = parts_of(path, {".safetensors"})[0];
  SafetensorsIndex index;
  if (is_gzip_file(part)) {
    const std::vector<std::byte> bytes =
        read_contents(part, Contents::kBinary, "a safetensors file");
    index = read_safetensors_index(bytes, static_cast<int64_t>(bytes.size()), part);
  } else {
    index = read_index(FileWindow(part));
  }
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : index.tensors) names.push_back(tensor.name);
  return names;
}

Dataset from_npz(const std::string& path, const std::vector<std::string>& fields) {
  const std::vector<std::byte> bytes = read_contents(path, Contents::kBinary, "a ZIP archive");
  const std::vector<ZipMember> members = read_zip(bytes, path);
  const std::vector<std::string> names = member_names(members, path);
  return choose(path, names, fields, [&](size_t number) {
    const std::string file = fmt::format("{} ({})", path, members[number].name);
    return narrowed(read_npy(read_member(bytes, path, members[number]), file), file);
  });
}

Dataset from_safetensors(const std::string& path, const std::vector<std::string>& fields) {
  std::vector<std::string> names = fields;  // If `fields` is empty: the names of part 0.
  return join_parts(parts_of(path, {".safetensors"}), [&](const std::string& part, auto& memory) {
    Dataset rows = safetensors_part(part, names, memory);
    names = rows.element_specs()->names;
    return rows;
  });
}

}  // namespace sluice::data
