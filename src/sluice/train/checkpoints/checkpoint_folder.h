#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/base/host_tensor.h"
#include "sluice/base/sys.h"
#include "sluice/train/checkpoints/manifest.h"

/// A folder of checkpoints on disk. A checkpoint is a folder "step-000000400" in it:
///
///     model-00001-of-00002.safetensors   variables by path, whole tensors
///     model.safetensors.index.json       the file of each variable, as Hugging Face writes it
///     run.json                           the run (train/checkpoints/run.h)
///     best.safetensors                   the weights of the best validation, if they are stored
///     manifest.json                      sizes and hashes of the others
///
/// It is written as ".tmp-step-000000400". Each file is synchronised, the manifest last, then the
/// names in the folder. Only then is the folder renamed. So a folder "step-…" is whole, unless its
/// files were damaged later.
namespace sluice::train {

/// "step-000000400".
std::string checkpoint_name(int64_t updates);
/// The temporary name of a checkpoint that is written.
std::string temporary_name(int64_t updates);

/// Names and specs of variables, in ascending order of the names.
using VariableSpecs = std::vector<std::pair<std::string, TensorSpec>>;

/// A file of variables, and the process that writes it.
struct CheckpointPart {
  std::string file;
  int process = 0;
  std::vector<size_t> variables;  ///< Indices, ascending.
  int64_t bytes = 0;              ///< Bytes of the variables.
};

/// Cuts variables into files: consecutive ones of about equally many bytes for each process, and of
/// at most `max_bytes` in a file, unless one variable has more.
std::vector<CheckpointPart> checkpoint_parts(const VariableSpecs& variables, int processes,
                                             int64_t max_bytes = int64_t{1} << 30);
/// Formats the index of Hugging Face: {"metadata": {"total_size": …}, "weight_map": {…}}.
std::string index_json(const VariableSpecs& variables, const std::vector<CheckpointPart>& parts);
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr const char* kRunName = "run.json";
inline constexpr const char* kBestName = "best.safetensors";

/// Whether a file of a checkpoint has variables of the run: a CheckpointPart.
bool is_part(const CheckpointFile& file);

/// Writes a file of a checkpoint. All functions throw Error{kIo}.
class CheckpointWriter {
 public:
  /// Creates the file in a folder.
  CheckpointWriter(const std::string& folder, const std::string& name);
  void add(std::span<const std::byte> bytes);
  /// Synchronises the file. Returns its size and hash.
  CheckpointFile finish();

 private:
  std::string path_;
  sys::File file_;
  CheckpointFile written_;
  Digest digest_;
};

/// Error{kIo} unless a folder with `available` free bytes has room for files of `bytes` bytes and
/// 10 % more: for headers, and blocks of the file system.
void check_space(const std::string& folder, int64_t bytes, int64_t available);

/// Writes a whole text.
CheckpointFile write_text_file(const std::string& folder, const std::string& name,
                               const std::string& text);

/// Whether a checkpoint has a manifest, and all files have its sizes and hashes.
bool is_whole(const std::string& checkpoint);

/// Writes the manifest to the temporary folder of a checkpoint, and gives the folder its name. A
/// damaged checkpoint of that name is removed first; a whole one remains. Error{kIo}; then no whole
/// checkpoint has changed.
void publish_checkpoint(const std::string& folder, const Manifest& manifest);

/// Removes all but the newest `keep` checkpoints among those of at most `updates` updates. The
/// others are damaged: one of them is replaced when the run has as many updates. Only the owner of
/// the lock of the folder may call this function and the next one.
void remove_old_checkpoints(const std::string& folder, int64_t updates, int64_t keep);
/// Removes what interrupted saves have left.
void remove_leftovers(const std::string& folder);

/// Returns the numbers of updates of the checkpoints in a folder, the newest first, whole or
/// damaged.
std::vector<int64_t> checkpoints_in(const std::string& folder);

/// Reads the manifest of a checkpoint and compares the sizes of its files. Error{kBadFile} or
/// Error{kIo} naming the file that is damaged or missing.
Manifest read_manifest(const std::string& checkpoint);
/// Compares the hashes of all files, too.
void check_checkpoint(const std::string& checkpoint, const Manifest& manifest);
/// Compares the hash of a file of a checkpoint.
void check_file(const std::string& checkpoint, const CheckpointFile& file);
/// Error{kBadFile} unless `hash` is that of the manifest.
void check_hash(const std::string& path, const CheckpointFile& file, const std::string& hash);

}  // namespace sluice::train
