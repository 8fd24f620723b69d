#include "sluice/train/checkpoints/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/base/hash.h"
#include "sluice/base/options/option_file.h"
#include "sluice/base/options/read_number.h"
#include "sluice/base/system/folder.h"

namespace sluice::train {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kPart = "model-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kDamaged = ".tmp-damaged";  // A damaged checkpoint that is replaced.
constexpr int64_t kHashedBytes = 1 << 20;              // Bytes of a file that are read together.

std::string in(const std::string& folder, std::string_view name) {
  return fmt::format("{}/{}", folder, name);
}

// Returns the updates in the name of a checkpoint; nothing for another name.
std::optional<int64_t> updates_of(const std::string& name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string digits = name.substr(kStep.size());
  const bool plain =
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  const std::optional<int64_t> updates = read_integer<int64_t>(digits);
  return plain && updates && checkpoint_name(*updates) == name ? updates : std::nullopt;
}

}  // namespace

std::string checkpoint_name(int64_t updates) { return fmt::format("{}{:09}", kStep, updates); }

std::string temporary_name(int64_t updates) {
  return fmt::format("{}{}", kTemporary, checkpoint_name(updates));
}

std::vector<CheckpointPart> checkpoint_parts(const VariableSpecs& variables, int processes,
                                             int64_t max_bytes) {
  int64_t total = 0;
  for (const auto& [name, spec] : variables) total = checked_add(total, spec.bytes());
  const int64_t share = total / processes + 1;
  std::vector<CheckpointPart> parts;
  int64_t before = 0;
  for (size_t v = 0; v < variables.size(); ++v) {
    const int64_t bytes = variables[v].second.bytes();
    const int process = static_cast<int>((before + bytes / 2) / share);
    if (parts.empty() || parts.back().process != process || parts.back().bytes + bytes > max_bytes)
      parts.push_back({.process = process});
    parts.back().variables.push_back(v);
    parts.back().bytes += bytes;
    before += bytes;
  }
  for (size_t p = 0; p < parts.size(); ++p)
    parts[p].file = fmt::format("{}{:05}-of-{:05}.safetensors", kPart, p + 1, parts.size());
  return parts;
}

bool is_part(const CheckpointFile& file) {
  return file.name.starts_with(kPart) && file.name.ends_with(".safetensors");
}

std::string index_json(const VariableSpecs& variables, const std::vector<CheckpointPart>& parts) {
  int64_t total = 0;
  std::vector<OptionValue> files;
  for (const CheckpointPart& part : parts) {
    total += part.bytes;
    for (const size_t v : part.variables)
      files.push_back({variables[v].first, OptionType::kText, {part.file}});
  }
  std::string map = to_json(files);
  map.pop_back();  // The line break.
  return fmt::format("{{\n\"metadata\": {{\"total_size\": {}}},\n\"weight_map\": {}\n}}\n", total,
                     map);
}

CheckpointWriter::CheckpointWriter(const std::string& folder, const std::string& name)
    : path_(in(folder, name)), file_(sys::create_file(path_)), written_{.name = name, .hash = ""} {}

void CheckpointWriter::add(std::span<const std::byte> bytes) {
  sys::write_exactly(file_, path_, written_.bytes, bytes);
  digest_.add(bytes);
  written_.bytes += static_cast<int64_t>(bytes.size());
}

CheckpointFile CheckpointWriter::finish() {
  sys::sync(file_, path_);
  written_.hash = digest_.hex();
  return written_;
}

void check_space(const std::string& folder, int64_t bytes, int64_t available) {
  const int64_t needed = checked_add(bytes, bytes / 10);
  if (available < needed)
    fail(
        ErrorKind::kIo,
        "checkpoints: {} must have {} bytes of free space, 110 % of the files of a checkpoint, got "
        "{}; free some, or keep fewer checkpoints",
        folder, needed, available);
}

CheckpointFile write_text_file(const std::string& folder, const std::string& name,
                               const std::string& text) {
  CheckpointWriter file(folder, name);
  file.add(std::as_bytes(std::span(text.data(), text.size())));
  return file.finish();
}

bool is_whole(const std::string& checkpoint) {
  try {
    check_checkpoint(checkpoint, read_manifest(checkpoint));
    return true;
  } catch (const Error&) {
    return false;
  }
}

void publish_checkpoint(const std::string& folder, const Manifest& manifest) {
  const std::string temporary = in(folder, temporary_name(manifest.updates));
  const std::string name = in(folder, checkpoint_name(manifest.updates));
  write_text_file(temporary, Manifest::kName, to_text(manifest));
  sys::sync_folder(temporary);
  if (sys::exists(name)) {
    if (is_whole(name)) return sys::remove_folder(temporary);
    const std::string damaged = in(folder, kDamaged);
    sys::remove_folder(damaged);
    sys::rename(name, damaged);
    sys::remove_folder(damaged);
  }
  sys::rename(temporary, name);
  sys::sync_folder(folder);
}

void remove_old_checkpoints(const std::string& folder, int64_t updates, int64_t keep) {
  std::vector<int64_t> all = checkpoints_in(folder);
  std::erase_if(all, [&](int64_t other) { return other > updates; });
  for (size_t i = static_cast<size_t>(keep); i < all.size(); ++i) {
    // A checkpoint loses its name first, so that no part of one has that name after a crash.
    const std::string removed = in(folder, temporary_name(all[i]));
    sys::rename(in(folder, checkpoint_name(all[i])), removed);
    sys::sync_folder(folder);
    sys::remove_folder(removed);
  }
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& name : sys::names_in(folder)) {
    const bool temporary =
        name.starts_with(kTemporary) && updates_of(name.substr(kTemporary.size())).has_value();
    if (temporary || name == kDamaged) sys::remove_folder(in(folder, name));
  }
}

std::vector<int64_t> checkpoints_in(const std::string& folder) {
  std::vector<int64_t> all;
  for (const std::string& name : sys::names_in(folder)) {
    const std::optional<int64_t> updates = updates_of(name);
    if (updates && sys::is_folder(in(folder, name))) all.push_back(*updates);
  }
  std::sort(all.rbegin(), all.rend());
  return all;
}

Manifest read_manifest(const std::string& checkpoint) {
  const std::string path = in(checkpoint, Manifest::kName);
  const std::vector<std::byte> bytes = sys::read_file(path);
  const Manifest manifest =
      parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  for (const CheckpointFile& f : manifest.files) {
    const std::string file = in(checkpoint, f.name);
    const int64_t size = sys::size(sys::open_for_read(file), file);
    if (size != f.bytes)
      fail(ErrorKind::kBadFile, "{}: must have {} bytes, got {}", file, f.bytes, size);
  }
  return manifest;
}

void check_checkpoint(const std::string& checkpoint, const Manifest& manifest) {
  for (const CheckpointFile& f : manifest.files) check_file(checkpoint, f);
}

void check_file(const std::string& checkpoint, const CheckpointFile& file) {
  const std::string path = in(checkpoint, file.name);
  const sys::File opened = sys::open_for_read(path);
  std::vector<std::byte> bytes;
  Digest digest;
  for (int64_t at = 0; at < file.bytes; at += kHashedBytes) {
    bytes.resize(static_cast<size_t>(std::min(kHashedBytes, file.bytes - at)));
    sys::read_exactly(opened, path, at, bytes);
    digest.add(bytes);
  }
  check_hash(path, file, digest.hex());
}

void check_hash(const std::string& path, const CheckpointFile& file, const std::string& hash) {
  if (hash != file.hash)
    fail(ErrorKind::kBadFile, "{}: must have the hash {} of the manifest, got {}", path, file.hash,
         hash);
}

}  // namespace sluice::train
