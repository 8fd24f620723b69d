#include "sluice/train/checkpoints/best_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/hash.h"
#include "sluice/base/safetensors.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"

namespace sluice::train {
namespace {

constexpr int64_t kCopiedBytes = 1 << 20;  // Bytes of a file that are copied together.

// Calls `take` with all bytes of a file.
void each_piece(const sys::File& file, const std::string& path, int64_t bytes,
                const std::function<void(int64_t, std::span<const std::byte>)>& take) {
  std::vector<std::byte> piece;
  for (int64_t at = 0; at < bytes; at += kCopiedBytes) {
    piece.resize(static_cast<size_t>(std::min(kCopiedBytes, bytes - at)));
    sys::read_exactly(file, path, at, piece);
    take(at, piece);
  }
}

// Whether a file has the bytes of a file of a checkpoint.
bool has_bytes_of(const std::string& path, const CheckpointFile& saved) {
  if (!sys::exists(path)) return false;
  const sys::File file = sys::open_for_read(path);
  if (sys::size(file, path) != saved.bytes) return false;
  Digest digest;
  each_piece(file, path, saved.bytes, [&](int64_t, auto bytes) { digest.add(bytes); });
  return digest.hex() == saved.hash;
}

}  // namespace

std::map<std::string, std::string> best_metadata(const std::string& run,
                                                 const BestValidation& best) {
  return {{"run", run}, {"updates", fmt::format("{}", best.updates)}};
}

void check_best(const std::string& path, const std::string& run, const BestValidation& best) {
  const SafetensorsMetadata found = SafetensorsReader(path).index().metadata;
  for (const auto& [key, value] : best_metadata(run, best)) {
    const auto other = found.find(key);
    if (other == found.end() || other->second != value)
      fail(
          ErrorKind::kBadFile,
          "{}: must have the best weights of this run, after {} updates, got others (its {} is {})",
          path, best.updates, key, other == found.end() ? "absent" : other->second);
  }
}

std::optional<sys::File> open_best(const std::string& path, const Run& run) {
  if (path.empty() || !run.best.value || !sys::exists(path)) return std::nullopt;
  try {
    sys::File file = sys::open_for_read(path);
    check_best(path, run.id, run.best);
    return file;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kBadFile) return std::nullopt;  // Another file of the user.
    throw;
  }
}

CheckpointFile copy_to_checkpoint(const sys::File& file, const std::string& path, int64_t bytes,
                                  const std::string& folder, const std::string& name) {
  CheckpointWriter copy(folder, name);
  each_piece(file, path, bytes, [&](int64_t, auto piece) { copy.add(piece); });
  return copy.finish();
}

void restore_best(const std::string& path, const CheckpointFile& saved) {
  if (!sys::exists(saved.name) || has_bytes_of(path, saved)) return;
  const sys::File file = sys::open_for_read(saved.name);
  sys::replace_file(path, [&](const sys::File& out, const std::string& name) {
    Digest digest;
    each_piece(file, saved.name, saved.bytes, [&](int64_t at, auto bytes) {
      digest.add(bytes);
      sys::write_exactly(out, name, at, bytes);
    });
    check_hash(saved.name, saved, digest.hex());
  });
}

}  // namespace sluice::train
