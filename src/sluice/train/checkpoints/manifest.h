#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::train {

/// A file of a checkpoint.
struct CheckpointFile {
  std::string name;   ///< In the folder of the checkpoint.
  int64_t bytes = 0;  ///< Its size.
  std::string hash;   ///< XXH3-128, 32 hexadecimal digits.
};

/// The files of a checkpoint. It is written last: a folder with a manifest that parses, and with
/// files of these sizes and hashes, is a whole checkpoint.
struct Manifest {
  static constexpr const char* kName = "manifest.json";
  static constexpr int kFormat = 1;  ///< Version of the format of checkpoints.

  int64_t updates = 0;  ///< As Run::updates.
  std::vector<CheckpointFile> files;
};

/// Formats a manifest as JSON. Its last member is the hash of the bytes before that member.
std::string to_text(const Manifest& manifest);

/// Reads that text. Error{kBadFile} naming `path` if any byte differs from to_text() of a manifest,
/// for another format, and for a name that is not a plain file name.
Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace sluice::train
