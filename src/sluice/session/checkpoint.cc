#include "sluice/session/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "sluice/base/hash.h"

namespace sluice {
namespace {

bool matches(const NamePattern& p, const std::string& name) {
  if (!p.has_star) return name == p.before;
  return name.size() >= p.before.size() + p.after.size() && name.starts_with(p.before) &&
         name.ends_with(p.after);
}

NamePattern parse_pattern(const std::string& text) {
  const size_t star = text.find('*');
  if (star == text.npos) return {text, "", false};
  require(text.find('*', star + 1) == text.npos, "load: a name must have one '*' or none, got '{}'",
          text);
  return {text.substr(0, star), text.substr(star + 1), true};
}

void check_spec(const SafetensorsTensor& tensor, const NamedSpec& variable,
                const std::string& path) {
  const TensorSpec& spec = variable.spec;
  if (tensor.spec.shape == spec.shape && tensor.spec.dtype == spec.dtype) return;
  const std::string renamed =
      tensor.name == variable.name ? "" : fmt::format(" for variable '{}'", variable.name);
  fail(ErrorKind::kBadFile, "{}: '{}' must be {}{}, got {}", path, tensor.name, to_string(spec),
       renamed, to_string(tensor.spec));
}

}  // namespace

NewNames::NewNames(const std::map<std::string, std::string>& names) {
  for (const auto& [name, path] : names) {
    const Entry entry{name, parse_pattern(name), parse_pattern(path)};
    require(entry.from.has_star || !entry.to.has_star,
            "load: the path '{}' must be without '*', as the name '{}' is", path, name);
    entries_.push_back(entry);
  }
}

std::string NewNames::operator()(const std::string& name) {
  const Entry* found = nullptr;
  for (Entry& e : entries_) {
    if (!matches(e.from, name)) continue;
    e.is_used = true;
    if (found != nullptr && !found->from.has_star) continue;
    require(found == nullptr || !e.from.has_star,
            "load: '{}' must match one name with '*', got '{}' and '{}'", name,
            found == nullptr ? "" : found->name, e.name);
    found = &e;
  }
  if (found == nullptr) return name;
  if (!found->to.has_star) return found->to.before;
  const size_t length = name.size() - found->from.before.size() - found->from.after.size();
  return found->to.before + name.substr(found->from.before.size(), length) + found->to.after;
}

void NewNames::require_all_used(const std::string& path) const {
  for (const Entry& e : entries_)
    require(e.is_used, "load: '{}' must match a tensor of {}, got none", e.name, path);
}

FileMatch match_file(const SafetensorsReader& file, const std::string& path,
                     std::span<const NamedSpec> variables, const LoadOptions& options,
                     size_t required) {
  std::map<std::string, size_t> by_path;
  for (size_t v = 0; v < variables.size(); ++v) by_path.emplace(variables[v].name, v);
  FileMatch match{std::vector<const SafetensorsTensor*>(variables.size(), nullptr), {}};
  NewNames new_names(options.names);
  const auto find = [&](const std::string& name) {
    const std::string target = new_names(name);
    const auto found = by_path.find(target);
    if (found == by_path.end() && !target.empty()) match.result.unused.push_back(name);
    return found;
  };
  for (const SafetensorsTensor& t : file.index().tensors) {
    const auto v = find(t.name);
    if (v == by_path.end()) continue;
    check_spec(t, variables[v->second], path);
    const SafetensorsTensor*& tensor = match.tensors[v->second];
    require(tensor == nullptr,
            "load: variable '{}' must be set by one tensor of {}, got '{}' and '{}'", v->first,
            path, tensor == nullptr ? "" : tensor->name, t.name);
    tensor = &t;
  }
  for (const ForeignTensor& t : file.index().foreign) {
    if (find(t.name) != by_path.end()) file.index().refuse_foreign(t.name, path);
  }
  new_names.require_all_used(path);
  for (size_t v = 0; v < variables.size(); ++v) {
    if (match.tensors[v] != nullptr) continue;
    if (options.strict && v < required)
      fail(ErrorKind::kBadFile,
           "{}: variable '{}' is missing; to keep its value, load without LoadOptions::strict "
           "(--load-strict no)",
           path, variables[v].name);
    match.result.missing.push_back(variables[v].name);
  }
  return match;
}

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

LoadResult load_variables(Variables& variables, runtime::Agreement& agreement,
                          const std::string& path, const LoadOptions& options) {
  const SafetensorsReader file(path);
  std::vector<NamedSpec> all;
  for (size_t v = 0; v < variables.count(); ++v)
    all.push_back({variables.path(v), variables.spec(v)});
  FileMatch match = match_file(file, path, all, options);
  std::vector<std::byte> chunk;
  Digest digest;
  for (size_t v = 0; v < all.size(); ++v) {
    const SafetensorsTensor* const tensor = match.tensors[v];
    if (tensor == nullptr) continue;
    const int64_t elements = tensor->spec.elements(), width = size_of(tensor->spec.dtype);
    for (int64_t begin = 0; begin < elements; begin += kVariableChunk) {
      chunk.resize(static_cast<size_t>(std::min(kVariableChunk, elements - begin) * width));
      file.read(*tensor, begin * width, chunk);
      if (agreement.size() > 1) digest.add(chunk);
      variables.write(v, begin, chunk);
    }
  }
  agreement.require_same("values in " + path, digest.hex());
  return std::move(match.result);
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
