#include "sluice/train/checkpoints/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "sluice/base/error.h"
#include "sluice/base/hash.h"

namespace sluice::train {
namespace {

using nlohmann::json;

std::string hash_of(std::string_view text) {
  Digest digest;
  digest.add(std::as_bytes(std::span(text.data(), text.size())));
  return digest.hex();
}

std::string ending(std::string_view before) {
  return fmt::format("  \"xxh3\": \"{}\"\n}}\n", hash_of(before));
}

bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

int64_t count_of(const json& j) {
  if (!j.is_number_unsigned() || j.get<uint64_t>() > INT64_MAX)
    throw json::other_error::create(0, "a count must be an unsigned integer", &j);
  return static_cast<int64_t>(j.get<uint64_t>());
}

Manifest manifest_of(const json& j) {
  Manifest manifest{.updates = count_of(j.at("step")), .files = {}};
  for (const json& f : j.at("files")) {
    manifest.files.push_back({f.at("name").get<std::string>(), count_of(f.at("bytes")),
                              f.at("xxh3").get<std::string>()});
  }
  return manifest;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  std::string text = fmt::format("{{\n  \"format\": {},\n  \"step\": {},\n  \"files\": [\n",
                                 Manifest::kFormat, manifest.updates);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const CheckpointFile& f = manifest.files[i];
    text +=
        fmt::format("    {{\"name\": {}, \"bytes\": {}, \"xxh3\": \"{}\"}}{}\n",
                    json(f.name).dump(), f.bytes, f.hash, i + 1 < manifest.files.size() ? "," : "");
  }
  text += "  ],\n";
  return text + ending(text);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const size_t length = ending("").size();
  const size_t begin = text.size() < length ? 0 : text.size() - length;
  const std::string_view before = text.substr(0, begin);
  if (text.substr(begin) != ending(before))
    fail(ErrorKind::kBadFile, "{}: must end with the hash of its bytes, got other bytes", path);
  Manifest manifest;
  try {
    const json j = json::parse(text.begin(), text.end());
    if (const int64_t format = count_of(j.at("format")); format != Manifest::kFormat)
      fail(ErrorKind::kBadFile, "{}: format must be {}, got {}", path, Manifest::kFormat, format);
    manifest = manifest_of(j);
  } catch (const json::exception&) {
    fail(ErrorKind::kBadFile, "{}: must be the manifest of a checkpoint, got other JSON", path);
  }
  std::set<std::string> names;
  for (const CheckpointFile& f : manifest.files) {
    if (!is_plain(f.name) || !names.insert(f.name).second)
      fail(ErrorKind::kBadFile, "{}: the name of a file must be plain and unique, got '{}'", path,
           f.name);
  }
  return manifest;
}

}  // namespace sluice::train
