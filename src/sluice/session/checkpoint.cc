#include "sluice/session/checkpoint.h"

#include <algorithm>
#include <map>

#include "sluice/base/hash.h"

namespace sluice {
namespace {

// Returns the tensor of the file for each variable. Appends the names of other tensors to
// `unknown`.
std::vector<const SafetensorsTensor*> find_tensors(const Variables& variables,
                                                   const SafetensorsReader& file,
                                                   const std::string& path,
                                                   std::vector<std::string>& unknown) {
  std::map<std::string, size_t> by_path;
  for (size_t v = 0; v < variables.count(); ++v) by_path.emplace(variables.path(v), v);
  std::vector<const SafetensorsTensor*> found(variables.count(), nullptr);
  for (const SafetensorsTensor& t : file.index().tensors) {
    const auto v = by_path.find(t.name);
    if (v == by_path.end()) {
      unknown.push_back(t.name);
      continue;
    }
    const TensorSpec spec = variables.spec(v->second);
    if (t.spec.shape != spec.shape || t.spec.dtype != spec.dtype) {
      fail(ErrorKind::kBadFile, "{}: '{}' must be {}, got {}", path, t.name, to_string(spec),
           to_string(t.spec));
    }
    found[v->second] = &t;
  }
  for (const ForeignTensor& t : file.index().foreign) {
    if (by_path.contains(t.name)) file.index().refuse_foreign(t.name, path);
    unknown.push_back(t.name);
  }
  for (size_t v = 0; v < variables.count(); ++v) {
    if (found[v] == nullptr)
      fail(ErrorKind::kBadFile, "{}: variable '{}' is missing", path, variables.path(v));
  }
  return found;
}

}  // namespace

void save_variables(const Variables& variables, runtime::Agreement& agreement,
                    const std::string& path, const SafetensorsMetadata& metadata) {
  std::vector<NamedSpec> all;
  for (size_t v = 0; v < variables.count(); ++v)
    all.push_back({variables.path(v), variables.spec(v)});
  const TensorSource source = [&](size_t v, int64_t offset, std::span<std::byte> out) {
    variables.read(v, offset / size_of(all[v].spec.dtype), out);
  };
  if (agreement.rank() == 0) {
    write_safetensors_file(path, all, source, metadata);
  } else {
    write_safetensors(
        all, source, [](std::span<const std::byte>) {}, metadata);
  }
  agreement.any(false);  // A barrier: every process returns only after the file is written.
}

std::vector<std::string> load_variables(Variables& variables, runtime::Agreement& agreement,
                                        const std::string& path) {
  const SafetensorsReader file(path);
  std::vector<std::string> unknown;
  const auto found = find_tensors(variables, file, path, unknown);
  std::vector<std::byte> chunk;
  Digest digest;
  for (size_t v = 0; v < found.size(); ++v) {
    const TensorSpec& spec = found[v]->spec;
    const int64_t width = size_of(spec.dtype);
    for (int64_t begin = 0; begin < spec.elements(); begin += kVariableChunk) {
      chunk.resize(static_cast<size_t>(std::min(kVariableChunk, spec.elements() - begin) * width));
      file.read(*found[v], begin * width, chunk);
      if (agreement.size() > 1) digest.add(chunk);
      variables.write(v, begin, chunk);
    }
  }
  agreement.require_same("values in " + path, digest.hex());
  return unknown;
}

void restore_variables(Variables& variables, const std::vector<NamedArray>& values) {
  std::map<std::string, const HostTensor*> by_path;
  for (const NamedArray& a : values) by_path.emplace(a.name, &a.array);
  require(by_path.size() == variables.count() && values.size() == variables.count(),
          "restore: must have a value for each of {} variables, got {} values", variables.count(),
          values.size());
  for (size_t v = 0; v < variables.count(); ++v) {
    const std::string& path = variables.path(v);
    const auto found = by_path.find(path);
    require(found != by_path.end(), "restore: variable '{}' is missing", path);
    const TensorSpec& given = found->second->spec();
    const TensorSpec spec = variables.spec(v);
    require(given.shape == spec.shape && given.dtype == spec.dtype,
            "restore: variable '{}': the array must be {}, got {}", path, to_string(spec),
            to_string(given));
  }
  for (size_t v = 0; v < variables.count(); ++v)
    variables.write(v, 0, by_path.at(variables.path(v))->bytes());
}

}  // namespace sluice
