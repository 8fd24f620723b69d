#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Records system calls that change files, so that tests can compute which files a crash may leave.
namespace sluice::sys {

/// A call that changed a file or a folder.
struct RecordedCall {
  std::string call;  ///< "create", "pwrite", "fdatasync", "mkdir", "fsync", "rename", "unlink" or
                     ///< "rmdir"; "fsync" is that of a folder.
  std::string path;
  std::string to = {};                ///< New name, for "rename".
  int64_t offset = 0;                 ///< For "pwrite".
  std::vector<std::byte> bytes = {};  ///< For "pwrite".
};

/// Calls `record` after each such call of create_file(), write_exactly(), sync() and the functions
/// of folder.h, one call at a time. Null: no longer.
void set_call_recorder(std::function<void(const RecordedCall&)> record);

namespace internal {
void record_call(const char* call, std::string_view path, std::string_view to = {},
                 int64_t offset = 0, std::span<const std::byte> bytes = {});
}  // namespace internal
}  // namespace sluice::sys
